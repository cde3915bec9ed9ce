//! Commands that an aggregate gets once: of a dispatch, for its answer, and for an event.

use std::time::Duration;

use daybook_decider::{AggregateKey, CommandRejection, CommandRequest, DomainRejection, Meta, Model, personal};
use daybook_event_store::{
    CommandResponse, IdempotencyKey, LoadPolicy, StoredDeadline, TransactError, TransactOptions, Transacted,
};
use tokio::time::Instant;

use crate::reaction::{Asked, Failure, Reaction, rejection_of};
use crate::reactor::Reactor;

/// The time for which an outcome is stored.
const KEY_TTL: Duration = Duration::from_hours(365 * 24);

pub(crate) struct Delivery<'a> {
    pub(crate) to: &'a AggregateKey,
    pub(crate) commands: &'a [CommandRequest],
    /// The idempotency key in the partition of the aggregate. It contains a space, which no key of a client has.
    pub(crate) key: String,
    /// A digest of what must not change while the outcome is stored.
    pub(crate) digest: &'a str,
    /// The row of the aggregate for which it gets them, if there is one.
    pub(crate) row: Option<&'a str>,
    /// The row of a dispatch, which must be pending when they are executed.
    pub(crate) dispatch: Option<&'a StoredDeadline>,
    pub(crate) meta: Meta,
}

/// The metadata of the events that follow from an event, with its id and correlation id.
pub(crate) fn meta(causation_id: String, correlation_id: Option<String>) -> Meta {
    let actor = Some("daybook".to_owned());
    Meta { actor, causation_id: Some(causation_id), correlation_id, ..Meta::default() }
}

/// The options of commands whose outcome is stored under this key, in the time until `cutoff`.
pub(crate) fn options(creates: bool, key: IdempotencyKey<'_>, cutoff: Instant) -> TransactOptions<'_> {
    let deadline = cutoff.checked_sub(TransactOptions::LAST_CALLS).unwrap_or(cutoff);
    let (policy, idempotency) = (LoadPolicy::Incremental, Some(key));
    TransactOptions { policy, creates, expected_version: None, idempotency, deadline }
}

impl Reactor {
    /// The code of an aggregate; the error if its type is unknown.
    pub(crate) fn model(&self, key: &AggregateKey) -> Result<&dyn Model, String> {
        let unknown = || format!("no aggregate type {} is registered", key.aggregate_type);
        self.registry.get(&key.aggregate_type).ok_or_else(unknown)
    }

    /// A command of a process, or to it, without the personal values about subjects that are forgotten: it is decided without
    /// them. Those without a subject are about the process.
    pub(crate) async fn without_forgotten(
        &self,
        process: &AggregateKey,
        command: CommandRequest,
    ) -> Result<CommandRequest, Failure> {
        let data = personal::attributed(command.data, (&process.aggregate_type, &process.id));
        let data = self.store.without_forgotten(data.map_err(Failure::Permanent)?).await?;
        Ok(CommandRequest { data, ..command })
    }

    /// Delivers commands, unless an outcome is stored under the key. Returns the outcome: the response, and the rejection if the
    /// aggregate rejects them. It is stored in any case, so that a repetition, on whatever state, has the same. Returns `None` if
    /// the row of the dispatch has changed: then nothing is executed.
    pub(crate) async fn deliver(
        &self,
        delivery: Delivery<'_>,
        cutoff: Instant,
    ) -> Result<Option<(CommandResponse, Option<CommandRejection>)>, Failure> {
        let Delivery { to, commands, key, digest, row, dispatch, meta } = delivery;
        let model = self.model(to).map_err(Failure::Permanent)?;
        let (registry, store) = (&self.registry, &self.store);
        let mut reaction = Reaction { registry, store, to, asked: Asked::Commands(commands), row, dispatch, meta };
        let creates = commands.first().is_some_and(|first| first.command == model.commands().create);
        let options = options(creates, IdempotencyKey { key: &key, digest, ttl: KEY_TTL }, cutoff);
        let mut transacted = store.transact(model, to, &reaction, &options).await;
        if let Err(error @ TransactError::ClaimTaken { .. }) = &transacted {
            reaction.asked = Asked::Rejected(DomainRejection::new("ClaimTaken", error.to_string()));
            transacted = store.transact(model, to, &reaction, &options).await;
        }
        let (Transacted::Decided(response) | Transacted::Replayed(response)) = match transacted {
            Err(TransactError::RowChanged) => return Ok(None),
            transacted => transacted?,
        };
        let unreadable = |error| Failure::Permanent(format!("the outcome {key:?} of {to}: {error}"));
        let rejection = rejection_of(&response).map_err(unreadable)?;
        tracing::info!(%to, key, status = response.status, version = response.version, ?rejection, "delivered");
        Ok(Some((response, rejection)))
    }
}
