//! *Health*: what the alarms of a stack on AWS watch, with its figures as charts, and the requests to its API, which *Stream* shows
//! too. Its dashboard has more.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::stack::{Alarm, Health, Minute};

/// Shows the alarms, the raised ones first, and then the requests.
pub(crate) async fn page(State(console): State<Arc<Console>>) -> Result<Page, Failure> {
    let health = console.stack.health().await;
    let content = html! {
        h1 { "Health" }
        @match health {
            Err(error) => p.notice.warn { "The figures cannot be read: " (error) },
            Ok(Health { alarms, traffic }) => {
                (alarms_markup(alarms))
                @if !traffic.is_empty() { (requests(&traffic)) }
            }
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
    let Alarm { name, description, state, reason, threshold, comparison, values } = alarm;
    let limit = threshold.map(|threshold| format!("{} {}", comparison_sign(comparison), number(threshold)));
    html! {
        section.card data-row {
            h2 { (name) " " span.fate.bad[state == "ALARM"].good[state == "OK"].warn[state != "ALARM" && state != "OK"] { (state_text(state)) } }
            @match values.last() {
                Some(latest) => {
                    p.value { strong { (number(*latest)) } @if let Some(limit) = &limit { span.hint { " raised at " (limit) } } }
                    @if values.len() > 1 { (bars("In three hours", values)) }
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

const HEIGHT: f64 = 40.0;

/// The width of a bar with its gap.
const STEP: f64 = 4.0;

/// A bar for each value, in their order. `name` says what they are.
fn bars(name: &str, values: &[f64]) -> Markup {
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
fn number(value: f64) -> String {
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
