//! *Dead-letter messages*: the messages that could not be delivered: what, why, how often. They can be sent again or
//! deleted. For a stack on AWS from which the console only reads: their number.

use std::sync::Arc;

use axum::extract::State;
use daybook_local_aws::messaging::WaitingMessage;
use daybook_stream_relay::DeadLetter;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::bus::data_of;
use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::request::{self, PostedForm};
use crate::stack::{DeadLetterAction, DeadLetterOutcome, DeadLetters, MessageMetadata, queue_name};
use crate::{json, paths, time};

pub(crate) async fn page(State(console): State<Arc<Console>>) -> Result<Page, Failure> {
    show(&console, DeadLetterAction::Nothing).await
}

pub(crate) async fn depth(State(console): State<Arc<Console>>) -> Result<Page, Failure> {
    let queue = console.stack.dead_letter_queue().await?;
    let content = html! {
        h1 { "Dead-letter messages" }
        dl.numbers {
            div { dt { "messages in the queue" } dd { (queue.visible + queue.hidden) } }
            div { dt { "of them hidden by a reader" } dd { (queue.hidden) } }
        }
        p.hint { "The approximate counts of SQS for " code { (queue.queue) } "." }
        p.facts {
            "The messages themselves are not shown: to list them, SQS must hide them from other readers for a moment. "
            code { "daybook dlq list" } " prints them, and the console lists them if it is started with " code { "--allow-writes" } "."
        }
    };
    Ok(Page::new("Dead-letter messages", "Dead-letter messages", content))
}

/// Sends messages again, or deletes them: those that are selected, or all. Shows what became of them.
pub(crate) async fn act(State(console): State<Arc<Console>>, form: PostedForm) -> Result<Page, Failure> {
    let ids = form.values("id").map(str::to_owned).collect();
    let action = match form.value("action") {
        Some("redrive-all") => DeadLetterAction::RedriveAll,
        Some("redrive") => DeadLetterAction::Redrive(ids),
        Some("delete") => DeadLetterAction::Delete(ids),
        _ => return Err(Failure::invalid("the form names no action")),
    };
    show(&console, action).await
}

async fn show(console: &Console, action: DeadLetterAction) -> Result<Page, Failure> {
    let DeadLetters { messages, outcomes } = console.stack.dead_letters(action).await?;
    let now = console.store.now();
    let content = html! {
        h1 { "Dead-letter messages" }
        p.facts { "Messages that could not be delivered. They stay until somebody sends them again or deletes them." }
        (outcomes_markup(&outcomes))
        @if messages.is_empty() {
            p.empty { "There are none." }
        } @else {
            form method="post" action=(paths::page("/dead-letters")) {
                (request::token(&console.form_token))
                p.actions {
                    button.primary name="action" value="redrive" { "Send the selected again" }
                    @if console.is_local() { button name="action" value="redrive-all" { "Send all again" } }
                    button.danger name="action" value="delete" { "Delete the selected" }
                }
                div.scroll tabindex="0" { table {
                    thead { tr {
                        th { span.hidden { "Select" } } th { "Message" } th { "Aggregate" } th { "Why" } th.number { "Attempts" }
                        th { "Since" } th { "Data" }
                    } }
                    @for (reason, group) in by_reason(&messages) {
                        tbody {
                            @if group.len() > 1 { tr.group { th colspan="7" { (group.len()) " messages: " (reason) } } }
                            @for read in group { (row(&read, console.is_local(), now)) }
                        }
                    }
                } }
            }
        }
    };
    Ok(Page::new("Dead-letter messages", "Dead-letter messages", content))
}

/// The messages, the latest first, together with those of the same reason.
fn by_reason(messages: &[WaitingMessage]) -> Vec<(String, Vec<Read<'_>>)> {
    let mut groups: Vec<(String, Vec<_>)> = Vec::new();
    for waiting in messages.iter().rev() {
        let dead_letter = DeadLetter::read(&waiting.message.body).ok();
        let error = dead_letter.as_ref().and_then(|found| found.error.as_ref());
        let queue = queue_name(&waiting.message.queue_url);
        let reason = error.map_or_else(|| queue.to_owned(), |error| format!("{}: {}", error.code, error.text));
        let read = Read { waiting, dead_letter };
        match groups.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, group)) => group.push(read),
            None => groups.push((reason, vec![read])),
        }
    }
    groups
}

/// A message; one of another sender than the relay is no dead letter.
struct Read<'a> {
    waiting: &'a WaitingMessage,
    dead_letter: Option<DeadLetter>,
}

fn outcomes_markup(outcomes: &[DeadLetterOutcome]) -> Markup {
    let count = |outcome: &str| outcomes.iter().filter(|found| found.outcome == outcome).count();
    let (sent, deleted) = (count("sent"), count("deleted"));
    html! {
        @if sent > 0 { p.notice.good role="status" { (sent) @if sent == 1 { " message was sent again." } @else { " messages were sent again." } } }
        @if deleted > 0 { p.notice.good role="status" { (deleted) @if deleted == 1 { " message was deleted." } @else { " messages were deleted." } } }
        @for DeadLetterOutcome { id, outcome, reason } in outcomes.iter().filter(|found| !["sent", "deleted"].contains(&found.outcome.as_str())) {
            p.notice.bad role="alert" {
                strong { (outcome) } " " code { (id) } @if let Some(reason) = reason { ": " (reason) }
            }
        }
    }
}

/// An event that the bus sent to the queue of a rule.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct BusEvent<'a> {
    detail_type: String,
    #[serde(borrow)]
    detail: &'a RawValue,
}

fn row(Read { waiting, dead_letter }: &Read<'_>, is_local: bool, now: Timestamp) -> Markup {
    let WaitingMessage { message, sent_at, .. } = waiting;
    let (id, queue) = (&message.message_id, queue_name(&message.queue_url));
    let event = serde_json::from_str::<BusEvent<'_>>(&message.body).ok();
    let (name, detail) = match (dead_letter.as_ref().and_then(|found| found.message.as_ref()), &event) {
        (Some(row), _) => (row.message_type.as_str(), row.detail.as_str()),
        (None, Some(event)) => (event.detail_type.as_str(), event.detail.get()),
        (None, None) => (queue, message.body.as_str()),
    };
    let metadata = MessageMetadata::of_detail(detail);
    let error = dead_letter.as_ref().and_then(|found| Some((found.error.as_ref()?, found.attempts)));
    let whole = format!("{}/{}", paths::page("/dead-letters"), paths::escaped(id));
    html! {
        tr data-row id={ "m-" (id) } {
            td { input type="checkbox" name="id" value=(id) aria-label={ "Select " (name) }; }
            td { strong { (name) } br; a.quiet href=(whole) { "whole message" } }
            td {
                @if metadata.seq_num > 0 {
                    a href={ (paths::aggregate_of(&metadata.aggregate_type, &metadata.aggregate_id)) "?version=" (metadata.seq_num) } {
                        (metadata.aggregate_type) "/" (metadata.aggregate_id)
                    }
                }
            }
            td {
                @match error {
                    Some((error, _)) => { strong.bad { (error.code) } br; span.hint { (error.text) } }
                    None if is_local => { "its consumer did not process it; it is in " code { (queue) } }
                    None => "no error recorded: the relay did not write this message",
                }
            }
            td.number { @if let Some((_, attempts)) = error { (attempts) } @else { "–" } }
            td { (time::relative_ms(*sent_at, now)) }
            td.data { (json::line(data_of(detail), 120)) }
        }
    }
}
