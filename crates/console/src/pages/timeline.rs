//! The events of an aggregate with their messages, the latest first, and what became of these: they are on the bus, in a
//! dead-letter queue, or still in the outbox.

use std::collections::BTreeMap;

use daybook_admin::{AdminCalls, EventMessages, IndexEntry};
use daybook_decider::{Meta, RecordedEvent, personal};
use daybook_local_aws::messaging::{FoundMessage, MessageQuery, TargetOutcome, TargetRecord};
use daybook_stream_relay::DeadLetter;
use daybook_table::{AggregateKey, OutboxItem};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::console::Console;
use crate::frame::{Failure, copy_button};
use crate::stack::MessageMetadata;
use crate::{json, paths, time};

/// Maximum bytes of an event's data in the timeline.
const MAX_LINE: usize = 240;

pub(crate) struct Timeline<'a> {
    pub(crate) key: &'a AggregateKey,
    pub(crate) events: &'a [RecordedEvent],
    pub(crate) fates: &'a BTreeMap<u64, EventFates>,
    /// The version of the latest snapshot.
    pub(crate) snapshot: Option<u64>,
    pub(crate) shown: u64,
    /// The time in the stack.
    pub(crate) now: Timestamp,
}

impl Timeline<'_> {
    pub(crate) fn markup(&self) -> Markup {
        html! {
            ol.events reversed {
                @for event in self.events.iter().rev() { (self.event(event)) }
            }
        }
    }

    fn event(&self, event: &RecordedEvent) -> Markup {
        let nothing = EventFates::default();
        let fates = self.fates.get(&event.seq_num).unwrap_or(&nothing);
        let is_shown = event.seq_num == self.shown;
        html! {
            li data-row aria-current=[is_shown.then_some("true")] value=(event.seq_num) {
                div.event {
                    a.seq href=(paths::version(self.key, event.seq_num)) title="Show the state at this version" { (event.seq_num) }
                    div {
                        p.what {
                            a.name href=(paths::version(self.key, event.seq_num)) { (event.event_type) }
                            @if self.snapshot == Some(event.seq_num) { span.tag title="A snapshot of this version is stored" { "snapshot" } }
                            span.when { @if let Some(actor) = &event.meta.actor { "by " (actor) " · " } (time::relative(event.occurred_at, self.now)) }
                        }
                        p.data { (json::line(&personal::shown(event.data.text()), MAX_LINE)) }
                        @if !event.together.is_empty() { p.hint { "together with " (together(event)) } }
                        (messages(fates))
                    }
                }
            }
        }
    }
}

fn messages(fates: &EventFates) -> Markup {
    let is_empty = fates.messages.is_empty() && fates.gone == 0 && fates.unreadable.is_empty();
    html! {
        @if !is_empty {
            ul.messages {
                @for (fate, row) in &fates.messages {
                    li { span.message { (row.message_type) } " " (fate_markup(fate)) }
                }
                @if fates.gone > 0 {
                    li.hint { (fates.gone) @if fates.gone == 1 { " message" } @else { " messages" } ", no longer in the outbox" }
                }
                @for reason in &fates.unreadable { li.bad { "A message that cannot be read: " (reason) } }
            }
        }
    }
}

fn fate_markup(fate: &Fate) -> Markup {
    html! {
        @match fate {
            Fate::OnBus(messages) => {
                @if let [first, ..] = messages.as_slice() {
                    a.fate.good href={ (paths::page("/bus")) "/" (first.position) } {
                        "on the bus"
                        @if let Some(after) = time_to_bus(first) { " after " (time::span_text(after)) }
                    }
                }
                @if messages.len() > 1 { span.hint title="Consumers recognize repeated messages by their id." { " " (messages.len()) " times" } }
                @let targets: Vec<_> = messages.iter().flat_map(|message| &message.targets).collect();
                @if !targets.is_empty() { ul.messages { @for target in targets { li { (target_markup(target)) } } } }
            }
            Fate::DeadLettered { id, code } => a.fate.bad href={ (paths::page("/dead-letters")) "#m-" (id) } {
                "in the dead-letter queue: " (code)
            },
            Fate::InOutbox => span.fate.hint title="AWS stores no list of what the bus accepted. The page Stream shows whether the relay is behind, and Dead-letter messages shows what it could not send." { "in the outbox" },
            Fate::Waiting => a.fate.warn href=(paths::page("/stream")) title="It is in the outbox alone: the relay has not sent it, or somebody deleted it from the dead-letter queue." { "not on the bus yet" },
        }
    }
}

/// The time from the event to the bus, in milliseconds, if the stack recorded it.
fn time_to_bus(message: &FoundMessage) -> Option<i64> {
    let occurred_at = MessageMetadata::of_detail(&message.entry.detail).occurred_at.parse::<Timestamp>().ok()?;
    Some(message.entry.accepted_at?.cast_signed() - occurred_at.as_millisecond())
}

/// What the consumer behind the queue of a rule did with a message, and how long that took.
fn target_markup(target: &TargetRecord) -> Markup {
    let TargetRecord { queue, sent_at, receives, first_received_at, ended_at, outcome, .. } = target;
    let span = |from: u64, to: u64| time::span_text(to.saturating_sub(from).cast_signed());
    let waited = first_received_at.map(|received| span(*sent_at, received));
    let took = ended_at.zip(*first_received_at).map(|(ended, received)| span(received, ended));
    html! {
        "queue " span.message { (queue) } " "
        @match outcome {
            Some(TargetOutcome::Processed) => span.fate.good {
                "processed" @if let Some(took) = &took { " in " (took) }
            },
            Some(TargetOutcome::DeadLettered) => a.fate.bad href=(paths::page("/dead-letters")) {
                "in its dead-letter queue" @if let Some(took) = &took { " after " (took) }
            },
            None if *receives == 0 => span.fate.warn title="No consumer has received it." { "waiting" },
            None => span.fate.warn title="A consumer has received it, and has not deleted it." { "being processed, or waiting for a retry" },
        }
        @if let Some(waited) = waited {
            span.hint {
                ", received " @if *receives > 1 { (receives) " times, first " } "after " (waited)
            }
        }
    }
}

/// Who sent the command of an event, and why.
pub(crate) fn event_details(console: &Console, event: &RecordedEvent) -> Markup {
    // The pages that these ids lead to need what reached the bus.
    let is_linked = console.is_local();
    let Meta { actor, source_ip, correlation_id, causation_id, traceparent, .. } = &event.meta;
    html! {
        dl.details {
            dt { "Event" } dd { (event.event_type) span.hint { " version " (event.event_version) } }
            dt { "At" } dd { (time::exact(event.occurred_at)) }
            dt { "Id" } dd { code { (event.event_id) } (copy_button(event.event_id)) }
            dt { "By" } dd { @match actor { Some(actor) => (actor), None => span.hint { "nobody: the API has no authorizer" } } }
            @if let Some(address) = source_ip { dt { "From" } dd { code { (address) } } }
            @if let Some(id) = correlation_id {
                dt { "Correlation" }
                dd { @if is_linked { a href=(paths::correlation(id)) { code { (id) } } } @else { code { (id) } } (copy_button(id)) }
            }
            @if let Some(id) = causation_id {
                dt { "Caused by" }
                dd {
                    @if is_linked { a href=(paths::with_query(&paths::page("/bus"), &[("containing", id)])) { code { (id) } } }
                    @else { code { (id) } }
                    (copy_button(id))
                }
            }
            @if !event.together.is_empty() { dt { "Together with" } dd { (together(event)) } }
            @if let Some(trace) = traceparent { dt { "Trace" } dd { code { (trace) } (copy_button(trace)) } }
            dt { "Data" }
            dd { (json::block(&personal::shown(event.data.text()))) }
        }
    }
}

/// Links to the first events of other aggregates that were appended in the same transaction.
fn together(event: &RecordedEvent) -> Markup {
    html! {
        @for (index, other) in event.together.iter().enumerate() {
            @if index > 0 { ", " }
            @match event_name(other) {
                Some((key, number)) => a href=(paths::version(&key, number)) { (key) " " (number) },
                None => (other),
            }
        }
    }
}

/// The aggregate and the number in `type/id@number`.
fn event_name(name: &str) -> Option<(AggregateKey, u64)> {
    let (key, number) = name.rsplit_once('@')?;
    Some((key.parse().ok()?, number.parse().ok()?))
}

#[derive(Debug)]
pub(crate) enum Fate {
    /// Each time that the bus accepted it.
    OnBus(Vec<FoundMessage>),
    /// With the queue's id of it, and the code with which the bus rejected it.
    DeadLettered { id: String, code: String },
    /// It is in the outbox alone.
    Waiting,
    /// It is in the outbox of a stack on AWS, where nothing shows whether the bus has accepted it.
    InOutbox,
}

#[derive(Default)]
pub(crate) struct EventFates {
    pub(crate) messages: Vec<(Fate, OutboxItem)>,
    /// The number of messages whose outbox rows have been deleted by their TTL.
    pub(crate) gone: usize,
    /// Why rows cannot be read.
    pub(crate) unreadable: Vec<String>,
}

/// The events, as the outbox is asked for their messages. `before` is the event before the first one, if it was read.
pub(crate) fn published(
    key: &AggregateKey,
    before: Option<&RecordedEvent>,
    events: &[RecordedEvent],
) -> Vec<IndexEntry> {
    let previous = std::iter::once(before).chain(events.iter().map(Some));
    let published = events.iter().zip(previous).map(|(event, previous)| IndexEntry {
        aggregate: key.clone(),
        seq_num: event.seq_num,
        event_id: event.event_id,
        message_seq: Some(event.message_seq),
        messages_before: previous
            .filter(|previous| previous.seq_num + 1 == event.seq_num)
            .map(|previous| previous.message_seq),
    });
    published.collect()
}

/// The messages of the events, by the number of the event. `before` is the event before the first one, if it was read.
pub(crate) async fn fates_of_events(
    console: &Console,
    key: &AggregateKey,
    before: Option<&RecordedEvent>,
    events: &[RecordedEvent],
) -> Result<BTreeMap<u64, EventFates>, Failure> {
    let published = published(key, before, events);
    if published.is_empty() {
        return Ok(BTreeMap::new());
    }
    let messages = console.store.admin().messages_of(&published).await?;
    let ids: Vec<_> = messages.iter().flat_map(|messages| &messages.rows).map(|row| row.message_id.clone()).collect();
    let is_local = console.is_local();
    let mut fates = if ids.is_empty() || !is_local { BTreeMap::new() } else { fates(console, key, ids).await? };
    let other = || if is_local { Fate::Waiting } else { Fate::InOutbox };
    let mut with_fate = |row: OutboxItem| (fates.remove(&row.message_id).unwrap_or_else(other), row);
    let of_event = |messages: EventMessages| EventFates {
        gone: messages.gone(),
        unreadable: messages.unreadable.iter().map(|row| format!("{row}: {}", row.reason)).collect(),
        messages: messages.rows.into_iter().map(&mut with_fate).collect(),
    };
    Ok(events.iter().map(|event| event.seq_num).zip(messages.into_iter().map(of_event)).collect())
}

async fn fates(console: &Console, key: &AggregateKey, ids: Vec<String>) -> Result<BTreeMap<String, Fate>, Failure> {
    let query = MessageQuery {
        aggregate: Some(key.to_string()),
        ids: Some(ids),
        with_dead_letters: true,
        ..MessageQuery::default()
    };
    let on_bus = console.stack.messages(query).await?;
    let mut fates = BTreeMap::new();
    for waiting in on_bus.dead_letters {
        if let Ok(DeadLetter { message: Some(row), error, .. }) = DeadLetter::read(&waiting.message.body) {
            let code = error.map(|error| error.code).unwrap_or_default();
            fates.insert(row.message_id, Fate::DeadLettered { id: waiting.message.message_id, code });
        }
    }
    for message in on_bus.messages {
        let message_id = MessageMetadata::of_detail(&message.entry.detail).message_id;
        match fates.get_mut(&message_id) {
            Some(Fate::OnBus(messages)) => messages.push(message),
            // A message that the bus accepted in the end is no dead letter, also if a copy of it still is.
            _ => drop(fates.insert(message_id, Fate::OnBus(vec![message]))),
        }
    }
    Ok(fates)
}
