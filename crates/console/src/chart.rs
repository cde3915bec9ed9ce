//! Small charts.

use maud::{Markup, html};

use crate::stack::Minute;

const HEIGHT: f64 = 40.0;

/// The width of a bar with its gap.
const STEP: f64 = 4.0;

/// A bar for each value, in their order. `name` says what they are.
pub(crate) fn bars(name: &str, values: &[f64]) -> Markup {
    let most = values.iter().copied().fold(0.0, f64::max);
    let last = values.last().copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "few values")]
    let x = |index: usize| index as f64 * STEP;
    let height = |value: f64| if most > 0.0 { (value / most * HEIGHT).max(0.0) } else { 0.0 };
    html! {
        figure.chart {
            figcaption { (name) ": latest " strong { (number(last)) } ", most " strong { (number(most)) } }
            svg viewBox={ "0 0 " (x(values.len())) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                @for (index, value) in values.iter().enumerate() {
                    rect x=(x(index)) y=(HEIGHT - height(*value)) width=(STEP - 1.0) height=(height(*value)) {}
                }
            }
        }
    }
}

/// The requests to the API in the last hour.
pub(crate) fn requests(traffic: &[Minute]) -> Markup {
    let of_each = |figure: fn(&Minute) -> f64| traffic.iter().map(figure).collect::<Vec<_>>();
    html! {
        section {
            h2 { "Requests in the last hour" }
            div.cards {
                (bars("Per minute", &of_each(|minute| minute.requests as f64)))
                (bars("Median milliseconds", &of_each(|minute| minute.median_ms)))
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

    #[test]
    fn number_has_no_superfluous_digits() {
        assert_eq!([1_200.0, 0.25, 0.0].map(number), ["1200", "0.25", "0"]);
    }

    #[test]
    fn highest_bar_has_the_height_of_the_chart() {
        let chart = bars("requests", &[0.0, 2.0, 1.0]).into_string();
        assert!(chart.contains("requests: latest <strong>1</strong>, most <strong>2</strong>"), "{chart}");
        for bar in ["x=\"0\" y=\"40\" width=\"3\" height=\"0\"", "x=\"4\" y=\"0\"", "x=\"8\" y=\"20\""] {
            assert!(chart.contains(bar), "{chart}");
        }
        assert!(bars("requests", &[0.0]).into_string().contains("height=\"0\""));
    }
}
