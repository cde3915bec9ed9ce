//! Executes all writes: commands are decided and appended in a transaction of the store.
//!
//! An error of the path takes precedence over errors of the rest of the request: a resource that does not exist, or
//! does not support the method, returns that error whatever else was sent.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use axum::response::Response;
use daybook_decider::{Access, Caller, CommandError, CommandRequest, Decided, DecisionInput, Folded, Meta, Model};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, LoadPolicy, ResponseDetail, TransactError, TransactOptions, Transacted,
};
use daybook_function_runtime::traces;
use daybook_table::AggregateKey;
use jiff::Timestamp;
use schemars::schema_for;
use tokio::time::timeout_at;
use tracing::field::Empty;
use tracing::{Instrument, Span};
use ulid::Ulid;

use super::authorization::{is_allowed, may_read, require};
use super::endpoint::ResponseHeader::{ETag, IdempotencyReplayed, Location};
use super::endpoint::{Body, Endpoint, Success};
use super::request_headers::{IF_MATCH, WRITE_HEADERS};
use crate::api::Api;
use crate::etag::IfMatch;
use crate::openapi::aggregate_type::{AggregateType, ExampleOutcome};
use crate::openapi::schemas::{Content, Schemas, named};
use crate::problem::{self, Problem, ProblemType};
use crate::request::{WriteQuery, WriteRequest};
use crate::response::{EventJson, WriteResponse, json_text, write_response};
use crate::signals::count_write;

pub(super) const WRITE_PROBLEMS: &[&ProblemType] = &[
    &problem::MALFORMED_JSON,
    &problem::BAD_ID,
    &problem::BAD_QUERY,
    &problem::BAD_HEADER,
    &problem::FORBIDDEN,
    &problem::TOO_LARGE,
    &problem::NOT_JSON,
    &problem::COMMAND_REJECTED,
    &problem::CLAIM_TAKEN,
    &problem::KEY_REUSED,
    &problem::INTERNAL,
    &problem::UNAVAILABLE,
    &problem::NEWER_RELEASE,
    &problem::CONTENDED,
    &problem::OUTCOME_UNKNOWN,
];
/// The problems of a write to an aggregate that should exist.
pub(super) const CHANGE_PROBLEMS: &[&ProblemType] =
    &[&problem::NOT_FOUND, &problem::DELETED, &problem::VERSION_CONFLICT, &problem::IF_MATCH_REQUIRED];

/// The success of a write that has created an aggregate.
pub(super) const fn created(body: Body) -> Success {
    let headers = &[(ETag, true), (Location, true), (IdempotencyReplayed, false)];
    Success { status: StatusCode::CREATED, description: "The aggregate was created.", headers, body: Some(body) }
}

/// The success of a write that has changed an aggregate.
pub(super) const fn changed(body: Body) -> Success {
    let headers = &[(ETag, true), (IdempotencyReplayed, false)];
    Success { status: StatusCode::OK, description: "The write was executed.", headers, body: Some(body) }
}

/// The body of the response in the document, with these examples.
pub(super) fn written<const N: usize>(
    of: &AggregateType<'_>,
    schemas: &mut Schemas,
    examples: [(&str, Option<&ExampleOutcome>); N],
) -> Content {
    let parts = [("state", &of.state), ("events/items", &of.event), ("messages/items", &of.message)];
    let schema = schemas.add_response::<WriteResponse<'_>>(&format!("{}Written", of.name), &parts);
    let examples = examples.map(|(name, outcome)| (name, outcome.map(|outcome| outcome.response.clone())));
    Content { schema, examples: named(examples) }
}

/// What most endpoints that write have in common.
pub(super) const WRITE: Endpoint = Endpoint {
    method: "POST",
    query: Some(|| schema_for!(WriteQuery)),
    request_headers: &[&[&IF_MATCH], WRITE_HEADERS],
    ..Endpoint::READ
};

pub(super) enum RequestedCommands {
    One(CommandRequest),
    /// At least one, all or none of which are executed. A problem with one of them contains its position.
    Batch(Vec<CommandRequest>),
}

impl RequestedCommands {
    fn as_slice(&self) -> &[CommandRequest] {
        match self {
            Self::One(command) => std::slice::from_ref(command),
            Self::Batch(commands) => commands,
        }
    }
}

/// Executes the commands; a repeated request gets the stored response.
pub(super) async fn execute(
    api: &Api,
    model: &dyn Model,
    key: AggregateKey,
    commands: RequestedCommands,
    mut request: WriteRequest,
) -> Result<Response, Problem> {
    let creates = model.command_name(&commands.as_slice()[0].command) == model.commands().create;
    let expected_version = match request.if_match {
        Some(IfMatch::Exists) if creates => return Err(problem::precondition_failed()),
        Some(IfMatch::Version(_)) if creates => {
            return Err(problem::bad_header("If-Match", "left out of a creation: what is new has no version yet"));
        }
        Some(IfMatch::Version(version)) => Some(version),
        Some(IfMatch::Exists) | None => None,
    };
    if request.rebuild {
        require(model, &request.caller, Access::Rebuild, None)?;
    }
    let ttl = api.settings.idempotency_ttl;
    let options = TransactOptions {
        policy: if request.rebuild { LoadPolicy::Rebuild } else { LoadPolicy::Incremental },
        creates,
        expected_version,
        idempotency: request.identity.as_ref().map(|identity| identity.store_key(ttl)),
        deadline: request.deadline,
    };
    let span =
        tracing::debug_span!("append", daybook.events = Empty, daybook.messages = Empty, daybook.write_units = Empty);
    // The messages continue the trace from here. Its header has the same form and size as the one that it replaces.
    if let Some(context) = traces::context(&span) {
        request.meta.trace_header = Some(context.trace_header());
    }
    let write = RequestedWrite {
        model,
        key: &key,
        commands: &commands,
        meta: &request.meta,
        store: &api.store,
        caller: &request.caller,
        lacks_if_match: api.settings.require_if_match && request.if_match.is_none() && !creates,
        messages: AtomicU64::default(),
    };
    match api.store.transact(model, &key, &write, &options).instrument(span).await {
        Ok(transacted) => {
            if matches!(transacted, Transacted::Decided(_)) {
                count_write(commands.as_slice().len(), write.messages.into_inner());
            }
            write_response(transacted, &key)
        }
        Err(TransactError::ClaimTaken { claim, holder }) => {
            // The answer is known, so it does not wait for long until the holder is read.
            let may_read = may_read(api, &holder, Some(&request.caller));
            let may_read = timeout_at(request.deadline + TransactOptions::LAST_CALLS, may_read).await;
            let shown = matches!(may_read, Ok(Ok(true))).then(|| holder.to_string());
            Err(problem::claim_taken(claim.name(), shown))
        }
        Err(error) => Err(Problem { state_version: Some(model.state_version()), ..Problem::of_write(error, &key) }),
    }
}

/// The commands of one request, and what their decision and response need.
struct RequestedWrite<'a> {
    model: &'a dyn Model,
    key: &'a AggregateKey,
    commands: &'a RequestedCommands,
    meta: &'a Meta,
    store: &'a EventStore,
    caller: &'a Caller,
    /// Whether the deployment requires `If-Match`, and the request has none.
    lacks_if_match: bool,
    /// The number of messages of the last decision.
    messages: AtomicU64,
}

impl Decide for RequestedWrite<'_> {
    type Error = Problem;

    fn decide(&self, before: &Folded) -> Result<Decided, Problem> {
        let decided = self.model.decide(before, &self.key.id, self.commands.as_slice(), &self.decision_input());
        // A caller who may not send the command does not learn whether it lacks something else.
        let may_be_unauthorized = matches!(decided, Err(CommandError::Forbidden { .. } | CommandError::Unknown { .. }));
        let exists = before.version() > 0 && !self.model.is_deleted(before);
        if self.lacks_if_match && exists && !may_be_unauthorized {
            return Err(problem::if_match_required());
        }
        decided.map_err(|error| {
            let problem = Problem::of_command(&error, before.version()).about(self.key);
            Problem { index: error.index().and_then(|index| self.position(index)), ..problem }
        })
    }

    fn is_forbidden(problem: &Problem) -> bool {
        problem.problem_type.slug == problem::FORBIDDEN.slug
    }

    fn respond(&self, before: &Folded, decided: &Decided, detail: ResponseDetail) -> Result<CommandResponse, Problem> {
        let messages = decided.messages.len() as u64;
        self.messages.store(messages, Ordering::Relaxed);
        Span::current().record("daybook.events", decided.events.len() as u64).record("daybook.messages", messages);
        let version = decided.after.version();
        let state_version = self.model.state_version();
        // Events and messages can contain parts of the state, and so can the reason of a rejection.
        let may_read = version == 0 || is_allowed(self.model, self.caller, Access::Read, Some(&decided.after))?;
        if let Some(rejection) = decided.rejection.clone() {
            let index = self.position(rejection.index);
            let problem = Problem { index, ..problem::command_rejected(rejection, version, may_read) };
            if decided.events.is_empty() {
                return Err(problem);
            }
            let status = problem.problem_type.status.as_u16();
            return Ok(CommandResponse { status, version, state_version, body: problem.to_json() });
        }
        let created = before.version() == 0 && version > 0;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        let body = self.body(decided, if may_read { detail } else { ResponseDetail::VersionOnly })?;
        Ok(CommandResponse { status: status.as_u16(), version, state_version, body })
    }
}

impl RequestedWrite<'_> {
    /// The position of a command, if it is part of a batch.
    fn position(&self, index: usize) -> Option<u32> {
        u32::try_from(index).ok().filter(|_| matches!(self.commands, RequestedCommands::Batch(_)))
    }

    /// The body that contains what was decided. A state that has grown too large for a response is left out: it must not
    /// stop the writes that could make it smaller.
    fn body(&self, decided: &Decided, detail: ResponseDetail) -> Result<String, Problem> {
        let lists_events = detail != ResponseDetail::VersionOnly;
        let shows_meta = is_allowed(self.model, self.caller, Access::ReadMeta, Some(&decided.after))?;
        let event = |event| EventJson::of(event, shows_meta);
        let mut body = WriteResponse {
            id: &self.key.id,
            version: decided.after.version(),
            state: (detail == ResponseDetail::Full).then_some(&*decided.state),
            events: lists_events.then(|| decided.events.iter().map(event).collect()),
            messages: lists_events.then(|| decided.messages.iter().map(Into::into).collect()),
        };
        if let Some(text) = json_text(&body)? {
            return Ok(text);
        }
        body.state = None;
        let detail =
            "the events and messages together are larger than the 6 MB of a response; send fewer commands at once";
        json_text(&body)?.ok_or_else(|| Problem::new(&problem::TOO_LARGE, detail))
    }

    fn decision_input(&self) -> DecisionInput {
        let seed = Ulid::from_datetime(self.store.now().into());
        let now = i64::try_from(seed.timestamp_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        let epoch = self.store.settings().epoch;
        DecisionInput { now, seed, meta: self.meta.clone(), epoch, caller: self.caller.clone() }
    }
}
