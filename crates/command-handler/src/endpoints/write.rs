//! The one path of all writes: commands are decided and appended in a transaction of the store.
//!
//! An error of the path is answered before an error of the rest of the request: a resource that does not exist, or does
//! not take the method, answers so whatever else was sent.

use axum::http::StatusCode;
use axum::response::Response;
use daybook_decider::{Access, Caller, CommandRequest, Decided, DecisionInput, Folded, Meta, Model};
use daybook_event_store::{CommandResponse, Decide, LoadPolicy, ResponseDetail, TransactOptions};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use schemars::{Schema, schema_for};
use ulid::Ulid;

use super::authorization::require;
use crate::api::Api;
use crate::problem::{self, Problem, ProblemType};
use crate::request::{WriteQuery, WriteRequest};
use crate::response::{EventJson, WriteResponse, json_text, write_response};

/// The query of every write.
pub(super) const WRITE_QUERY: Option<fn() -> Schema> = Some(|| schema_for!(WriteQuery));

/// The problems of every write.
pub(super) const WRITE_PROBLEMS: &[&ProblemType] = &[
    &problem::MALFORMED_JSON,
    &problem::BAD_ID,
    &problem::BAD_QUERY,
    &problem::BAD_HEADER,
    &problem::FORBIDDEN,
    &problem::TOO_LARGE,
    &problem::NOT_JSON,
    &problem::COMMAND_REJECTED,
    &problem::KEY_REUSED,
    &problem::INTERNAL,
    &problem::UNAVAILABLE,
    &problem::NEWER_RELEASE,
    &problem::CONTENDED,
];
/// The problems of a write to an aggregate that should exist.
pub(super) const CHANGE_PROBLEMS: &[&ProblemType] =
    &[&problem::NOT_FOUND, &problem::DELETED, &problem::VERSION_CONFLICT, &problem::IF_MATCH_REQUIRED];

/// Carries the commands out; a repeated request gets the response that it got before.
pub(super) async fn execute(
    api: &Api,
    model: &dyn Model,
    key: AggregateKey,
    commands: Vec<CommandRequest>,
    request: WriteRequest,
) -> Result<Response, Problem> {
    let creates = commands[0].command == model.commands().create;
    if api.settings.require_if_match && request.if_match.is_none() && !creates {
        return Err(problem::if_match_required());
    }
    if request.rebuild {
        require(model, &request.caller, Access::Rebuild, None)?;
    }
    let ttl = api.settings.idempotency_ttl;
    let options = TransactOptions {
        policy: if request.rebuild { LoadPolicy::Rebuild } else { LoadPolicy::Incremental },
        creates,
        expected_version: request.if_match,
        idempotency: request.identity.as_ref().map(|identity| identity.store_key(ttl)),
        deadline: request.deadline,
    };
    let write = RequestedWrite { model, key: &key, commands: &commands, meta: &request.meta, caller: &request.caller };
    write_response(api.store.transact(model, &key, &write, &options).await?, &key)
}

/// The commands of one request, and how they are answered.
struct RequestedWrite<'a> {
    model: &'a dyn Model,
    key: &'a AggregateKey,
    commands: &'a [CommandRequest],
    meta: &'a Meta,
    caller: &'a Caller,
}

impl Decide for RequestedWrite<'_> {
    type Error = Problem;

    fn decide(&self, before: &Folded) -> Result<Decided, Problem> {
        let decided = self.model.decide(before, &self.key.id, self.commands, &self.decision_input());
        decided.map_err(|error| Problem::of_command(&error, before.version()))
    }

    fn respond(&self, before: &Folded, decided: &Decided, detail: ResponseDetail) -> Result<CommandResponse, Problem> {
        let version = decided.after.version();
        if let Some(rejection) = decided.rejection.clone() {
            let problem = problem::command_rejected(rejection, version);
            if decided.events.is_empty() {
                return Err(problem);
            }
            let status = problem.problem_type.status.as_u16();
            return Ok(CommandResponse { status, version, body: problem.to_json() });
        }
        let created = before.version() == 0 && version > 0;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        Ok(CommandResponse { status: status.as_u16(), version, body: self.body(decided, detail)? })
    }
}

impl RequestedWrite<'_> {
    /// The body that contains what was decided. A state that has grown too large for a response must not stop the
    /// writes that could make it smaller, so it is left out.
    fn body(&self, decided: &Decided, detail: ResponseDetail) -> Result<String, Problem> {
        let state = self.model.state(&decided.after).map_err(problem::internal)?;
        let lists_events = detail != ResponseDetail::VersionOnly;
        let meta = self.model.authorize(self.caller, Access::ReadMeta, Some(&decided.after));
        let event = |event| EventJson::of(event, meta.is_allowed());
        let mut body = WriteResponse {
            id: &self.key.id,
            version: decided.after.version(),
            state: (detail == ResponseDetail::Full).then_some(&state),
            events: lists_events.then(|| decided.events.iter().map(event).collect()),
            messages: lists_events.then(|| decided.messages.iter().map(Into::into).collect()),
        };
        if let Some(text) = json_text(&body)? {
            return Ok(text);
        }
        body.state = None;
        let detail =
            "the events and messages are larger together than the 6 MB of an answer; send fewer commands at once";
        json_text(&body)?.ok_or_else(|| Problem::new(&problem::TOO_LARGE, detail))
    }

    /// A new time and seed for each decision.
    fn decision_input(&self) -> DecisionInput {
        let seed = Ulid::generate();
        let now = i64::try_from(seed.timestamp_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        DecisionInput { now, seed, meta: self.meta.clone(), caller: self.caller.clone() }
    }
}
