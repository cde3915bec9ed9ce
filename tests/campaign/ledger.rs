//! What an invocation of the relay may do, by what it was told so far: the promises that show at the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::InvocationOutcome;
use daybook_stream_relay::SequenceNumber;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::log::Log;
use crate::stream::{Content, Kind, Message};

/// How often the relay tries a message that fails with a code that is not documented.
const ATTEMPTS_AT_THE_UNKNOWN: usize = 5;

/// A record as it is delivered: what it is, and the JSON that says so.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub(crate) content: Content,
    pub(crate) json: Value,
}

/// The account of one invocation.
#[derive(Debug)]
pub(crate) struct Ledger {
    invocation: u64,
    log: Arc<Log>,
    messages: Arc<Vec<Message>>,
    /// When the relay must have answered.
    cutoff: Instant,
    things: Vec<Thing>,
    /// When the bus refused the deployment.
    stopped: Option<Instant>,
}

/// Something that must be settled.
#[derive(Debug)]
struct Thing {
    what: What,
    /// Of each record that is settled with it.
    numbers: Vec<Option<SequenceNumber>>,
    lane: Option<String>,
    /// 0 for what cannot be read: it goes before the rest of its lane.
    order: u64,
    sent: usize,
    /// Codes that it was refused with, and whether alone in its request.
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

/// What a code of the bus means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It passes.
    Transient,
    /// It does not.
    Permanent,
    /// The deployment is at fault.
    Deployment,
    /// Nobody knows.
    Unknown,
}

/// What the codes that the campaign answers with mean.
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
    /// The account of an invocation with these records that must answer by `cutoff`.
    pub(crate) fn open(
        invocation: u64,
        log: Arc<Log>,
        messages: Arc<Vec<Message>>,
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
                let readable = message.kind != Kind::Unreadable;
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

    /// Whether nothing of its lane that comes before it is unsettled.
    fn is_first(&self, thing: &Thing) -> bool {
        let before = |other: &Thing| other.lane == thing.lane && other.lane.is_some() && other.order < thing.order;
        self.things.iter().all(|other| other.settled || !before(other))
    }

    /// A request with these messages goes out.
    pub(crate) fn sends(&mut self, request: &[usize]) {
        // Answers of one moment are heard one after the other.
        if self.stopped.is_some_and(|stopped| stopped < Instant::now()) {
            self.violation("something is sent after the bus refused the deployment");
        }
        if Instant::now() >= self.cutoff {
            self.violation("something is sent after the time is up");
        }
        let mut lanes = BTreeSet::new();
        for &index in request {
            let Some(at) = self.of_message(index) else {
                self.violation(&format!("message {index} is sent and is not in the batch"));
                continue;
            };
            let thing = &self.things[at];
            let name = self.name(thing);
            if thing.settled {
                self.violation(&format!("{name} is sent though it is settled"));
            }
            if !self.is_first(thing) || !lanes.insert(thing.lane.clone()) {
                self.violation(&format!("{name} is sent while an earlier one is unsettled"));
            }
            if thing.refused.iter().any(|(code, alone)| meaning(code) == Meaning::Permanent && *alone) {
                self.violation(&format!("{name} is sent though it was refused for good"));
            }
            self.things[at].sent += 1;
        }
    }

    /// The bus took this one, and the relay is told so.
    pub(crate) fn taken(&mut self, index: usize) {
        if let Some(at) = self.of_message(index) {
            self.things[at].settled = true;
        }
    }

    /// The bus refused this entry, and the relay is told so. A code for the entry is as good as one for a request of
    /// its own.
    pub(crate) fn refused(&mut self, index: usize, code: &str, alone: bool) {
        if meaning(code) == Meaning::Deployment {
            self.stopped.get_or_insert(Instant::now());
        }
        if let Some(at) = self.of_message(index) {
            self.things[at].refused.push((code.to_owned(), alone));
        }
    }

    /// A letter goes out. Answers what it is about.
    pub(crate) fn parks(&mut self, letter: &Value) -> Option<usize> {
        if Instant::now() >= self.cutoff {
            self.violation("something is parked after the time is up");
        }
        let Some(at) = self.things.iter().position(|thing| !thing.settled && self.is_of(letter, thing)) else {
            self.violation(&format!("a letter that is not whole, or of nothing in the batch: {letter}"));
            return None;
        };
        let thing = &self.things[at];
        let name = self.name(thing);
        if !self.is_first(thing) {
            self.violation(&format!("{name} is parked while an earlier one is unsettled"));
        }
        let code = letter["error"]["code"].as_str().unwrap_or_default();
        if !self.may_park(thing, code) {
            self.violation(&format!("{name} is parked for {code:?}, and was answered {:?}", thing.refused));
        }
        if letter["attempts"] != thing.sent {
            self.violation(&format!("{name} was sent {} times, its letter says {}", thing.sent, letter["attempts"]));
        }
        let number = letter["stream"]["sequenceNumber"].as_str().and_then(SequenceNumber::parse);
        if !thing.numbers.contains(&number) {
            self.violation(&format!("{name}: its letter is of record {number:?}"));
        }
        Some(at)
    }

    /// Whether a letter holds all of it.
    fn is_of(&self, letter: &Value, thing: &Thing) -> bool {
        match &thing.what {
            What::Message(index) => letter["message"] == plain(&self.messages[*index].image),
            What::Raw(json) => letter["record"] == *json,
        }
    }

    fn may_park(&self, thing: &Thing, code: &str) -> bool {
        match &thing.what {
            What::Raw(_) => code == "UnreadableRecord",
            What::Message(index) if thing.sent == 0 => self.messages[*index].kind == Kind::Unsendable,
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

    /// The queue took a letter about this, or about another record that is the same to the last byte, and the relay is
    /// told so.
    pub(crate) fn parked(&mut self, at: usize) {
        let what = self.things[at].what.clone();
        if let Some(thing) = self.things.iter_mut().find(|thing| !thing.settled && thing.what == what) {
            thing.settled = true;
        }
    }

    /// The relay answers: with an error, or with this JSON.
    pub(crate) fn close(&self, answer: &InvocationOutcome) {
        if Instant::now() > self.cutoff {
            self.violation("the relay answers late");
        }
        let unsettled: Vec<_> = self.things.iter().filter(|thing| !thing.settled).collect();
        let numbers: Vec<_> = unsettled.iter().flat_map(|thing| &thing.numbers).collect();
        let right = match answer {
            // Nobody could say where to go on.
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
            self.violation(&format!("unsettled are {names:?} at {numbers:?}, the answer is {answer:?}"));
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

/// How long before the deadline the relay answers.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);
