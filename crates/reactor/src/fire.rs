//! Fires one deadline.

use std::time::Duration;

use daybook_decider::Meta;
use daybook_event_store::{
    DeadlineMark, IdempotencyKey, LoadPolicy, StoreError, StoredDeadline, TransactError, TransactOptions, Transacted,
};
use daybook_function_runtime::with_causes;
use daybook_table::{DeadlineState, DueDeadline};
use tokio::time::{Instant, sleep};

use crate::firing::{Firing, GONE, NotFired};
use crate::reactor::Reactor;

/// Maximum time that an invocation waits for a deadline to become due: the clock of the sender may be ahead.
const MAX_EARLY: Duration = Duration::from_secs(2);

/// How often a message is received before a deadline that cannot be fired is marked as failed. Meanwhile, a deployment that
/// causes the failure can be rolled back.
const MAX_RECEIVES: u32 = 5;

/// The time for which a firing is known by its idempotency key. Until then, its row is marked.
const KEY_TTL: Duration = Duration::from_hours(14 * 24);

/// The digest of all firings: a key is used for one deadline alone.
const DIGEST: &str = "deadline";

/// Why a deadline could not be fired.
enum Failure {
    /// It may fire later: the table is not available, other writers are faster, or a deployment is in progress.
    Transient(String),
    /// It cannot be fired while the code and the data are as they are.
    Permanent(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let text = with_causes(&error);
        match error {
            StoreError::Unavailable { .. } | StoreError::Newer { .. } | StoreError::InvalidRequest { .. } => {
                Self::Transient(text)
            }
            StoreError::Corrupt { .. } | StoreError::Panicked { .. } => Self::Permanent(text),
        }
    }
}

impl From<TransactError<NotFired>> for Failure {
    fn from(error: TransactError<NotFired>) -> Self {
        let text = with_causes(&error);
        match error {
            TransactError::Store(error) => error.into(),
            TransactError::Contended | TransactError::OutcomeUnknown { .. } => Self::Transient(text),
            TransactError::Decide(reason) => Self::Permanent(with_causes(&reason)),
            TransactError::Conflict { .. }
            | TransactError::KeyReused
            | TransactError::ClaimTaken { .. }
            | TransactError::TooLarge { .. } => Self::Permanent(text),
        }
    }
}

impl Reactor {
    /// Fires a deadline whose message was received this often. Returns whether it is done; otherwise, its message must come
    /// again.
    pub(crate) async fn fire(&self, deadline: &DueDeadline, receives: u32, cutoff: Instant) -> bool {
        let failure = match self.try_to_fire(deadline, cutoff).await {
            Ok(()) => return true,
            Err(failure) => failure,
        };
        self.signals.failed();
        let DueDeadline { due, key, name } = deadline;
        match failure {
            Failure::Transient(error) => {
                tracing::warn!(aggregate = %key, name, %due, error, "the deadline will fire later");
                false
            }
            Failure::Permanent(error) if receives < MAX_RECEIVES => {
                tracing::warn!(aggregate = %key, name, %due, error, receives, "the deadline cannot fire, tries again");
                false
            }
            Failure::Permanent(error) => {
                if let Err(failed) = self.give_up(deadline, &error).await {
                    let failed = with_causes(&failed);
                    tracing::warn!(aggregate = %key, name, %due, error = failed, "the deadline cannot be marked as failed");
                    return false;
                }
                self.signals.gave_up();
                tracing::error!(aggregate = %key, name, %due, error, "the deadline failed");
                true
            }
        }
    }

    /// Marks a deadline as failed, if it still is pending.
    async fn give_up(&self, deadline: &DueDeadline, error: &str) -> Result<(), StoreError> {
        if let Some(stored) = self.pending(deadline).await? {
            self.store.mark_deadline(&stored, DeadlineMark::Failed(error)).await?;
        }
        Ok(())
    }

    async fn try_to_fire(&self, deadline: &DueDeadline, cutoff: Instant) -> Result<(), Failure> {
        let Some(stored) = self.pending(deadline).await? else { return Ok(()) };
        let DueDeadline { due, key, name } = deadline;
        let early = Duration::try_from(due.duration_since(self.store.now())).unwrap_or_default();
        if early > MAX_EARLY {
            // The tick sends it again.
            tracing::info!(aggregate = %key, name, %due, "the deadline is not due yet");
            return Ok(());
        }
        sleep(early).await;
        let Some(model) = self.registry.get(&key.aggregate_type) else {
            return Err(Failure::Permanent(format!("no aggregate type {} is registered", key.aggregate_type)));
        };
        let meta = Meta {
            actor: Some("daybook".to_owned()),
            causation_id: Some(stored.item.event_id.clone()),
            correlation_id: stored.item.correlation_id.clone(),
            ..Meta::default()
        };
        let firing = Firing { registry: &self.registry, store: &self.store, deadline, meta };
        // With a space, which no key of a client has.
        let idempotency_key = format!("deadline {name} {due}");
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: false,
            expected_version: None,
            idempotency: Some(IdempotencyKey { key: &idempotency_key, digest: DIGEST, ttl: KEY_TTL }),
            deadline: cutoff.checked_sub(TransactOptions::LAST_CALLS).unwrap_or(cutoff),
        };
        match self.store.transact(model, key, &firing, &options).await {
            Ok(Transacted::Decided(response)) => {
                self.signals.fired();
                tracing::info!(aggregate = %key, name, %due, version = response.version, "the deadline has fired");
                if response.status == GONE {
                    return Ok(());
                }
            }
            // An earlier invocation has fired it, and could not mark it.
            Ok(Transacted::Replayed(_)) => {}
            // The tick sends it again.
            Err(TransactError::Decide(reason @ NotFired::Early)) => {
                tracing::info!(aggregate = %key, name, %due, %reason, "the deadline has not fired");
                return Ok(());
            }
            Err(TransactError::Decide(
                reason @ (NotFired::NotDeclared | NotFired::Rejected(_) | NotFired::NoEffect),
            )) => {
                self.signals.without_effect();
                tracing::info!(aggregate = %key, name, %due, %reason, "the deadline has no effect");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(self.store.mark_deadline(&stored, DeadlineMark::Fired).await.map(drop)?)
    }

    /// The row of a deadline, while it is pending and has this time.
    async fn pending(&self, deadline: &DueDeadline) -> Result<Option<StoredDeadline>, StoreError> {
        let stored = self.store.deadline(&deadline.key, &deadline.name).await?;
        Ok(stored.filter(|stored| stored.item.state() == DeadlineState::Pending && stored.due == deadline.due))
    }
}
