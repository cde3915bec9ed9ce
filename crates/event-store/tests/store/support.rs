//! Helpers for all tests besides the table: the aggregate under test, and accounts whose balance depends on their
//! events.

use std::sync::Mutex;
use std::time::Duration;

use daybook_decider::{Aggregate, CommandRequest, Decided, DecisionInput, Folded, Model, Registry};
use daybook_event_store::{
    AppendError, CommandResponse, Decide, EventStore, LoadOptions, LoadPolicy, Loaded, ResponseDetail, TransactError,
    TransactOptions, Transacted,
};
use daybook_table::{AggregateKey, keys};
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::{account_command, deadline, requests};
use daybook_test_support::fault_proxy::RecordedCall;
use daybook_test_support::log;
use daybook_test_support::row::Item;
use daybook_test_support::table::TestTable;
use serde_json::Value;
use tokio::time::Instant;

/// The lines that the store logged since this was last called on the thread. The first call only starts the capture.
pub(crate) fn take_log() -> Vec<Value> {
    log::take("daybook_event_store")
}

/// The calls that read the table itself.
pub(crate) fn reads(calls: &[RecordedCall]) -> impl Iterator<Item = &RecordedCall> {
    calls.iter().filter(|call| matches!(call.operation.as_str(), "GetItem" | "Query"))
}

/// One aggregate.
pub(crate) struct Subject {
    registry: Registry,
    pub(crate) key: AggregateKey,
}

impl Subject {
    /// An aggregate of a type that ships.
    pub(crate) fn shipped(aggregate_type: &str, id: &str) -> Self {
        Self { registry: aggregates::registry().unwrap(), key: AggregateKey::new(aggregate_type, id) }
    }

    /// An aggregate of a type that only tests use.
    pub(crate) fn of<A: Aggregate>(id: &str) -> Self {
        Self { registry: Registry::new().with::<A>().unwrap(), key: AggregateKey::new(A::TYPE, id) }
    }

    pub(crate) fn model(&self) -> &dyn Model {
        self.registry.get(&self.key.aggregate_type).unwrap()
    }

    /// The aggregate before its first event.
    pub(crate) fn unborn(&self) -> Folded {
        self.model().before_first_event()
    }

    /// The decision of commands on `before`; none of them may be invalid.
    pub(crate) fn decide(&self, before: &Folded, commands: &[(&str, Value)]) -> Decided {
        self.decide_under(&next_input(), before, commands)
    }

    pub(crate) fn decide_under(&self, input: &DecisionInput, before: &Folded, commands: &[(&str, Value)]) -> Decided {
        self.model().decide(before, &self.key.id, &requests(commands), input).unwrap()
    }

    /// Appends what was decided on `before`.
    pub(crate) async fn append(
        &self,
        store: &EventStore,
        before: &Folded,
        decided: &Decided,
    ) -> Result<Loaded, AppendError> {
        store.append(self.model(), &self.key, before.version(), decided, None, deadline()).await
    }

    /// Decides on the cached state, or else on a loaded one, and appends.
    pub(crate) async fn command(&self, store: &EventStore, command: &str, data: Value) -> Loaded {
        self.commands(store, &[(command, data)]).await
    }

    /// Like [`command`](Self::command), for several commands in one transaction.
    pub(crate) async fn commands(&self, store: &EventStore, commands: &[(&str, Value)]) -> Loaded {
        let before = match store.cached(&self.key) {
            Some(known) => known,
            None => self.load(store).await,
        };
        let decided = self.decide(&before.folded, commands);
        self.append(store, &before.folded, &decided).await.unwrap()
    }

    pub(crate) async fn load(&self, store: &EventStore) -> Loaded {
        store.load(self.model(), &self.key).await.unwrap()
    }

    pub(crate) async fn rebuild(&self, store: &EventStore) -> Loaded {
        self.load_with(store, LoadOptions::REBUILD).await
    }

    pub(crate) async fn load_at(&self, store: &EventStore, version: u64) -> Loaded {
        self.load_with(store, LoadOptions { at: Some(version), ..LoadOptions::default() }).await
    }

    pub(crate) async fn rebuild_at(&self, store: &EventStore, version: u64) -> Loaded {
        self.load_with(store, LoadOptions { at: Some(version), ..LoadOptions::REBUILD }).await
    }

    async fn load_with(&self, store: &EventStore, options: LoadOptions) -> Loaded {
        store.load_with(self.model(), &self.key, options).await.unwrap()
    }

    pub(crate) async fn metadata(&self, table: &TestTable) -> Item {
        table.row(&self.key, keys::METADATA).await.unwrap()
    }
}

/// A command that is sent as a transaction, with the decisions on it.
pub(crate) struct Write<'a> {
    subject: &'a Subject,
    commands: Vec<CommandRequest>,
    creates: bool,
    first_decision_takes: Duration,
    decisions: Mutex<Vec<Decided>>,
}

impl<'a> Write<'a> {
    pub(crate) fn new(subject: &'a Subject, command: &str, data: Value) -> Self {
        let creates = subject.model().commands().create == command;
        let (commands, decisions) = (requests(&[(command, data)]), Mutex::default());
        Self { subject, commands, creates, first_decision_takes: Duration::ZERO, decisions }
    }

    /// Makes the first decision take this long.
    pub(crate) fn slow_at_first(self, first_decision_takes: Duration) -> Self {
        Self { first_decision_takes, ..self }
    }

    pub(crate) async fn send(&self, store: &EventStore) -> Result<Transacted, TransactError<String>> {
        self.send_until(store, deadline()).await
    }

    pub(crate) async fn send_until(
        &self,
        store: &EventStore,
        deadline: Instant,
    ) -> Result<Transacted, TransactError<String>> {
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: self.creates,
            expected_version: None,
            idempotency: None,
            deadline,
        };
        store.transact(self.subject.model(), &self.subject.key, self, &options).await
    }

    /// The decisions, one for each attempt.
    pub(crate) fn decisions(&self) -> Vec<Decided> {
        self.decisions.lock().unwrap().clone()
    }

    /// The decision that a response belongs to.
    pub(crate) fn decision_of(&self, transacted: &Transacted) -> Decided {
        let Transacted::Decided(response) = transacted else { panic!("{transacted:?}") };
        let is_of = |decided: &Decided| first_id(decided) == response.body;
        self.decisions().into_iter().find(is_of).unwrap()
    }
}

impl Decide for Write<'_> {
    type Error = String;

    fn decide(&self, before: &Folded) -> Result<Decided, String> {
        let Subject { key, .. } = self.subject;
        if self.decisions().is_empty() {
            std::thread::sleep(self.first_decision_takes);
        }
        let decided = self.subject.model().decide(before, &key.id, &self.commands, &next_input());
        let decided = decided.map_err(|error| error.to_string())?;
        self.decisions.lock().unwrap().push(decided.clone());
        Ok(decided)
    }

    /// A response whose body is the id of the first event.
    fn respond(&self, _: &Folded, decided: &Decided, _: ResponseDetail) -> Result<CommandResponse, String> {
        Ok(CommandResponse {
            status: 200,
            version: decided.after.version(),
            state_version: None,
            body: first_id(decided),
        })
    }
}

/// The id of the first event of a decision.
pub(crate) fn first_id(decided: &Decided) -> String {
    decided.events.first().map(|event| event.event_id.to_string()).unwrap_or_default()
}

/// A state as JSON.
pub(crate) fn state(loaded: &Loaded) -> Value {
    loaded.state.read().unwrap()
}

/// An account in which every event from the second on is a payment of its own number, so that its balance shows
/// which events were folded.
pub(crate) async fn ledger(store: &EventStore, id: &str, version: u64) -> Subject {
    ledger_of(store, id, version, "payment").await
}

/// A [`ledger`] whose payments have this description.
pub(crate) async fn ledger_of(store: &EventStore, id: &str, version: u64, desc: &str) -> Subject {
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
pub(crate) async fn large_ledger(store: &EventStore, id: &str, version: u64) -> Subject {
    let account = Subject::shipped("account", id);
    let desc = "A".repeat(300 * 1024);
    for number in account.load(store).await.version() + 1..=version {
        account.commands(store, &[account_command(number, &desc)]).await;
    }
    account
}

/// The balance of a ledger after that many events.
pub(crate) fn balance(version: u64) -> u64 {
    if version == 0 { 0 } else { version * (version + 1) / 2 - 1 }
}
