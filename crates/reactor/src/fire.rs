//! Fires one deadline.

use std::time::Duration;

use daybook_decider::{AggregateKey, Meta};
use daybook_event_store::{DeadlineMark, IdempotencyKey, StoreError, StoredDeadline, TransactError, Transacted};
use daybook_function_runtime::with_causes;
use daybook_table::{DeadlineState, DueDeadline, keys};
use jiff::Timestamp;
use metrics::counter;
use tokio::time::{Instant, sleep};
use tracing::field::display;
use ulid::Ulid;

use crate::deliver::{meta, options};
use crate::reaction::{Asked, Failure, GONE, NotDecided, Reaction};
use crate::reactor::Reactor;

/// Maximum time that an invocation waits for a deadline to become due: the clock of the sender may be ahead.
const MAX_EARLY: Duration = Duration::from_secs(2);

/// The time for which a firing is known by its idempotency key. Until then, its row is marked.
const KEY_TTL: Duration = Duration::from_hours(14 * 24);

/// Maximum time for which two releases run side by side. For as long, a row that the state does not declare, or whose type is
/// unknown, waits for the release that has set it.
const SIDE_BY_SIDE: Duration = Duration::from_hours(1);

/// The digest of all firings: a key is used for one deadline alone.
const DIGEST: &str = "deadline";

impl Reactor {
    /// Fires a deadline. Returns whether it is done; otherwise, its message must come again.
    pub(crate) async fn fire(&self, deadline: &DueDeadline, cutoff: Instant) -> bool {
        let result = match self.pending(deadline).await {
            Ok(None) => return true,
            Ok(Some(stored)) => {
                let result = self.try_to_fire(deadline, &stored, cutoff).await;
                self.unmark_failing(&stored, &result).await;
                result
            }
            Err(error) => Err(error.into()),
        };
        self.end_attempt(deadline, None, result).await
    }

    /// Removes the mark of a row that was failing, if an attempt fails for a reason that may pass: the time in which its command
    /// cannot be executed begins anew with the next failure.
    pub(crate) async fn unmark_failing(&self, stored: &StoredDeadline, result: &Result<(), Failure>) {
        if stored.item.failing_since.is_some()
            && matches!(result, Err(Failure::Transient(_) | Failure::OtherRelease(_)))
            && let Err(error) = self.store.mark_deadline(stored, DeadlineMark::Pending).await
        {
            let (aggregate, error) = (&stored.aggregate, with_causes(&error));
            tracing::warn!(%aggregate, error, "the row stays marked as failing");
        }
    }

    /// Ends an attempt to fire a deadline, or to send a dispatch. Returns whether it is done.
    pub(crate) async fn end_attempt(
        &self,
        deadline: &DueDeadline,
        to: Option<&AggregateKey>,
        result: Result<(), Failure>,
    ) -> bool {
        let Err(failure) = result else { return true };
        if !matches!(failure, Failure::OtherRelease(_)) {
            self.count_failed();
        }
        let to = to.map(display);
        let DueDeadline { due, key, name } = deadline;
        let error = match failure {
            Failure::Transient(error) | Failure::OtherRelease(error) => {
                tracing::warn!(aggregate = %key, name, %due, to, error, "the deadline or dispatch is executed later");
                return false;
            }
            Failure::Permanent(error) => error,
        };
        match self.mark_failure(deadline, &error).await {
            Ok(Some(true)) => {
                counter!("ReactionsGivenUp").increment(1);
                tracing::error!(aggregate = %key, name, %due, to, error, "the deadline or dispatch failed");
                true
            }
            Ok(Some(false)) => {
                tracing::warn!(aggregate = %key, name, %due, to, error, "the deadline or dispatch cannot be executed, tries again");
                false
            }
            Ok(None) => true,
            Err(failed) => {
                let failed = with_causes(&failed);
                tracing::warn!(aggregate = %key, name, %due, to, error, failed, "the deadline or dispatch cannot be executed, nor its row marked");
                false
            }
        }
    }

    /// Marks a deadline that cannot be executed, if it still is pending: as failing, or as failed if it has been for long enough.
    /// Returns whether it has failed now; `None` if it was not pending any more.
    async fn mark_failure(&self, deadline: &DueDeadline, error: &str) -> Result<Option<bool>, StoreError> {
        let Some(stored) = self.pending(deadline).await? else { return Ok(None) };
        let gives_up = self.gives_up(stored.item.failing_since.as_deref());
        let mark = match gives_up {
            Some(false) => return Ok(Some(false)),
            Some(true) => DeadlineMark::Failed(error),
            None => DeadlineMark::Failing,
        };
        let is_marked = self.store.mark_deadline(&stored, mark).await?;
        Ok(Some(is_marked && gives_up == Some(true)))
    }

    async fn try_to_fire(
        &self,
        deadline: &DueDeadline,
        stored: &StoredDeadline,
        cutoff: Instant,
    ) -> Result<(), Failure> {
        let DueDeadline { due, key, name } = deadline;
        let early = Duration::try_from(due.duration_since(self.store.now())).unwrap_or_default();
        if early > MAX_EARLY {
            // The tick sends it again.
            tracing::info!(aggregate = %key, name, %due, "the deadline is not due yet");
            return Ok(());
        }
        sleep(early).await;
        let other_release = |unknown: String| self.of_other_release(stored, &unknown, "deploy the release that has it");
        let model = self.model(key).map_err(other_release)?;
        let (registry, store, meta) = (&self.registry, &self.store, meta_of(stored));
        let reaction =
            Reaction { registry, store, to: key, asked: Asked::Due(*due), row: Some(name), dispatch: None, meta };
        // With a space, which no key of a client has.
        let idempotency_key = format!("{}{name} {due} {}", keys::DEADLINE_KEYS, stored.item.seq_num);
        let key_of_firing = IdempotencyKey { key: &idempotency_key, digest: DIGEST, ttl: KEY_TTL };
        let options = options(false, key_of_firing, cutoff);
        match self.store.transact(model, key, &reaction, &options).await {
            Ok(Transacted::Decided(response)) => {
                counter!("DeadlinesFired").increment(1);
                tracing::info!(aggregate = %key, name, %due, version = response.version, "the deadline has fired");
                if response.status == GONE {
                    return Ok(());
                }
            }
            // An earlier invocation has fired it, and could not mark it.
            Ok(Transacted::Replayed(_)) => {}
            // The tick sends it again.
            Err(TransactError::Decide(reason @ NotDecided::Early)) => {
                tracing::info!(aggregate = %key, name, %due, %reason, "the deadline has not fired");
                return Ok(());
            }
            Err(TransactError::Decide(NotDecided::NotDeclared)) => return self.undeclared(deadline, stored).await,
            Err(TransactError::Decide(reason @ (NotDecided::Rejected(_) | NotDecided::NoEffect))) => {
                counter!("DeadlinesWithoutEffect").increment(1);
                tracing::info!(aggregate = %key, name, %due, %reason, "the deadline has no effect");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.store.mark_deadline(stored, DeadlineMark::Fired).await.map(drop)?)
    }

    /// What follows if the state does not declare a row: nothing, if an append has changed the row since it was read. Otherwise,
    /// another release has set it.
    async fn undeclared(&self, deadline: &DueDeadline, stored: &StoredDeadline) -> Result<(), Failure> {
        if self.pending(deadline).await?.as_ref() != Some(stored) {
            return Ok(());
        }
        let cure = "run `daybook deadlines rebuild`, or deploy the release that does";
        Err(self.of_other_release(stored, "the state does not declare it", cure))
    }

    /// The failure of a row that another release has set. It cannot be executed if that release does not run any more.
    fn of_other_release(&self, stored: &StoredDeadline, error: &str, cure: &str) -> Failure {
        let set = stored.item.event_id.parse().ok().and_then(|id: Ulid| Timestamp::try_from(id.datetime()).ok());
        let age = set.and_then(|set| Duration::try_from(self.store.now().duration_since(set)).ok());
        match age {
            Some(age) if age > SIDE_BY_SIDE => Failure::Permanent(format!("{error}: {cure}")),
            _ => Failure::OtherRelease(format!("{error}: another release has set it")),
        }
    }

    /// The row of a deadline, while it is pending and has this time.
    async fn pending(&self, deadline: &DueDeadline) -> Result<Option<StoredDeadline>, StoreError> {
        let stored = self.store.deadline(&deadline.key, &deadline.name).await?;
        Ok(stored.filter(|stored| stored.item.state() == DeadlineState::Pending && stored.due == deadline.due))
    }
}

pub(crate) fn meta_of(row: &StoredDeadline) -> Meta {
    meta(row.item.event_id.clone(), row.item.correlation_id.clone())
}
