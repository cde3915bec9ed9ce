//! An account, to which clients send payments.

use std::time::Duration;

use daybook_decider::{Caller, CommandRequest, DecisionInput, Folded, Involved, Json, Meta, Model, Registry};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, TransactError, TransactOptions,
    Transacted, Undecided,
};
use daybook_table::AggregateKey;
use serde_json::{Value, json};
use tokio::time::Instant;
use ulid::Ulid;

use crate::clock::Clock;

/// An open account.
pub(crate) struct Account {
    clock: Clock,
    registry: Registry,
    pub(crate) key: AggregateKey,
}

impl Account {
    pub(crate) async fn open(store: &EventStore, clock: Clock, id: &str) -> Self {
        let registry = aggregates::registry().unwrap();
        let this = Self { clock, registry, key: AggregateKey::new("account", id) };
        this.send(store, "OpenAccount", json!({}), None, Duration::from_secs(8)).await.unwrap();
        this
    }

    pub(crate) fn model(&self) -> &dyn Model {
        self.registry.get("account").unwrap()
    }

    /// Sends a payment. Returns the version after it.
    pub(crate) async fn pay(&self, store: &EventStore, time: Duration) -> Result<u64, TransactError<String>> {
        self.pay_with(None, store, time).await
    }

    /// Sends a payment with this idempotency key. Returns the version after it, also if the key was used for it before.
    pub(crate) async fn pay_with(
        &self,
        key: Option<&str>,
        store: &EventStore,
        time: Duration,
    ) -> Result<u64, TransactError<String>> {
        self.send(store, "RecordTransaction", json!({"desc": "", "amount": 1}), key, time).await
    }

    async fn send(
        &self,
        store: &EventStore,
        command: &str,
        data: Value,
        key: Option<&str>,
        time: Duration,
    ) -> Result<u64, TransactError<String>> {
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: command == "OpenAccount",
            expected_version: None,
            idempotency: key.map(|key| IdempotencyKey { key, digest: key, ttl: Duration::from_hours(24) }),
            deadline: Instant::now() + time,
        };
        let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
        let sent = Sent { account: self, command };
        match store.transact(self.model(), &self.key, &sent, &options).await? {
            Transacted::Decided(response) | Transacted::Replayed(response) => Ok(response.version),
        }
    }
}

/// A command to the account.
struct Sent<'a> {
    account: &'a Account,
    command: CommandRequest,
}

impl Decide for Sent<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<String>> {
        let now = self.account.clock.timestamp();
        let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
        let input = DecisionInput::new(
            now,
            Ulid::from_parts(milliseconds, fastrand::u128(..)),
            Meta::default(),
            Caller::anonymous(),
            1,
        );
        let commands = std::slice::from_ref(&self.command);
        self.account
            .model()
            .decide(before, &self.account.key.id, commands, &input)
            .map(Into::into)
            .map_err(|error| error.to_string().into())
    }

    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, String> {
        let decided = &decisions.own;
        Ok(CommandResponse { status: 200, version: decided.after.version(), state_version: 1, body: String::new() })
    }
}
