//! Commands from JSON, decided at the next time of the clock.

use std::time::Duration;

use daybook_decider::{CommandError, CommandRequest, Json, Model};
use daybook_event_store::{EventStore, Loaded};
use daybook_table::AggregateKey;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::clock::next_input;

/// Loads an aggregate, decides the commands on it and appends the result.
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
    let before = store.load(model, key).await.unwrap();
    let decided = model.decide(&before.folded, &key.id, &requests(commands), &next_input())?;
    Ok(store.append(model, key, before.version(), &decided, None, deadline()).await.unwrap())
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
