//! *Health*: what the alarms of a stack on AWS watch, as numbers and charts.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::stack::Alarm;

/// Shows the alarms: first those that are raised.
pub(crate) async fn page(State(console): State<Arc<Console>>) -> Result<Page, Failure> {
    let alarms = console.stack.alarms().await;
    let content = html! {
        h1 { "Health" }
        @match alarms {
            Err(error) => p.notice.warn { "The alarms cannot be read: " (error) },
            Ok(alarms) => (alarms_markup(alarms)),
        }
    };
    Ok(Page::new("Health", "Health", content))
}

fn alarms_markup(mut alarms: Vec<Alarm>) -> Markup {
    // The sort is stable: within a state, the alarms stay in their order.
    alarms.sort_by_key(|alarm| match alarm.state.as_str() {
        "ALARM" => 0,
        "OK" => 2,
        _ => 1,
    });
    let raised = alarms.iter().filter(|alarm| alarm.state == "ALARM").count();
    html! {
        p.facts {
            strong { (alarms.len()) } " alarms, "
            @if raised > 0 { strong.bad { (raised) " raised" } } @else { strong.good { "none raised" } }
            ". The figures are those of CloudWatch for the last three hours. Most of them arrive a minute or two late."
        }
        @if alarms.is_empty() {
            p.empty { "The stack has no alarms. Check the name of the stack: " code { "--stack" } " or " code { "STACK" } "." }
        }
        div.cards { @for alarm in &alarms { (card(alarm)) } }
    }
}

fn card(alarm: &Alarm) -> Markup {
    let Alarm { name, description, state, reason, threshold, comparison, points } = alarm;
    let limit = threshold.map(|threshold| format!("{} {}", comparison_sign(comparison), number(threshold)));
    let latest = points.last().map(|(_, value)| number(*value));
    let label = match (&latest, &limit) {
        (Some(latest), Some(limit)) => format!("{name}: the latest value is {latest}; it is raised at {limit}"),
        _ => format!("{name}: the last three hours"),
    };
    html! {
        section.card data-row {
            h2 { (name) " " span.fate.bad[state == "ALARM"].good[state == "OK"].warn[state != "ALARM" && state != "OK"] { (state_text(state)) } }
            @match &latest {
                Some(latest) => {
                    p.value { strong { (latest) } @if let Some(limit) = &limit { span.hint { " raised at " (limit) } } }
                    (Chart { label: &label, points, threshold: *threshold }.markup())
                }
                None => p.hint { "no data in the last three hours" @if let Some(limit) = &limit { "; raised at " (limit) } },
            }
            @if state == "ALARM" { p { (reason) } }
            p.hint { (description) }
        }
    }
}

fn state_text(state: &str) -> String {
    match state {
        "ALARM" => "raised".to_owned(),
        "OK" => "OK".to_owned(),
        other => other.to_lowercase().replace('_', " "),
    }
}

fn comparison_sign(comparison: &str) -> &'static str {
    match comparison {
        "GreaterThanThreshold" => ">",
        "GreaterThanOrEqualToThreshold" => "≥",
        "LessThanThreshold" => "<",
        "LessThanOrEqualToThreshold" => "≤",
        _ => "",
    }
}

/// The size of the drawing. The stylesheet stretches it.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 60.0;

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
