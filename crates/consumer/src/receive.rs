//! The messages of one aggregate: applies those whose turn has come, and stores the others.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::consumer::Consumer;
use crate::draft::{Draft, reads};
use crate::error::{HandleError, TableError};
use crate::items::PositionItem;
use crate::message::{AggregateId, BusMessage, MessageMetadata, Number};
use crate::order::{Messages, next_messages};
use crate::rows::now;
use crate::table::{ConsumerTable, Pauses, Waiting};

/// Maximum messages that are applied in one transaction.
const MAX_APPLIED: usize = 50;

/// Maximum transactions in a row that fail because of other writers, or whose result is unknown.
const MAX_RETRIES: u32 = 12;

/// Why messages must be delivered again.
const TIME_IS_UP: &str = "the time of the invocation is up";

/// The numbers of messages that were applied, stored and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The number of messages that were applied, also of those that had waited.
    pub(crate) applied: u64,
    /// The number of received messages that had been applied or skipped before.
    pub(crate) duplicates: Option<u64>,
    /// The number of messages that were stored because their turn has not come.
    pub(crate) stored: u64,
    pub(crate) failed: u64,
    /// The number of applied messages that turned out to be of lost events.
    pub(crate) lost: u64,
    /// The ids of the messages that must be delivered again.
    pub(crate) retry: BTreeSet<String>,
}

/// A change of a position that an operator requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PositionChange {
    /// Forgets failed attempts.
    Resume,
    Skip(Number),
}

pub(crate) struct Receiver<'a, C> {
    pub(crate) consumer: &'a C,
    pub(crate) table: &'a ConsumerTable,
    pub(crate) aggregate: &'a AggregateId,
    /// The time until which transactions begin.
    pub(crate) cutoff: Instant,
}

/// The result of a round of reads and one transaction.
#[derive(Debug, PartialEq, Eq)]
enum Round {
    /// Nothing is left to do.
    Finished,
    /// Something was written, and more is left to do.
    Continues,
    /// The round must be repeated.
    Contended,
}

impl<C: Consumer> Receiver<'_, C> {
    /// Changes the position, if requested, and then applies or stores the messages.
    pub(crate) async fn receive(
        &self,
        change: Option<PositionChange>,
        messages: &Messages,
    ) -> Result<Received, TableError> {
        let (mut received, mut change) = (Received::default(), change);
        let (mut retries, mut pauses) = (0, Pauses::until(self.cutoff));
        loop {
            if Instant::now() >= self.cutoff {
                return Err(unavailable(TIME_IS_UP));
            }
            let position = self.table.position(self.aggregate).await?;
            let round = match change {
                Some(requested) => self.change(position, requested).await?,
                None => self.round(position, messages, &mut received).await?,
            };
            match round {
                Round::Finished if change.is_none() => return Ok(received),
                Round::Finished => change = None,
                Round::Continues => (retries, pauses) = (0, Pauses::until(self.cutoff)),
                Round::Contended if retries == MAX_RETRIES => return Err(unavailable("other writers were faster")),
                Round::Contended if pauses.wait().await => retries += 1,
                Round::Contended => return Err(unavailable(TIME_IS_UP)),
            }
        }
    }

    fn draft(&self, position: PositionItem) -> Draft<'_> {
        Draft::new(C::NAME, self.aggregate, position, now().to_string())
    }

    async fn change(&self, position: PositionItem, change: PositionChange) -> Result<Round, TableError> {
        let last = position.number();
        let mut draft = self.draft(position);
        match change {
            PositionChange::Resume => draft.forget_failures(),
            PositionChange::Skip(through) if through > last => draft.skip(through),
            PositionChange::Skip(_) => {}
        }
        self.write(&draft).await
    }

    /// Applies and stores what one transaction holds.
    async fn round(
        &self,
        position: PositionItem,
        messages: &Messages,
        received: &mut Received,
    ) -> Result<Round, TableError> {
        let last = position.number();
        let Some(waiting) = self.waiting(&position).await? else { return Ok(Round::Contended) };
        received.duplicates.get_or_insert(messages.keys().filter(|number| **number <= last).count() as u64);
        self.check_ids(&position, &waiting, messages, received);
        let mut all = messages.clone();
        all.extend(waiting.messages.clone());

        let mut draft = self.draft(position);
        // The request of an operator is not repeated as a delivery is, so its attempt is the last one.
        let attempts = if messages.is_empty() { C::MAX_ATTEMPTS } else { draft.position.attempts + 1 };
        let (failure, is_full) = self.apply_next(&mut draft, &all, &waiting, attempts).await?;
        let (stored, has_rest) = self.store_rest(&mut draft, &all, &waiting, received).await?;
        if !draft.has_changes() {
            return Ok(Round::Finished);
        }
        if self.write(&draft).await? == Round::Contended {
            return Ok(Round::Contended);
        }
        received.applied += draft.applied;
        received.stored += stored;
        self.report(&draft, last, failure, messages, received);
        let continues = is_full || has_rest || (draft.applied > 0 && waiting.has_more);
        Ok(if continues { Round::Continues } else { Round::Finished })
    }

    /// The first messages that wait; `None` if a transaction that stores or removes some is only partly visible.
    async fn waiting(&self, position: &PositionItem) -> Result<Option<Waiting>, TableError> {
        if position.waiting == 0 {
            return Ok(Some(Waiting::default()));
        }
        let waiting = self.table.waiting(self.aggregate, position.epoch).await?;
        let is_complete = waiting.has_more || waiting.messages.len() as u64 == position.waiting;
        Ok(is_complete.then_some(waiting))
    }

    /// Applies the next messages, as many as one transaction holds. Returns the message that cannot be applied, after this
    /// number of attempts, and whether more messages may be next.
    async fn apply_next<'m>(
        &self,
        draft: &mut Draft<'_>,
        all: &'m Messages,
        waiting: &Waiting,
        attempts: u32,
    ) -> Result<(Option<(&'m BusMessage, HandleError)>, bool), TableError> {
        if draft.position.attempts >= C::MAX_ATTEMPTS {
            return Ok((None, false));
        }
        let mut next = next_messages(draft.position.number(), all);
        let mut is_full = next.len() > MAX_APPLIED;
        next.truncate(MAX_APPLIED);
        // If `reads` fails for a message, `apply` returns the error below.
        let keys: BTreeSet<_> =
            next.iter().flat_map(|message| reads(self.consumer, message).unwrap_or_default()).collect();
        let rows = self.table.rows(keys, self.cutoff).await?;
        for message in next {
            let mut with = draft.clone();
            let applied = with.apply(self.consumer, message, &rows, waiting.messages.contains_key(&message.number()));
            let error = match (applied, with.excess()) {
                (Ok(()), None) => {
                    *draft = with;
                    continue;
                }
                (Ok(()), Some(excess)) => HandleError::new(excess),
                (Err(error), _) => error,
            };
            // The messages before it are written first. Then it is attempted in a transaction of its own.
            if draft.applied > 0 {
                is_full = true;
                break;
            }
            draft.fail(attempts, &error);
            return Ok((Some((message, error)), false));
        }
        Ok((None, is_full))
    }

    /// Stores the messages whose turn has not come, and deletes stored messages whose turn has passed. Returns the
    /// number of the former, and whether the transaction cannot hold them all.
    async fn store_rest<'m>(
        &self,
        draft: &mut Draft<'m>,
        all: &'m Messages,
        waiting: &Waiting,
        received: &mut Received,
    ) -> Result<(u64, bool), TableError> {
        let (reached, mut stored) = (draft.position.number(), 0);
        for (&number, message) in all {
            let is_stored = waiting.messages.contains_key(&number);
            // It waits already, or its turn has passed and it has never waited.
            if is_stored == (number > reached) {
                continue;
            }
            let mut with = draft.clone();
            if is_stored {
                with.remove(number);
            } else if let Err(bytes) = with.store(message) {
                let MessageMetadata { message_id, message_seq, .. } = &message.metadata;
                tracing::error!(
                    aggregate = %self.aggregate, message_seq, bytes,
                    "a message is too large to be stored until its turn comes, so the queue has to store it"
                );
                received.retry.insert(message_id.clone());
                continue;
            } else if waiting.has_more && self.table.is_waiting(self.aggregate, number).await? {
                continue;
            }
            if with.excess().is_some() {
                return Ok((stored, true));
            }
            stored += u64::from(!is_stored);
            *draft = with;
        }
        Ok((stored, false))
    }

    async fn write(&self, draft: &Draft<'_>) -> Result<Round, TableError> {
        if !draft.has_changes() {
            return Ok(Round::Finished);
        }
        let is_written = self.table.write(draft.writes()).await?;
        Ok(if is_written { Round::Finished } else { Round::Contended })
    }

    /// Reports messages that have the same number as another message that is stored or was applied last. They are not
    /// applied.
    fn check_ids(&self, position: &PositionItem, waiting: &Waiting, messages: &Messages, received: &mut Received) {
        let known = |number: &Number| {
            let stored = waiting.messages.get(number).map(|message| &message.metadata.message_id);
            stored.or(position.message_id.as_ref().filter(|_| *number == position.number()))
        };
        for (number, message) in messages {
            let message_id = &message.metadata.message_id;
            if let Some(known) = known(number).filter(|known| *known != message_id) {
                let (aggregate, message_seq) = (self.aggregate, number.message_seq);
                tracing::error!(%aggregate, message_seq, message_id, known, "two messages have the same number");
                received.retry.insert(message_id.clone());
            }
        }
    }

    /// Logs and counts what was written.
    fn report(
        &self,
        draft: &Draft<'_>,
        last: Number,
        failure: Option<(&BusMessage, HandleError)>,
        messages: &Messages,
        received: &mut Received,
    ) {
        let aggregate = self.aggregate;
        if draft.lost > 0 {
            let (lost, epoch) = (draft.lost, draft.position.epoch);
            tracing::error!(
                %aggregate, lost, epoch, last = last.message_seq,
                "applied messages are of events that a restore has lost: correct their effects"
            );
            received.lost += lost;
        }
        if let Some((message, error)) = failure {
            let MessageMetadata { message_id, message_seq, .. } = &message.metadata;
            let attempts = draft.position.attempts;
            tracing::error!(
                %aggregate, message_seq, message_id, message_type = message.message_type, attempts, %error,
                "a message cannot be applied"
            );
            received.failed += 1;
            // The next delivery makes the next attempt: of the message itself, or of another one if the message has
            // waited.
            let delivered = messages.get(&message.number()).or_else(|| messages.values().next_back());
            if let Some(delivered) = delivered.filter(|_| attempts < C::MAX_ATTEMPTS) {
                received.retry.insert(delivered.metadata.message_id.clone());
            }
        }
    }
}

fn unavailable(reason: &str) -> TableError {
    TableError::Unavailable { doing: "write a position", source: reason.into() }
}
