//! Checks each call of an invocation, and its response, against the responses that the relay has received before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::InvocationOutcome;
use daybook_stream_relay::SequenceNumber;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::log::Log;
use crate::stream::{CampaignMessage, Content, MessageKind};

/// Maximum attempts of the relay for a message that fails with an undocumented code.
const MAX_UNKNOWN_FAILURES: usize = 5;

/// A delivered record: its meaning and its JSON.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) content: Content,
    pub(crate) json: Value,
}

/// The ledger of one invocation.
#[derive(Debug)]
pub(crate) struct Ledger {
    invocation: u64,
    log: Arc<Log>,
    messages: Arc<Vec<CampaignMessage>>,
    /// The latest time for the relay's response.
    cutoff: Instant,
    /// The messages and records of the batch.
    pending: Vec<Pending>,
    /// The time at which the bus rejected the deployment.
    stopped: Option<Instant>,
}

/// A message or record that must be settled.
#[derive(Debug)]
struct Pending {
    identity: Identity,
    /// The sequence numbers of the records that are settled with it.
    numbers: Vec<Option<SequenceNumber>>,
    aggregate: Option<String>,
    /// The order in its aggregate; 0 for an unreadable record, which precedes the others of its per-aggregate queue.
    order: u64,
    sent: usize,
    /// The codes of its failures, and whether it was alone in its request.
    failures: Vec<(String, bool)>,
    settled: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Identity {
    /// The message of this index.
    Message(usize),
    /// A record that cannot be read.
    Raw(Value),
}

/// The meaning of an error code of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A transient error.
    Transient,
    /// A permanent error.
    Permanent,
    /// The bus rejects the deployment.
    Deployment,
    /// The code is undocumented.
    Unknown,
}

/// The meaning of the codes that the simulated services return.
pub(crate) fn meaning(code: &str) -> Meaning {
    match code {
        "InternalFailure" | "ThrottlingException" => Meaning::Transient,
        "MalformedDetail" | "InvalidArgument" | "RedactionFailure" | "ValidationException" => Meaning::Permanent,
        "AccessDeniedException"
        | "ExpiredTokenException"
        | "InvalidAccountIdException"
        | "NotAuthorizedForDetailTypeException"
        | "NotAuthorizedForSourceException"
        | "ResourceNotFoundException" => Meaning::Deployment,
        _ => Meaning::Unknown,
    }
}

impl Ledger {
    /// The ledger of an invocation with these records that must respond by `cutoff`.
    pub(crate) fn open(
        invocation: u64,
        log: Arc<Log>,
        messages: Arc<Vec<CampaignMessage>>,
        records: &[Delivery],
        cutoff: Instant,
    ) -> Self {
        let mut ledger = Self { invocation, log, messages, cutoff, pending: Vec::new(), stopped: None };
        for delivery in records {
            ledger.add(delivery);
        }
        ledger
    }

    fn add(&mut self, Delivery { content, json }: &Delivery) {
        let number = json["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse);
        let (identity, aggregate, order) = match content {
            Content::SomethingElse => return,
            Content::Message(index) => {
                let message = &self.messages[*index];
                let readable = message.kind != MessageKind::Unreadable;
                let identity = if readable { Identity::Message(*index) } else { Identity::Raw(json.clone()) };
                (identity, Some(message.pk.clone()), if readable { message.seq } else { 0 })
            }
            Content::Poison(pk) => (Identity::Raw(json.clone()), pk.clone(), 0),
        };
        let known = self
            .pending
            .iter_mut()
            .find(|item| matches!(item.identity, Identity::Message(_)) && item.identity == identity);
        match known {
            Some(item) => item.numbers.push(number),
            None => self.pending.push(Pending {
                identity,
                numbers: vec![number],
                aggregate,
                order,
                sent: 0,
                failures: vec![],
                settled: false,
            }),
        }
    }

    fn violation(&self, what: &str) {
        self.log.violation(format!("invocation {}: {what}", self.invocation));
    }

    fn name(&self, item: &Pending) -> String {
        match &item.identity {
            Identity::Message(index) => {
                let message = &self.messages[*index];
                format!("message {} of {}", message.seq, message.pk)
            }
            Identity::Raw(json) => format!("record {}", json["dynamodb"]["SequenceNumber"]),
        }
    }

    fn of_message(&self, index: usize) -> Option<usize> {
        self.pending.iter().position(|item| item.identity == Identity::Message(index))
    }

    /// Whether everything that precedes it in its per-aggregate queue is settled.
    fn is_first(&self, item: &Pending) -> bool {
        let before = |other: &Pending| {
            other.aggregate == item.aggregate && other.aggregate.is_some() && other.order < item.order
        };
        self.pending.iter().all(|other| other.settled || !before(other))
    }

    /// Checks a request with these messages.
    pub(crate) fn check_request(&mut self, request: &[usize]) {
        // Responses of the same instant are received one after the other.
        if self.stopped.is_some_and(|stopped| stopped < Instant::now()) {
            self.violation("a message is sent after the bus rejected the deployment");
        }
        if Instant::now() >= self.cutoff {
            self.violation("a message is sent after the time limit");
        }
        let mut aggregates = BTreeSet::new();
        for &index in request {
            let Some(at) = self.of_message(index) else {
                self.violation(&format!("message {index} is sent but is not in the batch"));
                continue;
            };
            let item = &self.pending[at];
            let name = self.name(item);
            if item.settled {
                self.violation(&format!("{name} is sent although it is settled"));
            }
            if !self.is_first(item) || !aggregates.insert(item.aggregate.clone()) {
                self.violation(&format!("{name} is sent while an earlier one is unsettled"));
            }
            if item.failures.iter().any(|(code, alone)| meaning(code) == Meaning::Permanent && *alone) {
                self.violation(&format!("{name} is sent although it was permanently rejected"));
            }
            self.pending[at].sent += 1;
        }
    }

    /// The bus accepted this entry, and the relay received the result.
    pub(crate) fn entry_accepted(&mut self, index: usize) {
        if let Some(at) = self.of_message(index) {
            self.pending[at].settled = true;
        }
    }

    /// The bus rejected this entry, and the relay received the result. A code for the entry counts like a code for a
    /// request with only this entry.
    pub(crate) fn entry_failed(&mut self, index: usize, code: &str, alone: bool) {
        if meaning(code) == Meaning::Deployment {
            self.stopped.get_or_insert(Instant::now());
        }
        if let Some(at) = self.of_message(index) {
            self.pending[at].failures.push((code.to_owned(), alone));
        }
    }

    /// Checks a dead-letter message. Returns the message or record that it contains.
    pub(crate) fn check_dead_letter(&mut self, dead_letter: &Value) -> Option<usize> {
        if Instant::now() >= self.cutoff {
            self.violation("a dead-letter message is sent after the time limit");
        }
        let Some(at) = self.pending.iter().position(|item| !item.settled && self.is_of(dead_letter, item)) else {
            self.violation(&format!(
                "a dead-letter message is incomplete, or of no record in the batch: {dead_letter}"
            ));
            return None;
        };
        let item = &self.pending[at];
        let name = self.name(item);
        if !self.is_first(item) {
            self.violation(&format!("{name} is dead-lettered while an earlier one is unsettled"));
        }
        let code = dead_letter["error"]["code"].as_str().unwrap_or_default();
        if !self.may_dead_letter(item, code) {
            self.violation(&format!("{name} is dead-lettered with {code:?}, but its failures are {:?}", item.failures));
        }
        if dead_letter["attempts"] != item.sent {
            self.violation(&format!(
                "{name} was sent {} times, its dead-letter message contains {}",
                item.sent, dead_letter["attempts"]
            ));
        }
        let number = dead_letter["stream"]["sequenceNumber"].as_str().and_then(SequenceNumber::parse);
        if !item.numbers.contains(&number) {
            self.violation(&format!("{name}: its dead-letter message is of record {number:?}"));
        }
        Some(at)
    }

    /// Whether a dead-letter message contains all of it.
    fn is_of(&self, dead_letter: &Value, item: &Pending) -> bool {
        match &item.identity {
            Identity::Message(index) => dead_letter["message"] == plain(&self.messages[*index].image),
            Identity::Raw(json) => dead_letter["record"] == *json,
        }
    }

    fn may_dead_letter(&self, item: &Pending, code: &str) -> bool {
        match &item.identity {
            Identity::Raw(_) => code == "UnreadableRecord",
            Identity::Message(index) if item.sent == 0 => self.messages[*index].kind == MessageKind::Unsendable,
            Identity::Message(_) => item.failures.last().is_some_and(|(last, alone)| {
                last == code
                    && match meaning(code) {
                        Meaning::Permanent => *alone,
                        Meaning::Unknown => item.sent >= MAX_UNKNOWN_FAILURES,
                        Meaning::Transient | Meaning::Deployment => false,
                    }
            }),
        }
    }

    /// The queue accepted a dead-letter message of this, or of another record with the same bytes, and the relay
    /// received the response.
    pub(crate) fn dead_letter_accepted(&mut self, at: usize) {
        let identity = self.pending[at].identity.clone();
        if let Some(item) = self.pending.iter_mut().find(|item| !item.settled && item.identity == identity) {
            item.settled = true;
        }
    }

    /// Checks the relay's response: an error, or this JSON.
    pub(crate) fn check_response(&self, response: &InvocationOutcome) {
        if Instant::now() > self.cutoff {
            self.violation("the relay responds late");
        }
        let unsettled: Vec<_> = self.pending.iter().filter(|item| !item.settled).collect();
        let numbers: Vec<_> = unsettled.iter().flat_map(|item| &item.numbers).collect();
        let right = match response {
            // No sequence number is known to continue from.
            InvocationOutcome::FunctionError => numbers.contains(&&None),
            InvocationOutcome::Returned(json) => {
                let lowest = numbers.iter().copied().min();
                let failures: Vec<_> = lowest
                    .into_iter()
                    .map(|number| json!({"itemIdentifier": number.as_ref().map(SequenceNumber::as_str)}))
                    .collect();
                serde_json::from_str::<Value>(json).unwrap() == json!({"batchItemFailures": failures})
                    && !numbers.contains(&&None)
            }
            InvocationOutcome::NotInvoked => false,
        };
        if !right {
            let names: Vec<_> = unsettled.iter().map(|item| self.name(item)).collect();
            self.violation(&format!("unsettled are {names:?} at {numbers:?}, the response is {response:?}"));
        }
    }
}

/// A row as plain JSON.
pub(crate) fn plain(image: &Value) -> Value {
    let value = |value: &Value| match (&value["S"], &value["N"]) {
        (Value::String(text), _) => Value::from(text.as_str()),
        (_, Value::String(number)) => serde_json::from_str(number).unwrap(),
        _ => value.clone(),
    };
    let members: BTreeMap<_, _> =
        image.as_object().unwrap().iter().map(|(name, of)| (name.clone(), value(of))).collect();
    members.into_iter().collect()
}

/// The time before the deadline at which the relay responds.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);
