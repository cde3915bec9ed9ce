//! The operations on discarded records.
//!
//! Invariant: an object is deleted only after the bus has accepted every message in it, and the queues of the projector and the
//! reactor every changed aggregate. No message is sent after an unsent one.

use std::io;
use std::num::NonZeroU32;

use clap::Args;
use daybook_stream_relay::{Resend, ResendOutcome};
use serde::Serialize;

use crate::discarded_objects::{DiscardedObject, DiscardedObjects};
use crate::error::OperatorError;
use crate::messages::{MessageLabel, MessageOutcome, UnsentMessages};
use crate::queues::StackQueue;
use crate::stack::{CHANGES_QUEUE, REACTIONS_QUEUE, Stack};

/// Send the messages of discarded records, with the same ids and bytes, and delete the objects whose messages the bus accepted.
///
/// With read models or processes, the records also contain which aggregates have new events. They are sent to the queues of the
/// projector and of the reactor.
///
/// A dry run by default; `--yes` executes it. The objects are sent in the order of the stream, so the messages of an aggregate
/// are sent in their order. An object stays in the bucket if the bus rejects one of its messages, if one of its records cannot
/// be read, if it contains no records, or if it is of the snapshotter. Consumers that received a message before recognize it by
/// its message id.
#[derive(Clone, Debug, Args)]
pub struct DiscardedOptions {
    /// Only this object, by its key; can be repeated. Default: all.
    #[arg(long = "object", value_name = "KEY")]
    pub objects: Vec<String>,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Delete no object.
    #[arg(long)]
    pub keep: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
}

/// What became of an object, or of a message in it.
#[derive(Debug)]
pub enum Redriving<'a> {
    Message(MessageLabel, MessageOutcome),
    Deleted,
    Left(&'a str),
    WithoutMessages,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscardedCounts {
    pub dry_run: bool,
    pub messages: usize,
    pub sent: usize,
    pub rejected: usize,
    pub unsent: usize,
    pub deleted: usize,
    /// Aggregates with new events that were sent to the projector and the reactor, or would be.
    pub changed: usize,
    /// Objects of the snapshotter, which contain no messages.
    pub without_messages: usize,
    /// Objects that stay for another reason.
    pub left: usize,
}

pub async fn list(
    stack: &Stack,
    mut report: impl FnMut(&DiscardedObject) -> io::Result<()>,
) -> Result<(), OperatorError> {
    let objects = stack.discarded().await?;
    for key in objects.keys().await? {
        if stack.interrupt.is_cancelled() {
            break;
        }
        report(&objects.read(&key).await?)?;
    }
    Ok(())
}

/// Sends the messages of the objects in the order of the stream, and deletes the objects whose messages the bus accepted. Also
/// returns why messages are left, unless it was interrupted.
pub async fn redrive(
    stack: &Stack,
    options: &DiscardedOptions,
    report: impl FnMut(&DiscardedObject, Redriving<'_>) -> io::Result<()>,
) -> Result<(DiscardedCounts, Option<OperatorError>), OperatorError> {
    let resend = stack.bus(options.rate, options.yes).await?;
    let objects = stack.discarded().await?;
    let counts = DiscardedCounts { dry_run: !options.yes, ..DiscardedCounts::default() };
    let mut changes_queues = Vec::from_iter(stack.queue_if_set(CHANGES_QUEUE).await?);
    if stack.has_processes() {
        changes_queues.push(stack.queue(REACTIONS_QUEUE).await?);
    }
    let unsent = UnsentMessages::default();
    let mut redrive = Redrive { stack, options, objects, resend, changes_queues, report, counts, unsent };
    redrive.run().await?;
    let Redrive { counts, unsent, .. } = redrive;
    let unsent = unsent.into_result("the other objects are in the bucket; run it again".to_owned());
    Ok((counts, unsent.err().filter(|_| !stack.interrupt.is_cancelled())))
}

struct Redrive<'a, R> {
    stack: &'a Stack,
    options: &'a DiscardedOptions,
    objects: DiscardedObjects,
    resend: Resend,
    changes_queues: Vec<StackQueue>,
    report: R,
    counts: DiscardedCounts,
    unsent: UnsentMessages,
}

impl<R: FnMut(&DiscardedObject, Redriving<'_>) -> io::Result<()>> Redrive<'_, R> {
    async fn run(&mut self) -> Result<(), OperatorError> {
        let mut in_order = Vec::new();
        for key in self.objects.keys().await? {
            if self.options.objects.is_empty() || self.options.objects.contains(&key) {
                // Only the order is held: the objects may have more bytes than the memory.
                let object = self.objects.read(&key).await?;
                in_order.push((object.order(), key));
            }
            if self.stack.interrupt.is_cancelled() {
                break;
            }
        }
        in_order.sort();
        for (_, key) in in_order {
            // A message after an unsent one would overtake it.
            if self.stack.interrupt.is_cancelled() || self.unsent.any() {
                break;
            }
            let object = self.objects.read(&key).await?;
            self.send_object(&object).await?;
        }
        Ok(())
    }

    async fn send_object(&mut self, object: &DiscardedObject) -> Result<(), OperatorError> {
        let reason_to_stay = object.reason_to_stay().or_else(|| self.lacks_queue(object));
        if let Some(reason) = &reason_to_stay {
            self.counts.left += 1;
            (self.report)(object, Redriving::Left(reason))?;
        } else if object.rows().is_empty() && object.changed().is_empty() {
            self.counts.without_messages += 1;
            return Ok((self.report)(object, Redriving::WithoutMessages)?);
        }
        let rows = object.rows();
        self.counts.messages += rows.len();
        if !self.changes_queues.is_empty() {
            self.counts.changed += object.changed().len();
        }
        if !self.options.yes {
            let would_send = |row| Redriving::Message(MessageLabel::of(row), MessageOutcome::WouldSend);
            return Ok(rows.iter().map(would_send).try_for_each(|found| (self.report)(object, found))?);
        }
        let outcomes = self.resend.send(rows.to_vec(), self.stack.interrupt.cancelled()).await;
        let mut are_all_sent = true;
        let mut reported = Ok(());
        for (row, outcome) in rows.iter().zip(outcomes) {
            are_all_sent &= outcome == ResendOutcome::Sent;
            let outcome = self.unsent.count(outcome, (&mut self.counts.sent, &mut self.counts.rejected));
            let Some(outcome) = outcome else {
                self.counts.unsent += 1;
                continue;
            };
            reported =
                reported.and_then(|()| (self.report)(object, Redriving::Message(MessageLabel::of(row), outcome)));
        }
        for queue in &self.changes_queues {
            queue.send_changed(object.changed()).await?;
        }
        if are_all_sent && reason_to_stay.is_none() && !self.options.keep {
            self.objects.delete(&object.key).await?;
            self.counts.deleted += 1;
            reported = reported.and_then(|()| (self.report)(object, Redriving::Deleted));
        }
        Ok(reported?)
    }

    /// The reason why an object stays whose changed aggregates cannot be sent to a queue.
    fn lacks_queue(&self, object: &DiscardedObject) -> Option<String> {
        let count = object.changed().len();
        let lacks = count > 0 && self.changes_queues.is_empty();
        let set = "CHANGES_QUEUE_URL, and REACTOR and REACTIONS_QUEUE_URL with processes";
        lacks.then(|| format!("it contains {count} changed aggregates: set {set}"))
    }
}
