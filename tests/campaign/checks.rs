//! The checks at the end of a schedule.

use std::collections::{BTreeMap, BTreeSet};

use daybook_local_aws::messaging::Bus;
use daybook_table::{AggregateKey, keys};
use serde_json::Value;

use crate::ledger::plain;
use crate::log::Log;
use crate::requests::{Attempt, RequestKey, WriteResult, Written, messages};
use crate::services::Effect;
use crate::stream::{CampaignMessage, Content, MessageKind, Stream, message};

/// The rows of each aggregate.
pub(crate) type Rows = BTreeMap<AggregateKey, Vec<Value>>;

/// Checks that every outcome that a writer received is true, and that every event stream is complete.
pub(crate) fn check_table(rows: &Rows, attempts: &[Attempt], log: &Log) {
    for (key, rows) in rows {
        check_stream(key, rows, log);
        let of_sk = |sk: String| rows.iter().find(|row| row["sk"]["S"] == sk.as_str());
        for attempt in attempts.iter().filter(|attempt| attempt.key == *key) {
            let events = attempt.events.iter().map(|(number, id)| {
                of_sk(format!("EVENT#{number:012}")).is_some_and(|row| row["eventId"]["S"] == id.as_str())
            });
            let messages = attempt.messages.iter().map(|message| {
                of_sk(format!("OUTBOX#{:012}#{}", message.seq_num, message.index)).is_some_and(|row| {
                    row["messageId"]["S"] == message.message_id.to_string()
                        && row["detail"]["S"] == message.detail.text()
                        && row["messageType"]["S"] == message.message_type.as_str()
                        && row["messageSeq"]["N"].as_str() == Some(message.message_seq.to_string().as_str())
                })
            });
            let stored: BTreeSet<bool> = events.chain(messages).collect();
            let right = match attempt.result {
                WriteResult::Stored => stored == BTreeSet::from([true]),
                WriteResult::NotStored => stored == BTreeSet::from([false]),
                WriteResult::Unknown => stored.len() == 1,
            };
            log.expect(right, || format!("{key}: {attempt:?}, and stored is {stored:?}"));
        }
    }
}

/// Checks that each request with an idempotency key took effect at most once, and that its response is stored exactly
/// if it did. A request without an event only stores its response.
pub(crate) fn check_responses(rows: &Rows, written: &Written, log: &Log) {
    let mut attempts: BTreeMap<RequestKey, Vec<&str>> = BTreeMap::new();
    for attempt in &written.attempts {
        if let Some(request) = attempt.request() {
            attempts.entry(request).or_default().push(attempt.first_event());
        }
    }
    let requests: BTreeSet<_> = attempts.keys().chain(written.answers.keys()).collect();
    for request in requests {
        let (key, idempotency) = request;
        let rows = &rows[key];
        let is_stored = |id: &&&str| rows.iter().any(|row| row["eventId"]["S"] == **id);
        let events: Vec<_> = attempts.get(request).into_iter().flatten().filter(is_stored).collect();
        log.expect(events.len() <= 1, || format!("{key}: request {idempotency} took effect in {events:?}"));
        let sk = keys::idempotency_sk(idempotency);
        let stored = rows.iter().find(|row| row["sk"]["S"] == sk).and_then(|row| row["body"]["S"].as_str());
        let answer = written.answers.get(request).map(|answer| answer.body.as_str());
        log.expect(answer.is_none() || stored == answer, || {
            format!("{key}: request {idempotency} was answered {answer:?}, and stored is {stored:?}")
        });
        let of_event = stored.filter(|body| !body.starts_with("no"));
        log.expect(of_event == events.first().map(|id| **id), || {
            format!("{key}: request {idempotency} appended {events:?}, and its stored response is {stored:?}")
        });
    }
}

/// Checks that event numbers have no gap or duplicate, and that the metadata agree with them.
fn check_stream(key: &AggregateKey, rows: &[Value], log: &Log) {
    let number = |row: &Value, name: &str| row[name]["N"].as_str().and_then(|number| number.parse::<u64>().ok());
    let with = |prefix: &'static str| {
        rows.iter().filter(move |row| row["sk"]["S"].as_str().is_some_and(|sk| sk.starts_with(prefix)))
    };
    let events: Vec<_> = with("EVENT#").collect();
    let numbers: Vec<_> = events.iter().map(|row| number(row, "seqNum")).collect();
    let gapless: Vec<_> = (1..=events.len() as u64).map(Some).collect();
    log.expect(numbers == gapless, || format!("{key}: events {numbers:?}"));

    for name in ["eventId", "occurredAt"] {
        let values: Vec<_> = events.iter().map(|row| row[name]["S"].as_str()).collect();
        log.expect(values.is_sorted(), || format!("{key}: {name} runs backwards: {values:?}"));
    }

    let mut messages: Vec<_> = with("OUTBOX#").map(|row| (number(row, "seqNum"), number(row, "messageSeq"))).collect();
    messages.sort_unstable_by_key(|&(_, seq)| seq);
    let in_order = messages.is_sorted_by_key(|&(event, _)| event);
    let gapless: Vec<_> = (1..=messages.len() as u64).map(Some).collect();
    let numbers: Vec<_> = messages.iter().map(|&(_, seq)| seq).collect();
    log.expect(numbers == gapless && in_order, || format!("{key}: messages {messages:?}"));
    for row in &events {
        let until = messages.iter().filter(|(event, _)| *event <= number(row, "seqNum")).count() as u64;
        log.expect(number(row, "messageSeq") == Some(until), || format!("{key}: {row} after {until} messages"));
    }

    let metadata = with("#METADATA").next();
    let current = metadata.and_then(|row| Some((number(row, "currentSeqNum")?, number(row, "messageSeq")?)));
    let expected = (!events.is_empty()).then_some((events.len() as u64, messages.len() as u64));
    log.expect(current == expected, || format!("{key}: metadata {current:?}, expected {expected:?}"));
}

/// The guarantees of the stream and its mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarantees {
    /// Whether first deliveries keep the order of each aggregate: the stream keeps it, and batches are delivered one by
    /// one.
    pub(crate) order: bool,
    /// Whether the mapping's filter drops records without the keys of an outbox row.
    pub(crate) filtered: bool,
}

/// Checks that no message is lost, invented, changed or overtaken.
pub(crate) fn check_messages(stream: &Stream, effects: &[Effect], guarantees: Guarantees, log: &Log) {
    let delivered: BTreeSet<_> = effects.iter().filter_map(index_of_delivered).collect();
    for (index, message) in stream.messages.iter().enumerate() {
        let settled = effects.iter().any(|effect| match effect {
            Effect::Delivered(of) | Effect::DeadLettered(of) | Effect::Discarded(of) => *of == index,
            Effect::DeadLetteredRaw(record) | Effect::DiscardedRaw(record) => is_record_of(record, message),
            Effect::Resent(_) => false,
        });
        log.expect(settled, || format!("message {} of {} is lost", message.seq, message.pk));
        let possible = message.kind == MessageKind::Sound || !delivered.contains(&index);
        log.expect(possible, || format!("message {} of {} cannot have been delivered", message.seq, message.pk));
    }
    let poison = stream.shards.iter().flat_map(|shard| &shard.records).filter_map(|(_, entry)| match &entry.content {
        Content::Poison(Some(_)) => Some(entry),
        Content::Poison(None) if !guarantees.filtered => Some(entry),
        _ => None,
    });
    for entry in poison {
        let keys = &entry.record.json()["dynamodb"]["Keys"];
        let settled = effects.iter().any(|effect| match effect {
            Effect::DeadLetteredRaw(record) | Effect::DiscardedRaw(record) => record["dynamodb"]["Keys"] == *keys,
            _ => false,
        });
        log.expect(settled, || format!("the record of {keys} is lost"));
    }
    if guarantees.order {
        check_order(&stream.messages, effects, log);
    }
}

fn index_of_delivered(effect: &Effect) -> Option<usize> {
    if let Effect::Delivered(index) = effect { Some(*index) } else { None }
}

/// The message that arrived at the bus, from the relay or from an operator.
fn index_of_arrived(effect: &Effect) -> Option<usize> {
    if let Effect::Delivered(index) | Effect::Resent(index) = effect { Some(*index) } else { None }
}

/// Whether a record is that of an unreadable message. A damaged row is identified by its keys, because its id may be
/// damaged.
fn is_record_of(record: &Value, of: &CampaignMessage) -> bool {
    let image = &record["dynamodb"]["NewImage"];
    of.kind == MessageKind::Unreadable && *image == of.image && message_keys(image) == message_keys(&of.image)
}

fn message_keys(image: &Value) -> [&Value; 2] {
    [&image["pk"], &image["sk"]]
}

/// Checks that every arrived message equals the committed one, byte for byte, each time.
pub(crate) fn check_bytes(messages: &[CampaignMessage], effects: &[Effect], bus: &Bus, log: &Log) {
    let arrived = bus.delivered();
    let indices: Vec<_> = effects.iter().filter_map(index_of_arrived).collect();
    log.expect(arrived.len() == indices.len(), || {
        format!("{} arrived, {} were recorded", arrived.len(), indices.len())
    });
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    for (entry, &index) in arrived.iter().zip(&indices) {
        *times.entry(index).or_default() += 1;
        let message = &messages[index];
        let row = plain(&message.committed);
        let aggregate = message.pk.trim_start_matches("AGGREGATE#").replacen('#', "/", 1);
        let right = entry.detail == row["detail"]
            && entry.detail_type == row["messageType"]
            && entry.resources == [aggregate]
            && entry.time.as_deref() == row["occurredAt"].as_str()
            && entry.trace_header.as_deref() == row["traceHeader"].as_str()
            && (entry.source.as_str(), entry.event_bus_name.as_str()) == ("daybook", "main");
        log.expect(right, || format!("{entry:?} of {row}"));
    }
    log.count_times("message delivered", times.len() as u64);
    log.count_times("message delivered again", times.values().map(|times| times - 1).sum());
}

/// Checks that first deliveries are in the order of `messageSeq`, except after a message that was dead-lettered or
/// discarded before.
fn check_order(messages: &[CampaignMessage], effects: &[Effect], log: &Log) {
    // By message, the position of its first result.
    let mut first: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, effect) in effects.iter().enumerate() {
        match effect {
            Effect::Delivered(index) | Effect::DeadLettered(index) | Effect::Discarded(index) => {
                first.entry(*index).or_insert(at);
            }
            Effect::Resent(_) => {}
            Effect::DeadLetteredRaw(record) | Effect::DiscardedRaw(record) => {
                if let Some(index) = messages.iter().position(|message| is_record_of(record, message)) {
                    first.entry(index).or_insert(at);
                }
            }
        }
    }
    let mut by_aggregate: BTreeMap<&str, Vec<(u64, usize, usize)>> = BTreeMap::new();
    for (index, message) in messages.iter().enumerate() {
        if let Some(&at) = first.get(&index) {
            by_aggregate.entry(&message.pk).or_default().push((message.seq, at, index));
        }
    }
    for (pk, queue) in &mut by_aggregate {
        queue.sort_unstable();
        for (seq, at, index) in queue.iter() {
            let is_delivery = effects[*at] == Effect::Delivered(*index);
            let overtaken = queue.iter().find(|(earlier, at_of_earlier, _)| earlier < seq && at_of_earlier > at);
            if let (true, Some((earlier, ..))) = (is_delivery, overtaken) {
                log.violation(format!("message {seq} of {pk} overtook message {earlier}"));
            }
        }
    }
}

/// Checks that the stream contains every committed row, with the content that its writer decided.
pub(crate) fn check_commits(recorded: &[Value], attempts: &[Attempt], log: &Log) {
    let decided = messages(attempts);
    let in_stream: Vec<_> = recorded.iter().filter_map(message).collect();
    for message in &in_stream {
        let same = decided.get(&message.id).is_some_and(|decided| {
            decided.message_seq == message.seq && message.image["detail"]["S"] == decided.detail.text()
        });
        log.expect(same, || format!("no writer decided {message:?}"));
    }
    let ids: BTreeSet<_> = in_stream.iter().map(|message| message.id.as_str()).collect();
    for attempt in attempts.iter().filter(|attempt| attempt.result == WriteResult::Stored) {
        let complete = attempt.messages.iter().all(|message| ids.contains(message.message_id.to_string().as_str()));
        log.expect(complete, || format!("{attempt:?} was acknowledged, and its messages are not in the stream"));
    }
}
