//! One aggregate and its commands, and accounts whose balance depends on their events.

use std::convert::Infallible;

use daybook_decider::{Aggregate, Decided, DecisionInput, Folded, Model, Registry};
use daybook_event_store::{EventStore, LoadOptions, Loaded, TransactError};
use daybook_table::{AggregateKey, keys};
use serde_json::Value;

use crate::clock::next_input;
use crate::commands::{account_command, appended, requests, transact};
use crate::row::Item;
use crate::table::TestTable;

/// One aggregate.
pub struct Subject {
    registry: Registry,
    /// Its type and id.
    pub key: AggregateKey,
}

impl Subject {
    /// An aggregate of a type that ships.
    pub fn shipped(aggregate_type: &str, id: &str) -> Self {
        Self { registry: aggregates::registry().unwrap(), key: AggregateKey::new(aggregate_type, id) }
    }

    /// An aggregate of a type that only tests use.
    pub fn of<A: Aggregate>(id: &str) -> Self {
        Self { registry: Registry::new().with::<A>().unwrap(), key: AggregateKey::new(A::TYPE, id) }
    }

    /// The model of its type.
    pub fn model(&self) -> &dyn Model {
        self.registry.get(&self.key.aggregate_type).unwrap()
    }

    /// The aggregate before its first event.
    pub fn unborn(&self) -> Folded {
        self.model().before_first_event()
    }

    /// The decision of commands on `before`; none of them may be invalid.
    pub fn decide(&self, before: &Folded, commands: &[(&str, Value)]) -> Decided {
        self.decide_under(&next_input(), before, commands)
    }

    /// Like [`decide`](Self::decide), with this time, seed and caller.
    pub fn decide_under(&self, input: &DecisionInput, before: &Folded, commands: &[(&str, Value)]) -> Decided {
        self.model().decide(before, &self.key.id, &requests(commands), input).unwrap()
    }

    /// Decides on the cached state, or else on a loaded one, and appends.
    pub async fn command(&self, store: &EventStore, command: &str, data: Value) -> Loaded {
        self.commands(store, &[(command, data)]).await
    }

    /// Like [`command`](Self::command), for several commands in one transaction.
    pub async fn commands(&self, store: &EventStore, commands: &[(&str, Value)]) -> Loaded {
        appended(self.append(store, |before| self.decide(before, commands)).await.unwrap())
    }

    /// Like [`command`](Self::command), with this time, seed and caller.
    pub async fn command_under(&self, input: &DecisionInput, store: &EventStore, command: &str, data: Value) -> Loaded {
        let commands = [(command, data)];
        let decide = |before: &Folded| self.decide_under(input, before, &commands);
        appended(self.append(store, decide).await.unwrap())
    }

    /// Appends a decision on the cached state, or else on a loaded one, and returns it.
    ///
    /// # Errors
    ///
    /// Those of the transaction.
    pub async fn append(
        &self,
        store: &EventStore,
        decide: impl Fn(&Folded) -> Decided,
    ) -> Result<Decided, TransactError<Infallible>> {
        transact(store, self.model(), &self.key, |before| Ok(decide(before))).await
    }

    /// Its current state.
    pub async fn load(&self, store: &EventStore) -> Loaded {
        store.load(self.model(), &self.key).await.unwrap()
    }

    /// Its current state, folded from the first event.
    pub async fn rebuild(&self, store: &EventStore) -> Loaded {
        self.load_with(store, LoadOptions::REBUILD).await
    }

    /// Its state at a version.
    pub async fn load_at(&self, store: &EventStore, version: u64) -> Loaded {
        self.load_with(store, LoadOptions { at: Some(version), ..LoadOptions::default() }).await
    }

    /// Its state at a version, folded from the first event.
    pub async fn rebuild_at(&self, store: &EventStore, version: u64) -> Loaded {
        self.load_with(store, LoadOptions { at: Some(version), ..LoadOptions::REBUILD }).await
    }

    async fn load_with(&self, store: &EventStore, options: LoadOptions) -> Loaded {
        store.load_with(self.model(), &self.key, options).await.unwrap()
    }

    /// The row of its metadata.
    pub async fn metadata(&self, table: &TestTable) -> Item {
        table.row(&self.key, keys::METADATA).await.unwrap()
    }
}

/// A state as JSON.
pub fn state(loaded: &Loaded) -> Value {
    loaded.state.read().unwrap()
}

/// An account in which every event from the second on is a payment of its own number, so that its balance shows
/// which events were folded.
pub async fn ledger(store: &EventStore, id: &str, version: u64) -> Subject {
    ledger_of(store, id, version, "payment").await
}

/// A [`ledger`] whose payments have this description.
pub async fn ledger_of(store: &EventStore, id: &str, version: u64, desc: &str) -> Subject {
    /// As many events as fit a transaction beside the metadata.
    const MOST: u64 = 99;
    let account = Subject::shipped("account", id);
    let mut loaded = account.load(store).await;
    while loaded.version() < version {
        let numbers = loaded.version() + 1..=version.min(loaded.version() + MOST);
        let commands: Vec<_> = numbers.map(|number| account_command(number, desc)).collect();
        loaded = account.commands(store, &commands).await;
    }
    account
}

/// A [`ledger`] whose payments are events of some 300 KB, so that three of them fill a page of 1 MB.
pub async fn large_ledger(store: &EventStore, id: &str, version: u64) -> Subject {
    let account = Subject::shipped("account", id);
    let desc = "A".repeat(300 * 1024);
    for number in account.load(store).await.version() + 1..=version {
        account.commands(store, &[account_command(number, &desc)]).await;
    }
    account
}

/// The balance of a ledger after that many events.
pub fn balance(version: u64) -> u64 {
    if version == 0 { 0 } else { version * (version + 1) / 2 - 1 }
}
