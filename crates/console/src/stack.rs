//! What the pages get from a stack besides its tables.

use std::fmt;
use std::time::Duration;

use axum::http::HeaderMap;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub const IDLE_PATIENCE: Duration = Duration::from_secs(10);

/// The response of a stack.
pub type Reply<'a, T> = BoxFuture<'a, Result<T, StackError>>;

/// What the pages get from a stack besides its tables. A page calls one method, once; only *Stream* of a stack on AWS calls two,
/// because one of them may lack the permission. A stack has the methods that its pages call.
pub trait StackSource: Send + Sync {
    /// The dead-letter messages, after the action.
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters>;

    /// Messages on the bus of the local stack.
    fn messages(&self, _: MessageQuery) -> Reply<'_, BusPart> {
        absent()
    }

    /// What the parts of the local stack wait for, and what it has used.
    fn stream(&self) -> Reply<'_, StreamState> {
        absent()
    }

    /// The faults and the clock of the local stack, after the action.
    fn controls(&self, _: ControlAction) -> Reply<'_, Controls> {
        absent()
    }

    /// The relay of a stack on AWS.
    fn relay(&self) -> Reply<'_, Relay> {
        absent()
    }

    /// The queues of a stack on AWS.
    fn queues(&self) -> Reply<'_, Vec<Queue>> {
        absent()
    }

    /// The dead-letter queue of a stack on AWS.
    fn dead_letter_queue(&self) -> Reply<'_, Queue> {
        absent()
    }

    /// The alarms of a stack on AWS.
    fn alarms(&self) -> Reply<'_, Vec<Alarm>> {
        absent()
    }
}

fn absent<'a, T>() -> Reply<'a, T> {
    Box::pin(async { Err(StackError("this kind of stack does not have it".to_owned())) })
}

/// Why a stack did not return what a page needs. The page shows it to the person who started the stack or the console.
#[derive(Debug)]
pub struct StackError(pub String);

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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

/// What to do before the faults and the clock are returned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ControlAction {
    Nothing,
    SetFaults(Value),
    /// Moves the clock forward by a duration such as `14d`.
    MoveClock(String),
    /// Waits until no mapping and no queue has anything left, except for dead-letter queues.
    WaitUntilIdle,
}

/// The faults and the clock of the local stack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Controls {
    /// The faults as they were set.
    pub faults: Map<String, Value>,
    pub notices: Notices,
    /// Why the action was not possible.
    pub rejected: Option<String>,
    /// What still waits after [`ControlAction::WaitUntilIdle`], such as `2 at stream-relay`.
    pub waiting: Vec<String>,
}

/// Which messages on the bus; all if no member is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageQuery {
    /// Only those of an aggregate, `TYPE/ID`, or of a type, `TYPE/`.
    pub aggregate: Option<String>,
    /// Only those whose type contains the text.
    pub message_type: Option<String>,
    /// Only those whose detail contains the text.
    pub containing: Option<String>,
    /// Only those of one business transaction. Without effect together with `ids`.
    pub correlation: Option<String>,
    /// Only those with one of these message ids.
    pub ids: Option<Vec<String>>,
    pub after: Option<usize>,
    pub before: Option<usize>,
    /// The maximum number; the last ones are returned.
    pub limit: Option<usize>,
    /// Whether all dead-letter messages are returned, too.
    pub with_dead_letters: bool,
}

/// A part of the messages on the bus.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BusPart {
    /// The last ones, in order of arrival.
    pub messages: Vec<BusMessage>,
    /// The number of all that match, from the position `searched_from` on.
    pub matching: usize,
    /// The first position that was compared with the query.
    pub searched_from: usize,
    /// The position of the last message of all.
    pub last: usize,
    /// All dead-letter messages, if the query asks for them.
    pub dead_letters: Vec<QueuedDeadLetter>,
}

/// A message that the bus accepted.
#[derive(Debug, Serialize, Deserialize)]
pub struct BusMessage {
    /// Its position among all messages, counted from 1.
    pub position: usize,
    /// In milliseconds since 1970.
    pub accepted_at: Option<i64>,
    pub detail_type: String,
    pub resources: Vec<String>,
    /// JSON.
    pub detail: String,
    /// What became of it in the queues of rules.
    pub targets: Vec<MessageTarget>,
}

/// What became of a message in the queue of a rule. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MessageTarget {
    pub queue: String,
    pub sent_at: i64,
    pub receives: u32,
    pub first_received_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub outcome: Option<TargetOutcome>,
}

/// How a message has left the queue of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetOutcome {
    /// The consumer has deleted it.
    Processed,
    /// It is in the dead-letter queue of the rule.
    DeadLettered,
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
    /// The metadata in the detail of a message.
    pub(crate) fn of_detail(detail: &str) -> Self {
        #[derive(Deserialize)]
        struct Detail {
            metadata: MessageMetadata,
        }
        serde_json::from_str::<Detail>(detail).map(|detail| detail.metadata).unwrap_or_default()
    }
}

/// What to do before the dead-letter messages are listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum DeadLetterAction {
    Nothing,
    /// Sends the messages with these ids again.
    Redrive(Vec<String>),
    RedriveAll,
    Delete(Vec<String>),
}

/// The messages in dead-letter queues, and what became of those of an action.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DeadLetters {
    pub messages: Vec<QueuedDeadLetter>,
    pub outcomes: Vec<DeadLetterOutcome>,
}

/// What became of a message of an action.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeadLetterOutcome {
    pub id: String,
    /// `sent`, `deleted`, or another word if it was not possible.
    pub outcome: String,
    pub reason: Option<String>,
}

/// A message that is in a dead-letter queue.
#[derive(Debug, Serialize, Deserialize)]
pub struct QueuedDeadLetter {
    /// The queue's id of it.
    pub id: String,
    pub queue_url: String,
    /// In milliseconds since 1970.
    pub sent_at: i64,
    pub receives: u32,
    pub body: String,
}

impl QueuedDeadLetter {
    pub(crate) fn queue(&self) -> &str {
        self.queue_url.rsplit(['/', ':']).next().unwrap_or_default()
    }

    /// What the relay wrote about a message that it could not send. Every member is empty for a message of another
    /// sender.
    pub(crate) fn content(&self) -> DeadLetterContent {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The message in an event that the bus sent to the queue of a rule; `None` for other bodies.
    pub(crate) fn message_of_event(&self) -> Option<DeadOutboxRow> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct BusEvent<'a> {
            detail_type: String,
            #[serde(borrow)]
            detail: &'a RawValue,
        }
        let BusEvent { detail_type, detail } = serde_json::from_str(&self.body).ok()?;
        let message_id = MessageMetadata::of_detail(detail.get()).message_id;
        Some(DeadOutboxRow { message_id, message_type: detail_type, detail: detail.get().to_owned() })
    }
}

/// The body of a dead-letter message of the relay.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadLetterContent {
    pub(crate) message: Option<DeadOutboxRow>,
    pub(crate) error: Option<DeadLetterError>,
    pub(crate) attempts: u32,
}

/// The outbox row of a message that could not be sent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadOutboxRow {
    pub(crate) message_id: String,
    pub(crate) message_type: String,
    pub(crate) detail: String,
}

/// Why a message could not be sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeadLetterError {
    pub(crate) code: String,
    #[serde(alias = "message")]
    pub(crate) text: String,
}

/// What the parts of the local stack wait for, and what it has used since its start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StreamState {
    pub mappings: Vec<Mapping>,
    pub queues: Vec<Queue>,
    pub rules: Vec<Rule>,
    /// The batches of records that mappings discarded.
    pub discarded: Vec<Value>,
    /// Counts by name, some of them in objects: `{"apiRequests": 1, "calls": {"Query": 2}}`.
    pub usage: Value,
}

/// An event source mapping in front of a function.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mapping {
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

/// A queue with the numbers of its messages.
#[derive(Debug, Serialize, Deserialize)]
pub struct Queue {
    pub queue: String,
    /// The messages that can be received.
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
    /// A rule of the bus sends messages to it.
    Rule,
}

/// A rule of the local stack's bus.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The option `--rule` as it was given.
    pub rule: String,
    pub queue: String,
    pub visible: usize,
    pub hidden: usize,
    pub dead_letter_queue: String,
    pub dead_letters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<RuleFunction>,
}

/// The invocations of the function of a rule.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleFunction {
    pub name: String,
    pub invocations: u64,
    pub failures: u64,
    pub last_error: Option<String>,
}

/// The relay of a stack on AWS.
#[derive(Debug)]
pub struct Relay {
    pub mappings: Vec<RelayMapping>,
    /// The age of the oldest record at its last invocation, in milliseconds.
    pub iterator_age_ms: Option<f64>,
    /// When that was, in milliseconds since 1970.
    pub at: Option<i64>,
}

#[derive(Debug)]
pub struct RelayMapping {
    pub id: String,
    pub state: String,
    pub last_result: String,
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
    /// Times in milliseconds since 1970, and values.
    pub points: Vec<(f64, f64)>,
}
