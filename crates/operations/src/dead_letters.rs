//! The operations on the dead-letter queue: read, redrive, delete.
//!
//! Invariants:
//! - Whatever happens to the reports, messages that were sent are deleted from the queue and the others are put back.
//! - The messages in memory have up to `MAX_BYTES`; the next run sends the others.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use clap::Args;
use daybook_stream_relay::{DeadLetter, Resend};
use daybook_table::OutboxItem;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::OperatorError;
use crate::messages::{DeadLetterMessage, MessageFilter, MessageOutcome, UnsentMessages};
use crate::queue_reading::{NotSeen, QueueReader, QueueReading};
use crate::queues::StackQueue;
use crate::stack::{DEAD_LETTERS, Stack};

/// Maximum messages that are sent together. Then those that the bus accepted are deleted from the queue.
const SENT_TOGETHER: usize = 500;

/// A run that sends messages receives no more of them as soon as they have this many bytes.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Maximum messages that are deleted before their outcomes are reported.
const DELETED_TOGETHER: usize = 100;

pub struct ReadMessage<'a> {
    pub digest: &'a DeadLetterMessage,
    message: &'a Message,
}

/// Send messages of the dead-letter queue again, with the same ids and bytes, and delete from it those that the bus accepted.
///
/// A dry run by default; `--yes` executes it. The messages of an aggregate are sent in their order, as far as the run received
/// them. Messages that the bus rejects again stay in the queue. Messages that cannot be sent also stay there, such as a
/// message that contains an unreadable record. A run that ends early loses nothing: the next run repeats messages that
/// were sent but not yet deleted, and consumers recognize them by their message ids.
#[derive(Clone, Debug, Args)]
pub struct RedriveOptions {
    #[command(flatten)]
    pub filter: MessageFilter,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum number of messages that are read. Default: all.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RedriveCounts {
    dry_run: bool,
    pub would_send: usize,
    pub sent: usize,
    pub rejected: usize,
    /// Sent, but SQS did not delete them.
    pub not_deleted: usize,
    pub unsendable: usize,
    pub unsent: usize,
    #[serde(flatten)]
    pub not_seen: NotSeen,
}

pub struct Deletion {
    pub selected: usize,
    pub deleted: usize,
    pub not_deleted: usize,
    /// The ids of the filter that no message has.
    pub not_found: Vec<String>,
    pub not_seen: NotSeen,
}

/// All dead-letter messages that contain the same outbox message.
type Copies<'a> = &'a [DeadLetterMessage];

impl RedriveCounts {
    /// Whether every message was sent and deleted.
    pub fn is_clean(&self) -> bool {
        self.rejected + self.not_deleted + self.unsendable == 0 && !self.not_seen.any()
    }
}

impl ReadMessage<'_> {
    pub fn body(&self) -> &str {
        self.message.body.as_deref().unwrap_or_default()
    }

    pub fn receives(&self) -> u32 {
        let attributes = self.message.attributes.as_ref();
        let count = attributes.and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
        count.and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        let attributes = self.message.attributes.iter().flatten();
        let attributes: BTreeMap<_, _> = attributes.map(|(name, value)| (name.as_str(), value)).collect();
        let of_sender = self.message.message_attributes.iter().flatten().map(|(name, value)| {
            let value = json!({
                "dataType": value.data_type,
                "stringValue": value.string_value,
                "binaryValue": value.binary_value.as_ref().map(|bytes| bytes.as_ref()),
            });
            (name, value)
        });
        let of_sender: BTreeMap<_, _> = of_sender.collect();
        json!({
            "id": self.message.message_id, "body": self.message.body, "attributes": attributes,
            "messageAttributes": of_sender,
        })
    }
}

/// Reads the queue, and reports each selected message as it comes. Returns them in the order of sending. All messages stay in
/// the queue.
pub async fn read(
    stack: &Stack,
    filter: &MessageFilter,
    limit: Option<usize>,
    mut report: impl FnMut(ReadMessage<'_>) -> Result<(), OperatorError>,
) -> Result<QueueReading, OperatorError> {
    let queue = stack.queue(DEAD_LETTERS).await?;
    let reader = QueueReader::new(&queue, limit, stack);
    let read = reader.read(|digest, message| match filter.selects(digest) {
        true => report(ReadMessage { digest, message }).map(|()| true),
        false => Ok(true),
    });
    let mut reading = read.await?;
    queue.put_back(&reading.messages).await;
    reading.messages.retain(|message| filter.selects(message));
    reading.messages.sort_by_cached_key(DeadLetterMessage::order);
    Ok(reading)
}

/// Deletes the selected messages if `deletes`, and reports what becomes of each.
pub async fn delete(
    stack: &Stack,
    filter: &MessageFilter,
    deletes: bool,
    mut report: impl FnMut(&DeadLetterMessage, &MessageOutcome) -> io::Result<()>,
) -> Result<Deletion, OperatorError> {
    if *filter == MessageFilter::default() {
        let text = "no messages are selected: give their ids, or an option such as --unreadable or --error-code";
        return Err(OperatorError::Usage(text.to_owned()));
    }
    let queue = stack.queue(DEAD_LETTERS).await?;
    let reading = QueueReader::new(&queue, None, stack).read(|_, _| Ok(true)).await?;
    let is_selected = |message: &DeadLetterMessage| filter.selects(message);
    let (mut selected, others): (Vec<_>, _) = reading.messages.into_iter().partition(is_selected);
    selected.sort_by_cached_key(DeadLetterMessage::order);
    queue.put_back(&others).await;
    let is_missing = |id: &&String| !selected.iter().any(|message| message.has_id(id));
    let not_found = filter.ids.iter().filter(is_missing).cloned().collect();
    let mut deletion =
        Deletion { selected: selected.len(), deleted: 0, not_deleted: 0, not_found, not_seen: reading.not_seen };
    let (mut left, mut reported) = (selected.as_slice(), Ok(()));
    while deletes && reported.is_ok() && !left.is_empty() && !stack.interrupt.is_cancelled() {
        let (batch, rest) = left.split_at(left.len().min(DELETED_TOGETHER));
        left = rest;
        let failed = queue.delete(batch).await;
        for message in batch {
            let failure = failed.iter().find(|(failed, _)| failed.sqs_id == message.sqs_id);
            let (count, outcome) = match failure {
                Some((_, reason)) => (&mut deletion.not_deleted, MessageOutcome::NotDeleted(reason.clone())),
                None => (&mut deletion.deleted, MessageOutcome::Deleted),
            };
            *count += 1;
            reported = reported.and_then(|()| report(message, &outcome));
        }
    }
    queue.put_back(left).await;
    if !deletes {
        reported = left.iter().try_for_each(|message| report(message, &MessageOutcome::WouldDelete));
    }
    reported?;
    Ok(deletion)
}

/// Sends the selected messages again, deletes those that the bus accepted, and reports what becomes of each. Also returns why
/// messages are left that could be sent.
pub async fn redrive(
    stack: &Stack,
    options: &RedriveOptions,
    report: impl FnMut(&DeadLetterMessage, &MessageOutcome) -> io::Result<()>,
) -> Result<(RedriveCounts, Option<OperatorError>), OperatorError> {
    let resend = stack.bus(options.rate, options.yes).await?;
    redrive_queue(stack, options, stack.queue(DEAD_LETTERS).await?, resend, report).await
}

/// The same for the messages of `queue`, which are sent with `resend`.
pub async fn redrive_queue(
    stack: &Stack,
    options: &RedriveOptions,
    queue: StackQueue,
    resend: Resend,
    report: impl FnMut(&DeadLetterMessage, &MessageOutcome) -> io::Result<()>,
) -> Result<(RedriveCounts, Option<OperatorError>), OperatorError> {
    let counts = RedriveCounts { dry_run: !options.yes, ..RedriveCounts::default() };
    let (rows, unsent) = (BTreeMap::new(), UnsentMessages::default());
    let mut redrive = Redrive { stack, queue, resend, counts, rows, unsent, report, report_error: None };
    let messages = redrive.receive(options).await?;
    let messages: Vec<_> = messages.chunk_by(DeadLetterMessage::is_copy_of).collect();
    let failure = match options.yes {
        true => redrive.send(&messages).await,
        false => {
            redrive.queue.put_back(&messages.concat()).await;
            messages.iter().for_each(|copies| redrive.report(&copies[0], &MessageOutcome::WouldSend));
            redrive.counts.would_send = messages.len();
            None
        }
    };
    redrive.report_error.map_or(Ok(()), Err)?;
    Ok((redrive.counts, failure))
}

struct Redrive<'a, R> {
    stack: &'a Stack,
    queue: StackQueue,
    resend: Resend,
    counts: RedriveCounts,
    /// The rows in the selected messages, by SQS's id; none in a dry run.
    rows: BTreeMap<String, OutboxItem>,
    unsent: UnsentMessages,
    report: R,
    /// The error of a report. After it, nothing more is reported.
    report_error: Option<io::Error>,
}

impl<R: FnMut(&DeadLetterMessage, &MessageOutcome) -> io::Result<()>> Redrive<'_, R> {
    /// Receives the selected messages, in the order of sending. Reports messages that cannot be sent, and puts them
    /// back.
    async fn receive(&mut self, options: &RedriveOptions) -> Result<Vec<DeadLetterMessage>, OperatorError> {
        let (rows, filter) = (&mut self.rows, &options.filter);
        let sending_rate = options.yes.then_some(options.rate);
        let reader = QueueReader { sending_rate, ..QueueReader::new(&self.queue, options.limit, self.stack) };
        let mut bytes = 0;
        let read = reader.read(|digest, message| {
            let body = message.body.as_deref().filter(|_| options.yes && filter.selects(digest));
            if let Some(row) = body.and_then(|body| DeadLetter::read(body).ok()?.message) {
                bytes += row.detail.len();
                rows.insert(digest.sqs_id.clone(), row);
            }
            Ok(bytes < MAX_BYTES)
        });
        let reading = read.await?;
        self.counts.not_seen = reading.not_seen;
        let is_selected = |message: &DeadLetterMessage| filter.selects(message);
        let (mut selected, others): (Vec<_>, _) = reading.messages.into_iter().partition(is_selected);
        self.queue.put_back(&others).await;
        selected.sort_by_cached_key(DeadLetterMessage::order);
        let unsendable = selected.split_off(selected.partition_point(|message| message.content.is_ok()));
        self.queue.put_back(&unsendable).await;
        self.counts.unsendable = unsendable.len();
        unsendable.iter().for_each(|message| self.report(message, &MessageOutcome::Unsendable));
        Ok(selected)
    }

    /// Sends the messages, deletes those that the bus accepted, and puts the others back. Returns why some are left.
    async fn send(&mut self, messages: &[Copies<'_>]) -> Option<OperatorError> {
        let (mut done, mut left) = (0, Vec::new());
        for batch in messages.chunks(SENT_TOGETHER) {
            // A message after an unsent one would overtake it, and without reports nobody learns of the sent messages.
            if self.unsent.any() || self.report_error.is_some() || self.stack.interrupt.is_cancelled() {
                left.extend(batch.concat());
                continue;
            }
            left.extend(self.send_batch(batch).await);
            done += batch.len();
            let all = messages.len();
            (self.stack.progress)(Some(done as f64 / all as f64), format!("{done} of {all} messages"));
        }
        self.queue.put_back(&left).await;
        self.counts.unsent = messages.len() - self.counts.sent - self.counts.rejected;
        if self.stack.interrupt.is_cancelled() {
            return None;
        }
        let unsent = std::mem::take(&mut self.unsent);
        unsent.into_result("the other messages are in the queue; run it again".to_owned()).err()
    }

    /// Returns the messages that were not sent.
    async fn send_batch(&mut self, batch: &[Copies<'_>]) -> Vec<DeadLetterMessage> {
        let row = |copies: &Copies<'_>| self.rows.remove(&copies[0].sqs_id).expect("it was read with the message");
        let rows = batch.iter().map(row).collect();
        let outcomes = self.resend.send(rows, self.stack.interrupt.cancelled()).await;
        let (mut sent, mut left) = (Vec::new(), Vec::new());
        for (copies, outcome) in batch.iter().zip(outcomes) {
            let outcome = self.unsent.count(outcome, (&mut self.counts.sent, &mut self.counts.rejected));
            let is_sent = outcome == Some(MessageOutcome::Sent);
            if is_sent { &mut sent } else { &mut left }.extend_from_slice(copies);
            outcome.iter().for_each(|outcome| self.report(&copies[0], outcome));
        }
        for (message, reason) in self.queue.delete(&sent).await {
            self.counts.not_deleted += 1;
            self.report(&message, &MessageOutcome::SentNotDeleted(reason));
        }
        left
    }

    /// Reports the outcome of a message, unless a report failed before.
    fn report(&mut self, message: &DeadLetterMessage, outcome: &MessageOutcome) {
        if self.report_error.is_none() {
            self.report_error = (self.report)(message, outcome).err();
        }
    }
}
