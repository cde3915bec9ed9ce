//! What the pages get from a stack besides its tables.

use std::time::Duration;

use axum::http::HeaderMap;
use daybook_local_aws::messaging::{BusPart, MessageQuery, WaitingMessage};
use daybook_table::AggregateKey;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub const IDLE_PATIENCE: Duration = Duration::from_secs(10);

pub type Reply<'a, T> = BoxFuture<'a, Result<T, StackError>>;

/// What the pages get from a stack besides its tables. A page calls one method, once; only *Stream* of a stack on AWS calls two,
/// because one of them may lack the permission. A stack has the methods that its pages call.
pub trait StackSource: Send + Sync {
    /// The dead-letter messages, after the action.
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters>;

    /// Makes the projector read the events of an aggregate up to this number.
    fn project(&self, _: AggregateKey, _: u64) -> Reply<'_, ()> {
        absent()
    }

    /// Messages on the bus of the local stack.
    fn messages(&self, _: MessageQuery) -> Reply<'_, BusPart> {
        absent()
    }

    /// What the parts of the local stack wait for, and its latest requests.
    fn stream(&self) -> Reply<'_, StreamState> {
        absent()
    }

    /// The faults and the clock of the local stack, after the action.
    fn controls(&self, _: ControlAction) -> Reply<'_, Controls> {
        absent()
    }

    fn relay(&self) -> Reply<'_, Relay> {
        absent()
    }

    /// The queues of a stack on AWS.
    fn queues(&self) -> Reply<'_, Vec<QueueDepth>> {
        absent()
    }

    /// The dead-letter queue of a stack on AWS.
    fn dead_letter_queue(&self) -> Reply<'_, QueueDepth> {
        absent()
    }

    fn health(&self) -> Reply<'_, Health> {
        absent()
    }
}

fn absent<'a, T>() -> Reply<'a, T> {
    Box::pin(async { Err(StackError("this kind of stack does not have it".to_owned())) })
}

/// Why a stack did not return what a page needs. The page shows it to the person who started the stack or the console.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StackError(pub String);

/// What somebody has changed in the local stack, and may have forgotten. Each page shows it, so the first process of the stack
/// adds it to the requests that it forwards, as a header with JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Notices {
    /// Whether there are injected faults, used up or not.
    pub has_faults: bool,
    /// How far the clock is ahead of the machine's, such as `14d 2h`.
    pub ahead_by: String,
    pub ahead_by_seconds: u64,
}

/// The header of a request, and of its response, while functions of an earlier build serve it. It contains the reason, such as
/// the errors of the compiler in a source file that was just saved.
pub const PREVIOUS_FUNCTIONS: &str = "x-daybook-previous-functions";

impl Notices {
    pub const HEADER: &str = "x-daybook-notices";

    pub(crate) fn of_request(headers: &HeaderMap) -> Self {
        let text = headers.get(Self::HEADER).and_then(|text| text.to_str().ok());
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// Whether faults are in a value that has the form of `/_dev/faults`: lists of faults by name, some of them in objects.
pub fn contains_faults(value: &Value) -> bool {
    match value {
        Value::Array(faults) => !faults.is_empty(),
        Value::Object(members) => members.values().any(contains_faults),
        _ => false,
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlAction {
    Nothing,
    SetFaults(Value),
    /// Moves the clock forward by a duration such as `14d`.
    MoveClock(String),
    /// Waits until no mapping and no queue has anything left, except for dead-letter queues.
    WaitUntilIdle,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Controls {
    /// The faults as they were set.
    pub faults: Map<String, Value>,
    pub notices: Notices,
    pub rejected: Option<String>,
    /// What still waits after [`ControlAction::WaitUntilIdle`], such as `2 at stream-relay`.
    pub waiting: Vec<String>,
}

/// What the relay adds to each message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MessageMetadata {
    pub(crate) message_id: String,
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) seq_num: u64,
    pub(crate) event_id: String,
    pub(crate) occurred_at: String,
    pub(crate) correlation_id: Option<String>,
    pub(crate) causation_id: Option<String>,
    pub(crate) actor: Option<String>,
}

impl MessageMetadata {
    pub(crate) fn of_detail(detail: &str) -> Self {
        #[derive(Deserialize)]
        struct Detail {
            metadata: MessageMetadata,
        }
        serde_json::from_str::<Detail>(detail).map(|detail| detail.metadata).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DeadLetterAction {
    Nothing,
    Redrive(Vec<String>),
    RedriveAll,
    Delete(Vec<String>),
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DeadLetters {
    pub messages: Vec<WaitingMessage>,
    pub outcomes: Vec<DeadLetterOutcome>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DeadLetterOutcome {
    pub id: String,
    /// `sent`, `deleted`, or another word if it was not possible.
    pub outcome: String,
    pub reason: Option<String>,
}

pub(crate) fn queue_name(queue_url: &str) -> &str {
    queue_url.rsplit(['/', ':']).next().unwrap_or_default()
}

/// What the parts of the local stack wait for, and its latest requests.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StreamState {
    pub mappings: Vec<ShownMapping>,
    pub queues: Vec<QueueDepth>,
    pub rules: Vec<Rule>,
    /// The batches of records that mappings discarded.
    pub discarded: Vec<Value>,
    /// The requests of each of the last 60 minutes, the earliest first.
    pub traffic: Vec<Minute>,
}

/// The requests to the API in a minute, and the median of their durations.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Minute {
    pub requests: usize,
    pub median_ms: f64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownMapping {
    pub function: String,
    /// Its name in the template.
    pub mapping: String,
    pub enabled: bool,
    pub paused: bool,
    pub shards: Vec<Shard>,
}

/// A mapping in a shard of the table's stream.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shard {
    pub shard: String,
    /// The number of records that are not settled.
    pub waiting: usize,
    pub oldest_age_ms: Option<i64>,
    /// Of the last invocation, such as `OK` or `PROBLEM: the function failed`; `None` before the first.
    pub last_result: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct QueueDepth {
    pub queue: String,
    pub visible: u64,
    /// The messages that wait for a retry, or are being processed.
    pub hidden: u64,
    pub purpose: QueuePurpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueuePurpose {
    /// Nothing takes messages out of it by itself.
    DeadLetters,
    /// The projector gets the changes of aggregates from it.
    Changes,
    /// The reactor gets from it which deadlines and dispatches are due, and which sources of processes have changed.
    Reactions,
    /// A rule of the bus sends messages to it.
    Rule,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The option `--rule` as it was given.
    pub rule: String,
    pub pattern: Value,
    pub queue: String,
    pub visible: usize,
    pub hidden: usize,
    pub dead_letter_queue: String,
    pub dead_letters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<RuleInvocations>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleInvocations {
    pub name: String,
    pub invocations: u64,
    pub failures: u64,
    pub last_error: Option<String>,
}

#[derive(Debug)]
pub struct Relay {
    pub mappings: Vec<RelayMapping>,
    pub age: Option<IteratorAge>,
}

/// The age of the oldest record at an invocation of the relay.
#[derive(Debug)]
pub struct IteratorAge {
    pub milliseconds: f64,
    /// The minute of the invocation.
    pub at: Timestamp,
}

#[derive(Debug)]
pub struct RelayMapping {
    pub id: String,
    pub state: String,
    pub last_result: String,
}

#[derive(Debug)]
pub struct Health {
    pub alarms: Vec<Alarm>,
    /// The requests of each of the last 60 minutes, the earliest first; empty if the stack has no alarm on its API.
    pub traffic: Vec<Minute>,
}

/// An alarm with the figures of the last three hours.
#[derive(Debug)]
pub struct Alarm {
    pub name: String,
    pub description: String,
    /// `OK`, `ALARM` or `INSUFFICIENT_DATA`.
    pub state: String,
    /// Why it is in this state, in CloudWatch's words.
    pub reason: String,
    pub threshold: Option<f64>,
    /// Such as `GreaterThanThreshold`.
    pub comparison: String,
    /// The earliest first.
    pub values: Vec<f64>,
}
