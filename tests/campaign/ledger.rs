//! Checks each call of an invocation, and its response, against the responses that the relay has received before.
//!
//! An invocation uses its time. It may respond with unsettled messages before its cutoff, which is the deadline minus the
//! relay's margin, only if
//! - the bus has rejected the deployment;
//! - the breaker is open, because the bus has accepted no message in this invocation and has rejected several, and it has
//!   sent each message once that can be sent, or [`MAX_PROBES`];
//! - no unsettled message can still be tried: the first of each aggregate is one that the dead-letter queue refused in
//!   all attempts; or
//! - the rest of the time is shorter than the longest wait before a retry: [`RetryPolicy`] limits that wait by the number
//!   of attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::InvocationOutcome;
use daybook_stream_relay::{RetryPolicy, SequenceNumber};
use daybook_table::attributes::CHECKSUM;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::evidence::{Attempts, Evidence};
use crate::log::Log;
use crate::services::Services;
use crate::stream::{CampaignMessage, Content, MessageKind};

/// The time before the deadline at which the relay responds.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);

/// The time after which a message is dead-lettered that fails transiently, if the bus only accepted others before. The relay
/// also counts rejections of earlier invocations for this time.
const IN_DOUBT: Duration = Duration::from_secs(60);

/// The relay's retries.
pub(crate) fn retry_policy() -> RetryPolicy {
    RetryPolicy { margin: MARGIN, unclear: IN_DOUBT, ..RetryPolicy::default() }
}

/// Maximum requests of the relay while the breaker is open.
const MAX_PROBES: usize = 100;

/// Maximum attempts of the relay for a message that fails with an undocumented code.
const MAX_UNKNOWN_FAILURES: usize = 5;

/// The attempts before a message that fails transiently is dead-lettered.
const MIN_ATTEMPTS: usize = 5;

/// Maximum attempts of the relay for a dead-letter message.
const MAX_DEAD_LETTER_ATTEMPTS: usize = 3;

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
    /// Whether the bus has accepted a message.
    has_accepted: bool,
    /// What the instance learned about the bus, in earlier invocations too.
    evidence: Evidence,
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
    /// The event id of its first record.
    event_id: String,
    /// The attempts to send it in this process, and in this invocation.
    attempts: Attempts,
    sent: usize,
    /// The codes of its failures, and whether it was alone in its request.
    failures: Vec<(String, bool)>,
    dead_letter_attempts: usize,
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
    /// The bus throttles.
    Throttled,
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
        "ThrottlingException" => Meaning::Throttled,
        // The last four are the relay's own.
        "InternalFailure" | "InconsistentResponse" | "NoResponse" | "NoResult" | "UnreadableResponse" => {
            Meaning::Transient
        }
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
        services: &Services,
        records: &[Delivery],
        cutoff: Instant,
        evidence: Evidence,
    ) -> Self {
        let (log, messages) = (Arc::clone(services.log()), Arc::clone(services.messages()));
        let (pending, stopped, has_accepted) = (Vec::new(), None, false);
        let mut ledger = Self { invocation, log, messages, cutoff, pending, stopped, has_accepted, evidence };
        for delivery in records {
            ledger.add(delivery);
        }
        ledger
    }

    fn add(&mut self, Delivery { content, json }: &Delivery) {
        let number = json["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse);
        let event_id = json["eventID"].as_str().unwrap();
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
        match self.pending.iter_mut().find(|item| item.identity == identity) {
            Some(item) => item.numbers.push(number),
            None => self.pending.push(Pending {
                identity,
                numbers: vec![number],
                aggregate,
                order,
                event_id: event_id.to_owned(),
                attempts: self.evidence.attempts(event_id),
                sent: 0,
                failures: vec![],
                dead_letter_attempts: 0,
                settled: self.evidence.has_settled(event_id),
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
            if item.is_rejected() {
                self.violation(&format!("{name} is sent although it was permanently rejected"));
            }
            self.pending[at].sent += 1;
            self.pending[at].attempts.count += 1;
            self.pending[at].attempts.first.get_or_insert(Instant::now());
        }
    }

    /// The bus accepted this entry, and the relay received the result.
    pub(crate) fn entry_accepted(&mut self, index: usize) {
        self.has_accepted = true;
        self.evidence.accepted(index);
        if let Some(at) = self.of_message(index) {
            self.settle(at);
        }
    }

    /// A service accepted this message or record, and the relay received the response.
    pub(crate) fn settle(&mut self, at: usize) {
        self.pending[at].settled = true;
        self.evidence.settled(&self.pending[at].event_id);
    }

    /// The bus rejected this entry, and the relay received the result. A code for the entry counts like a code for a
    /// request with only this entry.
    pub(crate) fn entry_failed(&mut self, index: usize, code: &str, alone: bool) {
        if meaning(code) == Meaning::Deployment {
            self.stopped.get_or_insert(Instant::now());
        }
        if let Some(at) = self.of_message(index) {
            self.pending[at].failures.push((code.to_owned(), alone));
            if self.pending[at].is_rejected() {
                self.evidence.rejected(index, code);
            }
        }
    }

    /// Whether a message that fails transiently may be dead-lettered: it was often tried, and the bus accepts others, or
    /// accepted them shortly before.
    fn is_given_up(&self, item: &Pending) -> bool {
        let (Identity::Message(index), Some(first)) = (&item.identity, item.attempts.first) else { return false };
        let is_in_doubt = self.has_accepted || self.evidence.has_failed_beside_others(*index);
        let is_alone = self.evidence.has_accepted_since(first);
        item.attempts.count >= MIN_ATTEMPTS
            && (is_alone && first.elapsed() >= retry_policy().alone || is_in_doubt && first.elapsed() >= IN_DOUBT)
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
        self.pending[at].dead_letter_attempts += 1;
        let code = dead_letter["error"]["code"].as_str().unwrap_or_default();
        let item = &self.pending[at];
        let name = self.name(item);
        if !self.is_first(item) {
            self.violation(&format!("{name} is dead-lettered while an earlier one is unsettled"));
        }
        if !self.may_dead_letter(item, code) {
            self.violation(&format!("{name} is dead-lettered with {code:?}, but its failures are {:?}", item.failures));
        }
        if dead_letter["attempts"] != item.attempts.count {
            let attempts = &dead_letter["attempts"];
            self.violation(&format!(
                "{name}: {:?}, its dead-letter message contains {attempts} attempts",
                item.attempts
            ));
        }
        let number = dead_letter["stream"]["sequenceNumber"].as_str().and_then(SequenceNumber::parse);
        if !item.numbers.contains(&number) {
            self.violation(&format!("{name}: its dead-letter message is of record {number:?}"));
        }
        self.pending[at].attempts.dead_lettered = Some(code.to_owned());
        Some(at)
    }

    /// Whether a dead-letter message contains all of it.
    fn is_of(&self, dead_letter: &Value, item: &Pending) -> bool {
        match &item.identity {
            Identity::Message(index) => {
                let mut row = plain(&self.messages[*index].image);
                // The checksum is about the row in the table.
                row.as_object_mut().unwrap().remove(CHECKSUM);
                dead_letter["message"] == row
            }
            Identity::Raw(json) => dead_letter["record"] == *json,
        }
    }

    fn may_dead_letter(&self, item: &Pending, code: &str) -> bool {
        match &item.identity {
            Identity::Raw(_) => code == "UnreadableRecord",
            Identity::Message(_) if item.attempts.dead_lettered.as_deref() == Some(code) => true,
            Identity::Message(index) if item.sent == 0 => self.messages[*index].kind == MessageKind::Unsendable,
            Identity::Message(_) => {
                let last = item.failures.last().filter(|(last, _)| last == code);
                match meaning(code) {
                    Meaning::Permanent => last.is_some_and(|(_, alone)| *alone),
                    Meaning::Unknown => last.is_some() && item.sent >= MAX_UNKNOWN_FAILURES,
                    Meaning::Transient => {
                        self.log.count("dead-lettered after failing alone");
                        self.is_given_up(item)
                    }
                    Meaning::Throttled | Meaning::Deployment => false,
                }
            }
        }
    }

    /// Checks the relay's response: an error, or this JSON. Returns what the instance has learned.
    pub(crate) fn check_response(mut self, response: &InvocationOutcome) -> Evidence {
        if Instant::now() > self.cutoff {
            self.violation("the relay responds late");
        }
        self.check_use_of_time();
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
        for item in self.pending.iter().filter(|item| self.has_accepted && !item.settled && item.sent > 0) {
            if let Identity::Message(index) = item.identity {
                self.evidence.failed_beside_others(index);
            }
        }
        for item in self.pending {
            self.evidence.remember(item.event_id, item.attempts);
        }
        self.evidence
    }

    /// Checks the rule of the module about an early response.
    fn check_use_of_time(&self) {
        let is_breaker_open = !self.has_accepted && self.evidence.is_against_the_bus();
        let has_probed = || self.pending.iter().map(|item| item.sent).sum::<usize>() >= MAX_PROBES;
        if self.stopped.is_some() || (is_breaker_open && has_probed()) {
            return;
        }
        let refused = |item: &Pending| !item.settled && item.dead_letter_attempts >= MAX_DEAD_LETTER_ATTEMPTS;
        let is_blocked = |item: &Pending| {
            self.pending.iter().filter(|other| refused(other)).any(|other| {
                other.identity == item.identity
                    || other.aggregate.is_some() && other.aggregate == item.aggregate && other.order <= item.order
            })
        };
        let may_be_tried = |item: &&Pending| {
            !item.settled && self.is_first(item) && !is_blocked(item) && (item.sent == 0 || !is_breaker_open)
        };
        let Some(item) = self.pending.iter().find(may_be_tried) else {
            return;
        };
        let attempts = self.pending.iter().map(|item| item.sent).max().unwrap_or_default().max(1);
        let wait = RetryPolicy::default().waits.limit(u32::try_from(attempts).unwrap());
        let left = self.cutoff.saturating_duration_since(Instant::now());
        if left > wait {
            let name = self.name(item);
            self.violation(&format!("the relay responds {left:?} before its time is up, and {name} could be tried"));
        }
    }
}

impl Pending {
    /// Whether the bus rejected it for its contents.
    fn is_rejected(&self) -> bool {
        let unknown = self.failures.iter().filter(|(code, _)| meaning(code) == Meaning::Unknown).count();
        unknown >= MAX_UNKNOWN_FAILURES
            || self.failures.iter().any(|(code, alone)| meaning(code) == Meaning::Permanent && *alone)
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
