//! Create, update, delete and commands: four ways to name commands, one path to carry them out.
//!
//! What is wrong with a request is told after what is wrong with its path: a resource that is not there, or does not take
//! the method, says so whatever else was sent.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use daybook_decider::{CommandRequest, Decided, DecisionInput, Folded, Json, Meta, Model};
use daybook_event_store::{CommandResponse, Decide, LoadPolicy, ResponseDetail, TransactOptions, Transacted};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use ulid::Ulid;

use crate::answer::{self, WriteAnswer, write_response};
use crate::api::{Api, methods};
use crate::idempotency::replayed;
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
    let creates = commands[0].command == model.commands().create;
    if api.settings().require_if_match && request.if_match.is_none() && !creates {
        return Err(Problem::IfMatchRequired);
    }
    let options = TransactOptions {
        policy: if request.rebuild { LoadPolicy::Rebuild } else { LoadPolicy::Incremental },
        creates,
        expected_version: request.if_match,
        idempotency: request
            .idempotency
            .as_ref()
            .map(|idempotency| idempotency.store_key(api.settings().idempotency_ttl)),
        deadline: request.deadline,
    };
    let write = Write { model, key: &key, commands: &commands, meta: &request.meta };
    match api.store().transact(model, &key, &write, &options).await? {
        Transacted::Decided(response) => write_response(response, &key),
        Transacted::Replayed(response) => Ok(replayed(write_response(response, &key)?)),
    }
}

/// The commands of one request, and how they are answered.
struct Write<'a> {
    model: &'a dyn Model,
    key: &'a AggregateKey,
    commands: &'a [CommandRequest],
    meta: &'a Meta,
}

impl Decide for Write<'_> {
    type Error = Problem;

    fn decide(&self, before: &Folded) -> Result<Decided, Problem> {
        let decided = self.model.decide(before, &self.key.id, self.commands, &decision_input(self.meta));
        decided.map_err(|error| Problem::of_command(error, before.version()))
    }

    fn respond(&self, before: &Folded, decided: &Decided, detail: ResponseDetail) -> Result<CommandResponse, Problem> {
        let version = decided.after.version();
        if let Some(refusal) = decided.rejection.clone() {
            let problem = Problem::Refused { refusal, version };
            if decided.events.is_empty() {
                return Err(problem);
            }
            let (status, body) = problem.tell();
            return Ok(CommandResponse { status: status.as_u16(), version, body });
        }
        let created = before.version() == 0 && version > 0;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        Ok(CommandResponse { status: status.as_u16(), version, body: self.body(decided, detail)? })
    }
}

impl Write<'_> {
    /// The body that contains what was decided. A state that has grown too large for a response must not stop the writes
    /// that could make it smaller, so it is left out.
    fn body(&self, decided: &Decided, detail: ResponseDetail) -> Result<String, Problem> {
        let state = self.model.state(&decided.after).map_err(|error| Problem::Internal { cause: error.to_string() })?;
        let lists_events = detail != ResponseDetail::VersionOnly;
        let mut body = WriteAnswer {
            id: &self.key.id,
            version: decided.after.version(),
            state: (detail == ResponseDetail::Full).then_some(&state),
            events: lists_events.then(|| decided.events.iter().map(Into::into).collect()),
            messages: lists_events.then(|| decided.messages.iter().map(Into::into).collect()),
        };
        if let Some(text) = answer::text(&body)? {
            return Ok(text);
        }
        body.state = None;
        answer::text(&body)?.ok_or(Problem::AnswerTooLarge)
    }
}

/// A fresh time and seed for each decision.
fn decision_input(meta: &Meta) -> DecisionInput {
    let seed = Ulid::generate();
    let now = Timestamp::from_millisecond(i64::try_from(seed.timestamp_ms()).unwrap_or_default()).unwrap_or_default();
    DecisionInput { now, seed, meta: meta.clone() }
}
