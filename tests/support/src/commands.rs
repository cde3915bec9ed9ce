//! Commands from JSON, decided at the next time of the clock.

use std::sync::Mutex;
use std::time::Duration;

use daybook_decider::{CommandError, CommandRequest, Decided, Folded, Involved, Json, Model};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, LoadPolicy, Loaded, ResponseDetail, TransactError, TransactOptions,
    Transacted, Undecided,
};
use daybook_table::AggregateKey;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::clock::next_input;

/// Decides the commands on the current state of an aggregate and appends the result.
///
/// # Errors
///
/// When a command does not reach the rules. Nothing is appended then.
pub async fn execute(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    commands: &[(&str, Value)],
) -> Result<Loaded, CommandError> {
    let requests = requests(commands);
    let decide = |before: &Folded| model.decide(before, &key.id, &requests, &next_input());
    match transact(store, model, key, decide).await {
        Ok(decided) => Ok(appended(decided)),
        Err(TransactError::Decide(error)) => Err(error),
        Err(error) => panic!("{error:?}"),
    }
}

/// Decides in a transaction that repeats whatever can be repeated. Returns the decision that was appended.
///
/// # Errors
///
/// Those of the transaction.
pub async fn transact<E>(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    decide: impl Fn(&Folded) -> Result<Decided, E>,
) -> Result<Decided, TransactError<E>> {
    let options = TransactOptions {
        policy: LoadPolicy::Incremental,
        creates: false,
        expected_version: None,
        idempotency: None,
        deadline: deadline(),
    };
    let decisions = Decisions { decide, made: Mutex::default() };
    let transacted = store.transact(model, key, &decisions, &options).await?;
    let Transacted::Decided(response) = transacted else { panic!("{transacted:?}") };
    Ok(decisions.made.into_inner().unwrap().swap_remove(response.body.parse().unwrap()))
}

/// The aggregate after a decision.
pub fn appended(decided: Decided) -> Loaded {
    Loaded { folded: decided.after, state: decided.state }
}

/// The decisions of one request, one for each attempt.
struct Decisions<F> {
    decide: F,
    made: Mutex<Vec<Decided>>,
}

impl<E, F: Fn(&Folded) -> Result<Decided, E>> Decide for Decisions<F> {
    type Error = E;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<E>> {
        let decided = (self.decide)(before)?;
        self.made.lock().unwrap().push(decided.clone());
        Ok(decided.into())
    }

    /// A response whose body is the index of the decision.
    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, E> {
        let decided = &decisions.own;
        let body = (self.made.lock().unwrap().len() - 1).to_string();
        Ok(CommandResponse { status: 200, version: decided.after.version(), state_version: 1, body })
    }
}

/// Requests of commands, each given by its name and data.
pub fn requests(commands: &[(&str, Value)]) -> Vec<CommandRequest> {
    let request = |(command, data): &(&str, Value)| CommandRequest {
        command: (*command).to_owned(),
        data: Json::of(data).unwrap(),
    };
    commands.iter().map(request).collect()
}

/// A deadline that is later than every retry in a test.
pub fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// The command that appends event `number` of an account. The first command opens the account; each other one is a
/// payment whose amount is `number`, so that the balance shows which events are folded.
pub fn account_command(number: u64, desc: &str) -> (&'static str, Value) {
    match number {
        1 => ("OpenAccount", json!({})),
        _ => ("RecordTransaction", json!({"desc": desc, "amount": number})),
    }
}
