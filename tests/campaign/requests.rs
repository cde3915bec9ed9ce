//! The requests of writers: each is decided on the state that its process knows and appended, and what its outcome means
//! is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use daybook_decider::{Caller, CommandRequest, Decided, DecisionInput, Folded, Involved, Meta, Model, OutboxMessage};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, StoreError, TransactError,
    TransactOptions, Transacted, Undecided,
};
use daybook_table::AggregateKey;
use jiff::SignedDuration;
use tokio::time::Instant;
use ulid::Ulid;

use crate::bell::earlier_registry;
use crate::dice::Dice;
use crate::writers::Work;

/// The time for which responses are stored.
const IDEMPOTENCY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// What the writers know about the table.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) attempts: Vec<Attempt>,
    /// The first answer to each request with an idempotency key.
    pub(crate) answers: BTreeMap<RequestKey, CommandResponse>,
}

impl Written {
    /// Applies the answers to requests that were sent several times to all of their attempts, including those of calls
    /// without an answer.
    pub(crate) fn apply_answers(&mut self) {
        for attempt in &mut self.attempts {
            if let Some(answer) = attempt.request().and_then(|request| self.answers.get(&request)) {
                let is_stored = attempt.first_event() == answer.body;
                attempt.result = if is_stored { WriteResult::Stored } else { WriteResult::NotStored };
            }
        }
    }
}

/// An aggregate and an idempotency key.
pub(crate) type RequestKey = (AggregateKey, String);

/// One append and its outcome.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) key: AggregateKey,
    /// The idempotency key of its request.
    pub(crate) idempotency: Option<String>,
    /// Number and id of each event.
    pub(crate) events: Vec<(u64, String)>,
    pub(crate) messages: Vec<OutboxMessage>,
    pub(crate) result: WriteResult,
}

impl Attempt {
    /// Its request, if that has an idempotency key.
    pub(crate) fn request(&self) -> Option<RequestKey> {
        Some((self.key.clone(), self.idempotency.clone()?))
    }

    /// The id of its first event, which is also the body of its response.
    pub(crate) fn first_event(&self) -> &str {
        &self.events[0].1
    }
}

/// The outcome that the writer received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// The append is stored.
    Stored,
    /// The append is not stored.
    NotStored,
    /// Unknown: the writer crashed or timed out before it received an outcome.
    Unknown,
}

/// A request of a writer. If it has an idempotency key, it may be sent several times.
pub(crate) struct Request {
    pub(crate) key: AggregateKey,
    pub(crate) commands: Vec<CommandRequest>,
    pub(crate) from_cache: bool,
    /// Milliseconds.
    pub(crate) time: u64,
    pub(crate) idempotency: Option<String>,
    /// The number of the writer.
    pub(crate) writer: u64,
    /// How far the writer's clock is ahead.
    pub(crate) clock_error: SignedDuration,
    pub(crate) dice: Mutex<Dice>,
}

/// Executes a request in a process, and records the result of each decision on it. `is_earlier`: the process has the earlier
/// release. Returns whether there is an answer.
pub(crate) async fn execute(
    work: Arc<Work>,
    (store, is_earlier): (Arc<EventStore>, bool),
    written: Arc<Mutex<Written>>,
    request: Arc<Request>,
) -> bool {
    let registry = if is_earlier { earlier_registry() } else { &work.registry };
    let model: &dyn Model = registry.get(&request.key.aggregate_type).unwrap();
    let idempotency =
        request.idempotency.as_deref().map(|key| IdempotencyKey { key, digest: key, ttl: IDEMPOTENCY_TTL });
    let options = TransactOptions {
        policy: if request.from_cache { LoadPolicy::Incremental } else { LoadPolicy::Rebuild },
        creates: request.commands[0].command == model.commands().create,
        expected_version: None,
        idempotency,
        deadline: Instant::now() + Duration::from_millis(request.time),
    };
    let decisions = Decisions { work: &work, model, request: &request, written: &written, made: Mutex::default() };
    let outcome = store.transact(model, &request.key, &decisions, &options).await;
    work.log.line(|| format!("writer {} appends to {}: {outcome:?}", request.writer, request.key));
    decisions.record(&outcome);
    outcome.is_ok()
}

/// The decisions on a request.
struct Decisions<'a> {
    work: &'a Work,
    model: &'a dyn Model,
    request: &'a Request,
    written: &'a Mutex<Written>,
    made: Mutex<Made>,
}

/// The decisions that were made.
#[derive(Default)]
struct Made {
    /// The versions that were decided on.
    versions: BTreeSet<u64>,
    /// The indices of the attempts.
    attempts: Vec<usize>,
}

impl Decide for Decisions<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<String>> {
        let Request { key, commands, writer, clock_error, dice, .. } = self.request;
        let now = self.work.clock.timestamp() + *clock_error;
        let milliseconds = u64::try_from(now.as_millisecond()).unwrap();
        let input = DecisionInput::new(
            now,
            Ulid::from_parts(milliseconds, dice.lock().unwrap().bits() >> 1),
            Meta { actor: Some(format!("writer-{writer}")), ..Meta::default() },
            Caller::anonymous(),
            1,
        );
        let mut made = self.made.lock().unwrap();
        made.versions.insert(before.version());
        let decided = self.model.decide(before, &key.id, commands, &input).map_err(|error| error.to_string())?;
        if decided.rejection.is_some() {
            self.work.log.count(if decided.events.is_empty() { "rejection" } else { "rejection recorded" });
        }
        if !decided.events.is_empty() {
            made.attempts.push(self.record_attempt(&decided));
        }
        Ok(decided.into())
    }

    /// A response whose body is the id of the first event; without an event, a text that no other response has. As in the
    /// command handler, a rejection that is not recorded is an error, and so is not stored.
    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, String> {
        let decided = &decisions.own;
        if let Some(rejection) = decided.rejection.as_ref().filter(|_| decided.events.is_empty()) {
            return Err(format!("{rejection:?}"));
        }
        let no_event = || format!("no event {}", self.request.dice.lock().unwrap().bits());
        let body = decided.events.first().map_or_else(no_event, |event| event.event_id.to_string());
        Ok(CommandResponse { status: 200, version: decided.after.version(), state_version: 1, body })
    }
}

impl Decisions<'_> {
    fn record_attempt(&self, decided: &Decided) -> usize {
        let attempt = Attempt {
            key: self.request.key.clone(),
            idempotency: self.request.idempotency.clone(),
            events: decided.events.iter().map(|event| (event.seq_num, event.event_id.to_string())).collect(),
            messages: decided.messages.clone(),
            result: WriteResult::Unknown,
        };
        let mut written = self.written.lock().unwrap();
        written.attempts.push(attempt);
        written.attempts.len() - 1
    }

    fn record(self, outcome: &Result<Transacted, TransactError<String>>) {
        let Self { work, request, written, made, .. } = self;
        let Made { versions, attempts: made } = made.into_inner().unwrap();
        let mut written = written.lock().unwrap();
        if versions.len() > 1 {
            work.log.count("append conflict");
        }
        let stored = match outcome {
            Ok(Transacted::Decided(response)) => Some(response.body.as_str()),
            Ok(Transacted::Replayed(response)) if request.idempotency.is_some() => {
                work.log.count("response replayed");
                Some(response.body.as_str())
            }
            Err(TransactError::OutcomeUnknown { .. }) => None,
            Err(TransactError::Decide(_) | TransactError::Contended | TransactError::ClaimTaken { .. }) => Some(""),
            Err(TransactError::Forgotten { .. }) => {
                work.log.count("subject forgotten before");
                Some("")
            }
            Err(TransactError::Store(StoreError::Unavailable { .. })) => Some(""),
            Ok(Transacted::Replayed(_)) | Err(_) => {
                work.log.violation(format!("an append to {}: {outcome:?}", request.key));
                None
            }
        };
        if let (Some(idempotency), Ok(Transacted::Decided(response) | Transacted::Replayed(response))) =
            (&request.idempotency, outcome)
        {
            let key = (request.key.clone(), idempotency.clone());
            let first = written.answers.entry(key).or_insert_with(|| response.clone());
            work.log.expect(first == response, || format!("answered {response:?}, and first {first:?}"));
        }
        for at in made {
            let attempt = &mut written.attempts[at];
            attempt.result = match stored {
                None => WriteResult::Unknown,
                Some(id) if attempt.first_event() == id => WriteResult::Stored,
                Some(_) => WriteResult::NotStored,
            };
            work.log.count(&format!("append {:?}", attempt.result));
        }
        match outcome {
            Err(TransactError::Contended) => work.log.count("append contended"),
            Err(TransactError::ClaimTaken { .. }) => work.log.count("claim taken"),
            _ => {}
        }
    }
}

/// The messages of all attempts by their ids.
pub(crate) fn messages(attempts: &[Attempt]) -> BTreeMap<String, &OutboxMessage> {
    attempts
        .iter()
        .flat_map(|attempt| &attempt.messages)
        .map(|message| (message.message_id.to_string(), message))
        .collect()
}
