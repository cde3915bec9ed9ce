//! *Stream* of a stack on AWS: the event source mapping of the relay, and the queues.

use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::projections;
use super::stream::{Queue, queues_markup};
use crate::console::Console;
use crate::failure::Failure;
use crate::markup::frame::{Frame, Page};
use crate::markup::time;
use crate::stack::StackError;

/// The relay of a stack on AWS.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Relay {
    mappings: Vec<RelayMapping>,
    /// The age of the oldest record at its last invocation, in milliseconds.
    iterator_age_ms: Option<f64>,
    /// When that was, in milliseconds since 1970.
    at: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RelayMapping {
    id: String,
    state: String,
    last_result: String,
}

/// Shows what Lambda, CloudWatch and SQS return. A part for which there is no permission does not hide the others.
pub(crate) async fn page(State(console): State<Arc<Console>>) -> Result<Page, Failure> {
    let stack = &console.stack;
    let (relay, queues) = tokio::join!(stack.get::<Relay>("/_dev/relay"), stack.get::<Vec<Queue>>("/_dev/queues"));
    let content = html! {
        h1 { "Stream" }
        p.facts { "What the functions wait for. " code { "daybook relay status" } " also lists the messages that the relay has not sent." }
        (relay_markup(&relay))
        (projections::section(&console).await)
        @match &queues {
            Ok(queues) => { (queues_markup(queues)) p.hint { "The approximate counts of SQS." } }
            Err(error) => (missing_part("Queues", error)),
        }
    };
    Ok(Frame::new("Stream").below("Stream").with(content))
}

fn missing_part(title: &str, error: &StackError) -> Markup {
    html! { section { h2 { (title) } p.notice.warn { (error) } } }
}

fn relay_markup(relay: &Result<Relay, StackError>) -> Markup {
    let relay = match relay {
        Ok(relay) => relay,
        Err(error) => return missing_part("Relay", error),
    };
    let at = relay.at.map(|at| time::relative_ms(at, Timestamp::now()));
    html! {
        section {
            h2 { "Relay" }
            div.scroll tabindex="0" { table {
                thead { tr { th { "Mapping" } th { "State" } th { "Last result" } } }
                tbody { @for RelayMapping { id, state, last_result } in &relay.mappings {
                    tr data-row {
                        td { code.short title=(id) { (id) } }
                        td { @if state == "Enabled" { (state) } @else { span.bad { (state) } } }
                        td { @if last_result.starts_with("PROBLEM") { span.bad { (last_result) } } @else { (last_result) } }
                    }
                } }
            } }
            @if relay.mappings.is_empty() { p.notice.bad role="alert" { "The relay has no event source mapping: nobody sends the messages." } }
            p.facts {
                @match (relay.iterator_age_ms, at) {
                    (Some(age), Some(at)) => { "The oldest record was " strong { (time::span_text(age as i64)) } " old, " (at) "." }
                    _ => "CloudWatch has no age of a record for the last ten minutes: the relay read none.",
                }
                " CloudWatch's figures arrive a minute or two late."
            }
        }
    }
}
