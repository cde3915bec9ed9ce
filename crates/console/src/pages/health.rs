//! *Health*: what the alarms of a stack on AWS watch, with its figures, and the requests to its API. Its dashboard has more.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use crate::chart::{bars, number, requests};
use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::stack::{Alarm, Health};

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
