//! The calls that an invocation of the relay may make, given the responses that it has received: the guarantees that its calls
//! must keep.

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
const ATTEMPTS_AT_THE_UNKNOWN: usize = 5;

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
    things: Vec<Thing>,
    /// The time at which the bus rejected the deployment.
    stopped: Option<Instant>,
}

/// A message or record that must be settled.
#[derive(Debug)]
struct Thing {
    what: What,
    /// The sequence numbers of the records that are settled with it.
    numbers: Vec<Option<SequenceNumber>>,
    lane: Option<String>,
    /// The order in its aggregate; 0 for an unreadable record, which precedes the others of its per-aggregate queue.
    order: u64,
    sent: usize,
    /// The codes of its failures, and whether it was alone in its request.
    refused: Vec<(String, bool)>,
    settled: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
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

/// The meaning of the codes that the campaign returns.
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
        let mut ledger = Self { invocation, log, messages, cutoff, things: Vec::new(), stopped: None };
        for delivery in records {
            ledger.take(delivery);
        }
        ledger
    }

    fn take(&mut self, Delivery { content, json }: &Delivery) {
        let number = json["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse);
        let (what, lane, order) = match content {
            Content::SomethingElse => return,
            Content::Message(index) => {
                let message = &self.messages[*index];
                let readable = message.kind != MessageKind::Unreadable;
                let what = if readable { What::Message(*index) } else { What::Raw(json.clone()) };
                (what, Some(message.pk.clone()), if readable { message.seq } else { 0 })
            }
            Content::Poison(pk) => (What::Raw(json.clone()), pk.clone(), 0),
        };
        let known = self.things.iter_mut().find(|thing| matches!(thing.what, What::Message(_)) && thing.what == what);
        match known {
            Some(thing) => thing.numbers.push(number),
            None => self.things.push(Thing {
                what,
                numbers: vec![number],
                lane,
                order,
                sent: 0,
                refused: vec![],
                settled: false,
            }),
        }
    }

    fn violation(&self, what: &str) {
        self.log.violation(format!("invocation {}: {what}", self.invocation));
    }

    fn name(&self, thing: &Thing) -> String {
        match &thing.what {
            What::Message(index) => {
                let message = &self.messages[*index];
                format!("message {} of {}", message.seq, message.pk)
            }
            What::Raw(json) => format!("record {}", json["dynamodb"]["SequenceNumber"]),
        }
    }

    fn of_message(&self, index: usize) -> Option<usize> {
        self.things.iter().position(|thing| thing.what == What::Message(index))
    }

    /// Whether everything that precedes it in its per-aggregate queue is settled.
    fn is_first(&self, thing: &Thing) -> bool {
        let before = |other: &Thing| other.lane == thing.lane && other.lane.is_some() && other.order < thing.order;
        self.things.iter().all(|other| other.settled || !before(other))
    }

    /// Checks a request with these messages.
    pub(crate) fn sends(&mut self, request: &[usize]) {
        // Responses of the same instant are received one after the other.
        if self.stopped.is_some_and(|stopped| stopped < Instant::now()) {
            self.violation("a message is sent after the bus rejected the deployment");
        }
        if Instant::now() >= self.cutoff {
            self.violation("a message is sent after the time limit");
        }
        let mut lanes = BTreeSet::new();
        for &index in request {
            let Some(at) = self.of_message(index) else {
                self.violation(&format!("message {index} is sent but is not in the batch"));
                continue;
            };
            let thing = &self.things[at];
            let name = self.name(thing);
            if thing.settled {
                self.violation(&format!("{name} is sent although it is settled"));
            }
            if !self.is_first(thing) || !lanes.insert(thing.lane.clone()) {
                self.violation(&format!("{name} is sent while an earlier one is unsettled"));
            }
            if thing.refused.iter().any(|(code, alone)| meaning(code) == Meaning::Permanent && *alone) {
                self.violation(&format!("{name} is sent although it was permanently rejected"));
            }
            self.things[at].sent += 1;
        }
    }

    /// The bus accepted this entry, and the relay received the result.
    pub(crate) fn taken(&mut self, index: usize) {
        if let Some(at) = self.of_message(index) {
            self.things[at].settled = true;
        }
    }

    /// The bus rejected this entry, and the relay received the result. A code for the entry counts like a code for a request with
    /// only this entry.
    pub(crate) fn refused(&mut self, index: usize, code: &str, alone: bool) {
        if meaning(code) == Meaning::Deployment {
            self.stopped.get_or_insert(Instant::now());
        }
        if let Some(at) = self.of_message(index) {
            self.things[at].refused.push((code.to_owned(), alone));
        }
    }

    /// Checks a dead-letter message. Returns the message or record that it contains.
    pub(crate) fn parks(&mut self, letter: &Value) -> Option<usize> {
        if Instant::now() >= self.cutoff {
            self.violation("a dead-letter message is sent after the time limit");
        }
        let Some(at) = self.things.iter().position(|thing| !thing.settled && self.is_of(letter, thing)) else {
            self.violation(&format!("a dead-letter message is incomplete, or of no record in the batch: {letter}"));
            return None;
        };
        let thing = &self.things[at];
        let name = self.name(thing);
        if !self.is_first(thing) {
            self.violation(&format!("{name} is dead-lettered while an earlier one is unsettled"));
        }
        let code = letter["error"]["code"].as_str().unwrap_or_default();
        if !self.may_park(thing, code) {
            self.violation(&format!("{name} is dead-lettered with {code:?}, but its failures are {:?}", thing.refused));
        }
        if letter["attempts"] != thing.sent {
            self.violation(&format!(
                "{name} was sent {} times, its dead-letter message contains {}",
                thing.sent, letter["attempts"]
            ));
        }
        let number = letter["stream"]["sequenceNumber"].as_str().and_then(SequenceNumber::parse);
        if !thing.numbers.contains(&number) {
            self.violation(&format!("{name}: its dead-letter message is of record {number:?}"));
        }
        Some(at)
    }

    /// Whether a dead-letter message contains all of it.
    fn is_of(&self, letter: &Value, thing: &Thing) -> bool {
        match &thing.what {
            What::Message(index) => letter["message"] == plain(&self.messages[*index].image),
            What::Raw(json) => letter["record"] == *json,
        }
    }

    fn may_park(&self, thing: &Thing, code: &str) -> bool {
        match &thing.what {
            What::Raw(_) => code == "UnreadableRecord",
            What::Message(index) if thing.sent == 0 => self.messages[*index].kind == MessageKind::Unsendable,
            What::Message(_) => thing.refused.last().is_some_and(|(last, alone)| {
                last == code
                    && match meaning(code) {
                        Meaning::Permanent => *alone,
                        Meaning::Unknown => thing.sent >= ATTEMPTS_AT_THE_UNKNOWN,
                        Meaning::Transient | Meaning::Deployment => false,
                    }
            }),
        }
    }

    /// The queue accepted a dead-letter message of this, or of another record with the same bytes, and the relay received the
    /// response.
    pub(crate) fn parked(&mut self, at: usize) {
        let what = self.things[at].what.clone();
        if let Some(thing) = self.things.iter_mut().find(|thing| !thing.settled && thing.what == what) {
            thing.settled = true;
        }
    }

    /// Checks the relay's response: an error, or this JSON.
    pub(crate) fn close(&self, answer: &InvocationOutcome) {
        if Instant::now() > self.cutoff {
            self.violation("the relay responds late");
        }
        let unsettled: Vec<_> = self.things.iter().filter(|thing| !thing.settled).collect();
        let numbers: Vec<_> = unsettled.iter().flat_map(|thing| &thing.numbers).collect();
        let right = match answer {
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
            let names: Vec<_> = unsettled.iter().map(|thing| self.name(thing)).collect();
            self.violation(&format!("unsettled are {names:?} at {numbers:?}, the response is {answer:?}"));
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
