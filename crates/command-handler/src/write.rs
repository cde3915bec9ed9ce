//! Create, update, delete and commands: four ways to name commands, one path to carry them out.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use decider::{Circumstances, CommandError, CommandRequest, Decided, Folded, Json, Model};
use event_store::AppendError;
use event_store::backoff::Backoff;
use jiff::Timestamp;
use table::AggregateKey;
use ulid::Ulid;

use crate::answer::{WriteAnswer, etag, json};
use crate::api::Api;
use crate::problem::Problem;
use crate::request::{Target, WriteRequest, split_id};

/// `POST /{type}`: the create command, its data with an `id` or a new one.
pub(crate) async fn create(
    State(api): State<Api>,
    Target(type_name): Target<String>,
    request: WriteRequest,
) -> Result<Response, Problem> {
    let model = api.model(&type_name)?;
    let (id, data) = split_id(&request.body)?;
    let id = id.unwrap_or_else(|| Ulid::generate().to_string());
    let (model, key) = api.aggregate(model.type_name(), &id)?;
    let command = CommandRequest { command: model.commands().create.to_owned(), data };
    execute(&api, model, key, vec![command], request).await
}

/// `POST /{type}/{id}`: the update command.
pub(crate) async fn update(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    request: WriteRequest,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let command =
        model.commands().update.ok_or(Problem::NoCommandForVerb { type_name: model.type_name(), verb: "update" })?;
    let command = CommandRequest { command: command.to_owned(), data: request.body.clone() };
    execute(&api, model, key, vec![command], request).await
}

/// `DELETE /{type}/{id}`: the delete command.
pub(crate) async fn delete(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    request: WriteRequest,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let command =
        model.commands().delete.ok_or(Problem::NoCommandForVerb { type_name: model.type_name(), verb: "delete" })?;
    if request.body != Json::empty_object() {
        return Err(Problem::BadBody { reason: "DELETE takes no body".to_owned() });
    }
    let command = CommandRequest { command: command.to_owned(), data: Json::empty_object() };
    execute(&api, model, key, vec![command], request).await
}

/// `POST /{type}/{id}/commands`: one command, or several that are carried out all or not at all.
pub(crate) async fn commands(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    request: WriteRequest,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let commands: Vec<CommandRequest> = if request.body.text().starts_with('[') {
        request.body.read()
    } else {
        request.body.read().map(|command| vec![command])
    }
    .map_err(|fault| Problem::BadBody {
        reason: format!("the body must be {{\"command\", \"data\"}} or an array of them: {fault}"),
    })?;
    if commands.is_empty() {
        return Err(Problem::BadBody { reason: "the array has no command".to_owned() });
    }
    execute(&api, model, key, commands, request).await
}

/// Decides on the aggregate and appends, anew whenever another writer was faster.
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
    let mut races = Backoff::until(request.deadline);
    let mut guess = if request.rebuild { None } else { first_guess(api, model, &key, creates) };
    loop {
        let (before, certain) = match guess.take() {
            Some(guess) => (guess, false),
            None if request.rebuild => (api.store().rebuild(model, &key).await?.folded, true),
            None => (api.store().load(model, &key).await?.folded, true),
        };
        let circumstances = circumstances(&request);
        let decided = match model.decide(&before, &key.id, &commands, &circumstances) {
            Ok(decided) => decided,
            // An old state may not be the reason to refuse.
            Err(CommandError::Missing | CommandError::Exists | CommandError::Deleted) if !certain => continue,
            Err(error) => return Err(Problem::of_command(error, before.version())),
        };
        let seen = request.if_match.filter(|&seen| seen != before.version());
        if !certain && (seen.is_some() || decided.events.is_empty()) {
            continue;
        }
        if let Some(expected) = seen {
            return Err(Problem::Conflict { expected, actual: before.version() });
        }
        // Before the append: what cannot be answered is not written either.
        let answer = answer(model, &key, &before, &decided, &request)?;
        match api.store().append(model, &key, before.version(), &decided, request.deadline).await {
            Ok(_) => return Ok(answer),
            Err(AppendError::Conflict { .. }) if request.if_match.is_none() => {
                if !races.wait().await {
                    return Err(Problem::Contended);
                }
            }
            Err(error) => return Err(Problem::of_append(error, before.version())),
        }
    }
}

/// What the aggregate probably is, without a call: as this process last saw it, or not there if it is to be created.
fn first_guess(api: &Api, model: &dyn Model, key: &AggregateKey, creates: bool) -> Option<Folded> {
    let known = api.store().recall(key).map(|loaded| loaded.folded);
    known.or_else(|| creates.then(|| model.before_first_event()))
}

/// A fresh time and seed for each decision.
fn circumstances(request: &WriteRequest) -> Circumstances {
    let seed = Ulid::generate();
    let now = Timestamp::from_millisecond(i64::try_from(seed.timestamp_ms()).unwrap_or_default()).unwrap_or_default();
    Circumstances { now, seed, meta: request.meta.clone() }
}

/// The answer to a write that succeeds.
fn answer(
    model: &dyn Model,
    key: &AggregateKey,
    before: &Folded,
    decided: &Decided,
    request: &WriteRequest,
) -> Result<Response, Problem> {
    let version = decided.after.version();
    if let Some(refusal) = &decided.refusal {
        return Ok(Problem::Refused { refusal: refusal.clone(), version }.into_response());
    }
    let state = model.state(&decided.after).map_err(|fault| Problem::Internal { cause: fault.to_string() })?;
    let body = WriteAnswer {
        id: &key.id,
        version,
        state: &state,
        events: decided.events.iter().map(Into::into).collect(),
        messages: decided.messages.iter().map(Into::into).collect(),
    };
    let created = before.version() == 0 && version > 0;
    let mut response = json(if created { StatusCode::CREATED } else { StatusCode::OK }, &body)?;
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag(version));
    if created {
        let location = HeaderValue::try_from(format!("/{key}"));
        headers.insert(header::LOCATION, location.map_err(|fault| Problem::Internal { cause: fault.to_string() })?);
    }
    if let Some(Ok(correlation_id)) = request.meta.correlation_id.as_deref().map(HeaderValue::try_from) {
        headers.insert("x-correlation-id", correlation_id);
    }
    Ok(response)
}
