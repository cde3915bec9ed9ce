//! Small charts of figures over time, as SVG.

use maud::{Markup, html};

/// The size of the drawing. The stylesheet stretches it.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 60.0;

/// Figures over time.
pub(crate) struct Chart<'a> {
    /// What a screen reader reads in place of the drawing.
    pub(crate) label: &'a str,
    /// Times and values, in order of time.
    pub(crate) points: &'a [(f64, f64)],
    /// The value at which an alarm is raised.
    pub(crate) threshold: Option<f64>,
}

impl Chart<'_> {
    /// The drawing. The times of the first and the last point are its borders; values begin at 0.
    pub(crate) fn markup(&self) -> Markup {
        let Self { label, points, threshold } = self;
        let values = points.iter().map(|(_, value)| *value);
        let highest = values.chain(*threshold).fold(0.0_f64, f64::max);
        let lowest = points.iter().map(|(_, value)| *value).fold(0.0_f64, f64::min);
        let height = |value: f64| {
            let range = if highest > lowest { highest - lowest } else { 1.0 };
            2.0 + (HEIGHT - 4.0) * (1.0 - (value - lowest) / range)
        };
        let (first, last) = (points.first().map_or(0.0, |point| point.0), points.last().map_or(0.0, |point| point.0));
        let across = |at: f64| if last > first { WIDTH * (at - first) / (last - first) } else { WIDTH };
        let line: Vec<_> =
            points.iter().map(|(at, value)| format!("{:.1},{:.1}", across(*at), height(*value))).collect();
        html! {
            svg.chart role="img" aria-label=(label) viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" {
                @if let Some(threshold) = threshold {
                    @let y = format!("{:.1}", height(*threshold));
                    line.threshold x1="0" x2=(WIDTH) y1=(y) y2=(y) vector-effect="non-scaling-stroke" {}
                }
                @if let [only] = line.as_slice() {
                    // A line of one point would not be visible.
                    @let (_, y) = only.split_once(',').unwrap_or_default();
                    polyline.values points={ "0," (y) " " (only) } vector-effect="non-scaling-stroke" {}
                } @else {
                    polyline.values points=(line.join(" ")) vector-effect="non-scaling-stroke" {}
                }
            }
        }
    }
}

/// A value without superfluous digits.
pub(crate) fn number(value: f64) -> String {
    let rounded = format!("{value:.2}");
    rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: &[(f64, f64)], threshold: Option<f64>) -> String {
        Chart { label: "<a>", points, threshold }.markup().into_string()
    }

    #[test]
    fn chart_has_a_line_of_the_values_and_one_of_the_threshold() {
        let chart = drawn(&[(0.0, 0.0), (10.0, 5.0), (20.0, 10.0)], Some(20.0));
        assert!(chart.contains("points=\"0.0,58.0 150.0,44.0 300.0,30.0\""), "{chart}");
        assert!(chart.contains("y1=\"2.0\" y2=\"2.0\"") && chart.contains("aria-label=\"&lt;a&gt;\""), "{chart}");
    }

    #[test]
    fn chart_of_equal_values_of_one_value_and_of_none_can_be_drawn() {
        assert!(drawn(&[(1.0, 0.0), (2.0, 0.0)], None).contains("points=\"0.0,58.0 300.0,58.0\""));
        assert!(drawn(&[(1.0, 3.0)], None).contains("points=\"0,2.0 300.0,2.0\""));
        assert!(drawn(&[], Some(1.0)).contains("points=\"\""));
        assert_eq!(
            (number(1_200.0), number(0.25), number(0.0)),
            ("1200".to_owned(), "0.25".to_owned(), "0".to_owned())
        );
    }
}
