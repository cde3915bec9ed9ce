//! Create, update, delete and commands: four ways to name commands, one path to carry them out.
//!
//! What is wrong with a request is told after what is wrong with its path: a resource that is not there, or does not take
//! the method, says so whatever else was sent.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use daybook_decider::{CommandRequest, Decided, DecisionInput, Folded, Json, Model};
use daybook_event_store::backoff::Backoff;
use daybook_event_store::limits::TooLarge;
use daybook_event_store::{AppendError, ResponseToStore, StoredResponse};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use tokio::time::Instant;
use ulid::Ulid;

use crate::answer::{self, Answer, WriteAnswer};
use crate::api::{Api, methods};
use crate::idempotency::Idempotency;
use crate::problem::Problem;
use crate::request::{Target, WriteRequest, split_id};

/// `POST /{type}`: the create command, its data with an `id` or a new one.
pub(crate) async fn create(
    State(api): State<Api>,
    Target(type_name): Target<String>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let model = api.model(&type_name)?;
    let request = request?;
    if request.if_match.is_some() {
        let expected = "left out of a creation: what is new has no version yet";
        return Err(Problem::BadHeader { name: "If-Match", expected });
    }
    let (id, data) = split_id(&request.body)?;
    let id = id.unwrap_or_else(|| match &request.idempotency {
        Some(idempotency) => idempotency.derived_id(model.type_name()),
        None => Ulid::generate().to_string(),
    });
    let (model, key) = api.aggregate(model.type_name(), &id)?;
    let command = CommandRequest { command: model.commands().create.to_owned(), data };
    execute(&api, model, key, vec![command], request).await
}

/// `POST /{type}/{id}`: the update command.
pub(crate) async fn update(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let command = model.commands().update.ok_or_else(|| no_command(model, "update"))?;
    let request = request?;
    let command = CommandRequest { command: command.to_owned(), data: request.body.clone() };
    execute(&api, model, key, vec![command], request).await
}

/// `DELETE /{type}/{id}`: the delete command.
pub(crate) async fn delete(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let command = model.commands().delete.ok_or_else(|| no_command(model, "delete"))?;
    let request = request?;
    if request.body != Json::empty_object() {
        return Err(Problem::BadBody { reason: "DELETE takes no body".to_owned() });
    }
    let command = CommandRequest { command: command.to_owned(), data: Json::empty_object() };
    execute(&api, model, key, vec![command], request).await
}

fn no_command(model: &dyn Model, verb: &'static str) -> Problem {
    Problem::NoCommandForVerb { type_name: model.type_name(), verb, allow: methods(model) }
}

/// `POST /{type}/{id}/commands`: one command, or several that are carried out all or not at all.
pub(crate) async fn commands(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    request: Result<WriteRequest, Problem>,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let request = request?;
    let commands: Vec<CommandRequest> = if request.body.text().starts_with('[') {
        request.body.read_strictly()
    } else {
        request.body.read_strictly().map(|command| vec![command])
    }
    .map_err(|fault| Problem::BadBody {
        reason: format!("the body must be {{\"command\", \"data\"}} or an array of them: {fault}"),
    })?;
    if commands.is_empty() {
        return Err(Problem::BadBody { reason: "the array has no command".to_owned() });
    }
    execute(&api, model, key, commands, request).await
}

/// Carries the commands out, or answers as they were answered before.
async fn execute(
    api: &Api,
    model: &dyn Model,
    key: AggregateKey,
    commands: Vec<CommandRequest>,
    request: WriteRequest,
) -> Result<Response, Problem> {
    match decide_and_append(api, model, &key, &commands, &request).await? {
        Done::Now(answer) => answer.into_response(&key),
        Done::Before(kept, idempotency) => idempotency.replay(kept, &key),
    }
}

/// How a write is answered.
enum Done<'a> {
    /// By what it did.
    Now(Answer),
    /// By what the same request did before.
    Before(StoredResponse, &'a Idempotency),
}

/// For so long metadata may be behind events that are being committed.
const BESIDE_A_COMMIT: Duration = Duration::from_secs(1);

/// Decides on the aggregate and appends, anew whenever another writer was faster.
async fn decide_and_append<'a>(
    api: &Api,
    model: &dyn Model,
    key: &AggregateKey,
    commands: &[CommandRequest],
    request: &'a WriteRequest,
) -> Result<Done<'a>, Problem> {
    let creates = commands[0].command == model.commands().create;
    if api.settings().require_if_match && request.if_match.is_none() && !creates {
        return Err(Problem::IfMatchRequired);
    }
    let mut races = Backoff::until(request.deadline);
    let guess = if request.rebuild { None } else { first_guess(api, model, key, creates) };
    // What to decide on, whether that is certain, and how much is told of it; none where it is to be loaded.
    let mut next = guess.map(|guess| (guess, false, Extent::Whole));
    // How many events there are at least, by the writer that was faster.
    let mut end = 0;
    // Since when the metadata have been behind the events.
    let mut behind = None;
    loop {
        let (before, certain, extent) = match next.take() {
            Some(next) => next,
            None if request.rebuild => {
                (api.store().rebuild_through(model, key, end).await?.folded, true, Extent::Whole)
            }
            None => (api.store().load_through(model, key, end).await?.folded, true, Extent::Whole),
        };
        let circumstances = circumstances(request);
        let plan = plan(model, key, &before, commands, request, (&circumstances, extent));
        let (decided, answer) = match plan {
            Ok((decided, answer)) if !decided.events.is_empty() || request.idempotency.is_some() => (decided, answer),
            // Nothing will be written, so no condition finds out whether the state was an old one.
            _ if !certain => continue,
            otherwise => {
                if let Some(idempotency) = &request.idempotency
                    && let Some(kept) = api.store().stored_response(key, &idempotency.key, circumstances.now).await?
                {
                    return Ok(Done::Before(kept, idempotency));
                }
                return otherwise.map(|(_, answer)| Done::Now(answer));
            }
        };
        let keep = request.idempotency.as_ref().map(|idempotency| ResponseToStore {
            key: &idempotency.key,
            answer: idempotency.keep(&answer),
            now: circumstances.now,
            expires: circumstances.now + api.settings().idempotency_ttl,
        });
        let version = before.version();
        match api.store().append(model, key, version, &decided, keep, request.deadline).await {
            Ok(_) => return Ok(Done::Now(answer)),
            Err(AppendError::AlreadyAnswered(kept)) => {
                let idempotency = request.idempotency.as_ref().expect("only an append with a key meets a kept answer");
                return Ok(Done::Before(kept, idempotency));
            }
            // No writer was faster. Beside a commit that passes; what lasts is damage.
            Err(AppendError::Conflict { actual }) if actual < version => {
                let since = *behind.get_or_insert_with(Instant::now);
                if certain && (since.elapsed() >= BESIDE_A_COMMIT || !races.wait().await) {
                    let cause =
                        format!("{key} is corrupt: its metadata are at {actual}, and its events go to {version}");
                    return Err(Problem::Internal { cause });
                }
            }
            // With a key, the writer that was faster may have been this very request.
            Err(AppendError::Conflict { actual }) if request.if_match.is_none() || request.idempotency.is_some() => {
                if !races.wait().await {
                    return Err(Problem::Contended);
                }
                end = actual;
            }
            Err(AppendError::TooLarge(limit)) => match extent.less().filter(|_| is_for_the_answer(limit, request)) {
                Some(less) => next = Some((before, certain, less)),
                None if certain => return Err(Problem::TooLarge(limit)),
                None => {}
            },
            Err(error) => return Err(Problem::of_append(error, version)),
        }
    }
}

/// How much an answer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// Everything.
    Whole,
    /// No state.
    Changes,
    /// Neither state nor events nor messages.
    Version,
}

impl Extent {
    fn less(self) -> Option<Self> {
        match self {
            Self::Whole => Some(Self::Changes),
            Self::Changes => Some(Self::Version),
            Self::Version => None,
        }
    }
}

/// Whether a smaller answer may help: one that is kept must fit an item, and the transaction beside what it answers.
fn is_for_the_answer(limit: TooLarge, request: &WriteRequest) -> bool {
    match limit {
        TooLarge::Answer { .. } => true,
        TooLarge::Transaction { .. } => request.idempotency.is_some(),
        TooLarge::Item { .. } | TooLarge::Items { .. } => false,
    }
}

/// What the aggregate probably is, without a call: as this process last saw it, or not there if it is to be created.
fn first_guess(api: &Api, model: &dyn Model, key: &AggregateKey, creates: bool) -> Option<Folded> {
    let known = api.store().recall(key).map(|loaded| loaded.folded);
    known.or_else(|| creates.then(|| model.before_first_event()))
}

/// A fresh time and seed for each decision.
fn circumstances(request: &WriteRequest) -> DecisionInput {
    let seed = Ulid::generate();
    let now = Timestamp::from_millisecond(i64::try_from(seed.timestamp_ms()).unwrap_or_default()).unwrap_or_default();
    DecisionInput { now, seed, meta: request.meta.clone() }
}

/// What would be appended to the aggregate as it is, and the answer to that: what cannot be answered is not written
/// either.
fn plan(
    model: &dyn Model,
    key: &AggregateKey,
    before: &Folded,
    commands: &[CommandRequest],
    request: &WriteRequest,
    (circumstances, extent): (&DecisionInput, Extent),
) -> Result<(Decided, Answer), Problem> {
    let decided = model
        .decide(before, &key.id, commands, circumstances)
        .map_err(|error| Problem::of_command(error, before.version()))?;
    if let Some(expected) = request.if_match.filter(|&expected| expected != before.version()) {
        return Err(Problem::Conflict { expected, actual: before.version() });
    }
    let version = decided.after.version();
    if let Some(refusal) = decided.rejection.clone() {
        let problem = Problem::Refused { refusal, version };
        if decided.events.is_empty() {
            return Err(problem);
        }
        let (status, body) = problem.tell();
        return Ok((decided, Answer { status, version, body }));
    }
    let body = body(model, key, &decided, extent)?;
    let created = before.version() == 0 && version > 0;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((decided, Answer { status, version, body }))
}

/// The body that tells what was decided. A state that has grown too large for an answer must not stop the writes that
/// could make it smaller, so it is left out.
fn body(model: &dyn Model, key: &AggregateKey, decided: &Decided, extent: Extent) -> Result<String, Problem> {
    let state = model.state(&decided.after).map_err(|fault| Problem::Internal { cause: fault.to_string() })?;
    let mut told = WriteAnswer {
        id: &key.id,
        version: decided.after.version(),
        state: (extent == Extent::Whole).then_some(&state),
        events: (extent != Extent::Version).then(|| decided.events.iter().map(Into::into).collect()),
        messages: (extent != Extent::Version).then(|| decided.messages.iter().map(Into::into).collect()),
    };
    if let Some(body) = answer::text(&told)? {
        return Ok(body);
    }
    told.state = None;
    answer::text(&told)?.ok_or(Problem::AnswerTooLarge)
}
