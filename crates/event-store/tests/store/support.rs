//! Helpers for all tests besides those of `daybook-test-support`.

use std::sync::Mutex;
use std::time::Duration;

use daybook_decider::{CommandRequest, Decided, Folded, Involved};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, LoadPolicy, ResponseDetail, TransactError, TransactOptions, Transacted,
    Undecided,
};
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::{deadline, requests};
use daybook_test_support::fault_proxy::RecordedCall;
use daybook_test_support::log;
pub(crate) use daybook_test_support::subject::{Subject, balance, large_ledger, ledger, ledger_of, state};
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

/// A command that is sent as a transaction, with the decisions on it.
pub(crate) struct Write<'a> {
    subject: &'a Subject,
    commands: Vec<CommandRequest>,
    creates: bool,
    expected_version: Option<u64>,
    first_decision_takes: Duration,
    decisions: Mutex<Vec<Decided>>,
}

impl<'a> Write<'a> {
    pub(crate) fn new(subject: &'a Subject, command: &str, data: Value) -> Self {
        let creates = subject.model().commands().create == command;
        let (commands, decisions) = (requests(&[(command, data)]), Mutex::default());
        let (expected_version, first_decision_takes) = (None, Duration::ZERO);
        Self { subject, commands, creates, expected_version, first_decision_takes, decisions }
    }

    pub(crate) fn expecting(self, expected_version: Option<u64>) -> Self {
        Self { expected_version, ..self }
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
            expected_version: self.expected_version,
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

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<String>> {
        let key = &self.subject.key;
        if self.decisions().is_empty() {
            std::thread::sleep(self.first_decision_takes);
        }
        let decided = self.subject.model().decide(before, &key.id, &self.commands, &next_input());
        let decided = decided.map_err(|error| error.to_string())?;
        self.decisions.lock().unwrap().push(decided.clone());
        Ok(decided.into())
    }

    /// A response whose body is the id of the first event.
    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, String> {
        let decided = &decisions.own;
        Ok(CommandResponse { status: 200, version: decided.after.version(), state_version: 1, body: first_id(decided) })
    }
}

/// The id of the first event of a decision.
pub(crate) fn first_id(decided: &Decided) -> String {
    decided.events.first().map(|event| event.event_id.to_string()).unwrap_or_default()
}
