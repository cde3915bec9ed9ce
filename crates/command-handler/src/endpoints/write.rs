//! Executes all writes: commands are decided and appended in a transaction of the store.
//!
//! An error of the path takes precedence over errors of the rest of the request: a resource that does not exist, or
//! does not support the method, returns that error whatever else was sent.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use axum::response::Response;
use daybook_decider::{
    Access, Addressed, AggregateKey, Authorization, Caller, Claim, CommandError, CommandRequest, Decided,
    DecisionInput, Decisions, Folded, Involved, JointError, Meta, Model, Need, joint,
};
use daybook_event_store::{
    CommandResponse, Decide, LoadPolicy, ResponseDetail, TransactError, TransactOptions, Transacted, Undecided,
};
use daybook_function_runtime::traces;
use schemars::schema_for;
use serde::Serialize;
use tokio::time::timeout_at;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::authorization::{authorization, may_read, require};
use super::endpoint::{Body, Endpoint, Success};
use super::request_headers::{IF_MATCH, WRITE_HEADERS};
use crate::api::Api;
use crate::etag::IfMatch;
use crate::openapi::aggregate_type::{AggregateType, ExampleOutcome};
use crate::openapi::schemas::{Content, Schemas, named};
use crate::problem::{self, Problem, ProblemType};
use crate::request::{WriteQuery, WriteRequest};
use crate::response::{EventJson, JointResponse, JointResult, WriteResponse, json_text, write_response};
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
    &problem::SUBJECT_FORGOTTEN,
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

pub(super) const fn created(body: Body) -> Success {
    let headers = &[("ETag", true), ("Location", true), ("Idempotency-Replayed", false)];
    Success { status: StatusCode::CREATED, description: "The aggregate was created.", headers, body: Some(body) }
}

pub(super) const fn changed(body: Body) -> Success {
    let headers = &[("ETag", true), ("Idempotency-Replayed", false)];
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
    /// The same for several aggregates. The response contains the result of each.
    Joint(Vec<ConditionalCommand>),
}

pub(super) struct ConditionalCommand {
    pub(super) to: Recipient,
    pub(super) command: CommandRequest,
    /// The version that the aggregate must have before the request.
    pub(super) expected: Option<u64>,
}

pub(super) enum Recipient {
    Aggregate(AggregateKey),
    Holder(Claim),
}

impl RequestedCommands {
    fn first(&self) -> &CommandRequest {
        match self {
            Self::One(command) => command,
            Self::Batch(commands) => &commands[0],
            Self::Joint(commands) => &commands[0].command,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Batch(commands) => commands.len(),
            Self::Joint(commands) => commands.len(),
        }
    }
}

/// Executes the commands, of which the first is to this aggregate; a repeated request gets the stored response.
pub(super) async fn execute(
    api: &Api,
    model: &dyn Model,
    key: AggregateKey,
    commands: RequestedCommands,
    mut request: WriteRequest,
) -> Result<Response, Problem> {
    let is_joint = matches!(commands, RequestedCommands::Joint(_));
    let creates = model.command_name(&commands.first().command) == model.commands().create;
    let expected_version = match request.if_match {
        Some(IfMatch::Exists) if creates => return Err(Problem::of(&problem::PRECONDITION_FAILED)),
        Some(IfMatch::Version(_)) if creates => {
            return Err(problem::bad_header("If-Match", "left out of a creation: what is new has no version yet"));
        }
        Some(IfMatch::Version(version)) => Some(version),
        Some(IfMatch::Exists) | None => None,
    };
    if request.rebuild {
        require(model, &request.caller, Access::Rebuild, Some(&key.id), None)?;
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
        api,
        model,
        key: &key,
        commands: &commands,
        meta: &request.meta,
        caller: &request.caller,
        rebuild: request.rebuild,
        requires_if_match: api.settings.require_if_match && request.if_match.is_none() && (is_joint || !creates),
        messages: AtomicU64::default(),
    };
    match api.store.transact(model, &key, &write, &options).instrument(span).await {
        Ok(transacted) => {
            if matches!(transacted, Transacted::Decided(_)) {
                count_write(commands.len(), write.messages.into_inner());
            }
            write_response(transacted, Some(&key).filter(|_| !is_joint))
        }
        Err(TransactError::ClaimTaken { claim, holder }) => {
            // The answer is known, so it does not wait for long until the holder is read.
            let may_read = may_read(api, &holder, Some(&request.caller));
            let may_read = timeout_at(request.deadline + TransactOptions::LAST_CALLS, may_read).await;
            let shown = matches!(may_read, Ok(Ok(true))).then(|| holder.to_string());
            Err(problem::claim_taken(claim.name(), shown))
        }
        Err(error) => {
            // Without it, there is no `ETag`, which would not say of which aggregate it is.
            let state_version = (!is_joint).then(|| model.state_version());
            Err(Problem { state_version, ..Problem::of_write(error, &key) })
        }
    }
}

/// The commands of one request, and what their decision and response need.
struct RequestedWrite<'a> {
    api: &'a Api,
    model: &'a dyn Model,
    key: &'a AggregateKey,
    commands: &'a RequestedCommands,
    meta: &'a Meta,
    caller: &'a Caller,
    /// Whether the states are folded from the first event.
    rebuild: bool,
    /// Whether the deployment requires `If-Match`, and the request has none. That of several aggregates has an `ifMatch` for
    /// each.
    requires_if_match: bool,
    /// The number of messages of the last decision.
    messages: AtomicU64,
}

impl Decide for RequestedWrite<'_> {
    type Error = Problem;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<Problem>> {
        let requests = self.requests(involved)?;
        let input = self.api.store.decision_input(self.meta.clone(), self.caller.clone());
        let input = DecisionInput { involved: involved.clone(), ..input };
        let decided = joint::decide(&self.api.registry, before, &requests, &input);
        // A caller who may not send a command does not learn whether it lacks something else.
        match &decided {
            Err(JointError { error: CommandError::Needs(needs), .. }) => return Err(Undecided::Needs(needs.clone())),
            Ok(Decisions { own, .. }) if self.is_joint() => {
                let allowed = own.rejection.as_ref().map_or(requests.len(), |rejection| rejection.index + 1);
                self.check_versions(before, involved, &requests[..allowed])?;
            }
            Err(_) if self.is_joint() => {}
            Err(JointError { error, .. }) if is_unauthorized(error) => {}
            Ok(_) | Err(_) => {
                let exists = before.version() > 0 && !self.model.is_deleted(before);
                if self.requires_if_match && exists {
                    return Err(Problem::of(&problem::IF_MATCH_REQUIRED).into());
                }
            }
        }
        decided.map_err(|JointError { aggregate, index, error }| {
            let aggregate = aggregate.map(|aggregate| *aggregate);
            let state = aggregate.as_ref().map_or(Some(before), |other| involved.aggregates.get(other));
            let version = state.map_or(0, Folded::version);
            let about = aggregate.as_ref().unwrap_or(self.key);
            let read = || self.reading(about, state?).ok();
            let is_by_claim = matches!(
                (self.commands, index),
                (RequestedCommands::Joint(commands), Some(index)) if matches!(commands[index].to, Recipient::Holder(_))
            );
            let index = index.and_then(|index| self.position(index));
            // A caller who may not send a command to the holder of a claim does not learn that there is one. If that is not known,
            // because the command is none of the aggregate, only who may read the holder does.
            let is_forbidden = matches!(error, CommandError::Forbidden { .. });
            if is_by_claim && (is_forbidden || is_unauthorized(&error) && !read().is_some_and(|read| read.is_whole())) {
                return Problem { index, ..Problem::of(&problem::NOT_FOUND) }.into();
            }
            let is_about_one = !matches!(error, CommandError::TooMany | CommandError::TooManyInvolved);
            let problem = Problem::of_command(&error, version).about(about);
            self.of_aggregate(aggregate, is_about_one, Problem { index, ..problem }).into()
        })
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.api.registry.get(aggregate_type)
    }

    fn is_forbidden(problem: &Problem) -> bool {
        [&problem::FORBIDDEN, &problem::INVALID_COMMAND, &problem::UNKNOWN_COMMAND]
            .iter()
            .any(|refused| problem.problem_type.slug == refused.slug)
    }

    fn respond(
        &self,
        before: &Folded,
        decisions: &Decisions,
        detail: ResponseDetail,
    ) -> Result<CommandResponse, Problem> {
        let Decisions { own, others, .. } = decisions;
        let all = || std::iter::once(own).chain(others.iter().map(|(_, other)| other));
        let messages = all().map(|decided| decided.messages.len() as u64).sum();
        let events: usize = all().map(|decided| decided.events.len()).sum();
        self.messages.store(messages, Ordering::Relaxed);
        Span::current().record("daybook.events", events as u64).record("daybook.messages", messages);
        let version = own.after.version();
        let state_version = self.model.state_version();
        if let Some(rejection) = own.rejection.clone() {
            let index = self.position(rejection.index);
            let by = rejection.by.clone();
            let state = others.first().filter(|_| by.is_some()).map_or(&own.after, |(_, other)| &other.after);
            let may_read = self.reading(by.as_ref().unwrap_or(self.key), state)?.is_whole();
            let problem = Problem { index, ..problem::command_rejected(rejection, version, may_read) };
            let problem = self.of_aggregate(by, true, problem);
            if events == 0 {
                return Err(problem);
            }
            let status = problem.problem_type.status.as_u16();
            return Ok(CommandResponse { status, version, state_version, body: problem.to_json() });
        }
        let created = before.version() == 0 && version > 0 && !self.is_joint();
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        let body = if self.is_joint() { self.joint_body(decisions, detail)? } else { self.body(own, detail)? };
        Ok(CommandResponse { status: status.as_u16(), version, state_version, body })
    }
}

impl RequestedWrite<'_> {
    fn is_joint(&self) -> bool {
        matches!(self.commands, RequestedCommands::Joint(_))
    }

    fn requests<'r>(&'r self, involved: &'r Involved) -> Result<Vec<Addressed<'r>>, Undecided<Problem>> {
        let to_own = |commands| Ok(vec![Addressed::new(self.key, commands)]);
        let commands = match self.commands {
            RequestedCommands::One(command) => return to_own(std::slice::from_ref(command)),
            RequestedCommands::Batch(commands) => return to_own(commands),
            RequestedCommands::Joint(commands) => commands,
        };
        let (mut requests, mut needs) = (Vec::<Addressed<'_>>::new(), Vec::new());
        for (position, ConditionalCommand { to, command, .. }) in commands.iter().enumerate() {
            let to = match to {
                Recipient::Aggregate(key) => key,
                Recipient::Holder(claim) => match involved.holders.get(claim) {
                    Some(Some(holder)) => holder,
                    Some(None) => {
                        return Err(
                            Problem { index: self.position(position), ..Problem::of(&problem::NOT_FOUND) }.into()
                        );
                    }
                    None => {
                        needs.push(Need::Holder(claim.clone()));
                        continue;
                    }
                },
            };
            if position == 0 && to != self.key {
                return Err(Problem::of(&problem::CONTENDED).into());
            }
            if self.rebuild {
                require(self.api.model(&to.aggregate_type)?, self.caller, Access::Rebuild, Some(&to.id), None)?;
            }
            requests.push(Addressed::new(to, std::slice::from_ref(command)));
        }
        if needs.is_empty() { Ok(requests) } else { Err(Undecided::Needs(needs)) }
    }

    /// Checks the versions that a request to several aggregates expects of them, for the first commands, which the caller may
    /// send.
    fn check_versions(
        &self,
        before: &Folded,
        involved: &Involved,
        requests: &[Addressed<'_>],
    ) -> Result<(), Undecided<Problem>> {
        let RequestedCommands::Joint(commands) = self.commands else { return Ok(()) };
        let mut needs = Vec::new();
        let conditions =
            || requests.iter().map(|request| &*request.to).zip(commands.iter().map(|command| command.expected));
        for (position, (to, expected)) in conditions().enumerate() {
            let known = if to == self.key { Some(before) } else { involved.aggregates.get(to) };
            let problem = match (expected, known.map(Folded::version)) {
                (Some(_), None) => {
                    needs.push(Need::Aggregate(to.clone()));
                    continue;
                }
                (Some(expected), Some(actual)) if actual != expected => {
                    Problem { version: None, ..problem::version_conflict(expected, actual) }
                }
                (None, Some(1..))
                    if self.requires_if_match && !conditions().any(|(of, expected)| of == to && expected.is_some()) =>
                {
                    Problem::new(
                        &problem::IF_MATCH_REQUIRED,
                        "give each command ifMatch, the version that its caller has seen",
                    )
                }
                // What is not known is created.
                (Some(_), Some(_)) | (None, _) => continue,
            };
            return Err(
                Problem { index: self.position(position), aggregate: Some(to.clone().into()), ..problem }.into()
            );
        }
        if needs.is_empty() { Ok(()) } else { Err(Undecided::Needs(needs)) }
    }

    /// The problem with the aggregate that it is about, if that is not the only one of the request. A response about several
    /// has no `ETag`.
    fn of_aggregate(&self, other: Option<AggregateKey>, is_about_one: bool, problem: Problem) -> Problem {
        let own = Some(self.key).filter(|_| self.is_joint() && is_about_one).cloned();
        let version = problem.version.filter(|_| !self.is_joint() && other.is_none());
        Problem { version, aggregate: other.or(own).map(Box::new), ..problem }
    }

    /// The position of a command, if it is part of a batch.
    fn position(&self, index: usize) -> Option<u32> {
        u32::try_from(index).ok().filter(|_| !matches!(self.commands, RequestedCommands::One(_)))
    }

    /// Whether the caller may read an aggregate. Events and messages can contain parts of the state, and so can the
    /// reason of a rejection: only who may read the whole gets them.
    fn reading(&self, key: &AggregateKey, state: &Folded) -> Result<Authorization, Problem> {
        if state.version() == 0 {
            return Ok(Authorization::Unrestricted);
        }
        authorization(self.api.model(&key.aggregate_type)?, self.caller, Access::Read, Some(&key.id), Some(state))
    }

    /// The body that contains what was decided. A state that has grown too large for a response is left out: it must not
    /// stop the writes that could make it smaller.
    fn body(&self, decided: &Decided, detail: ResponseDetail) -> Result<String, Problem> {
        let body = self.result(self.key, decided, detail)?;
        text_of(body, |body| body.state = None)
    }

    /// The body for several aggregates, with the result of each that the request names.
    fn joint_body(&self, decisions: &Decisions, detail: ResponseDetail) -> Result<String, Problem> {
        let others = decisions.others.iter().take(decisions.named).map(|(key, other)| (key, other));
        let mut results = Vec::new();
        for (key, decided) in std::iter::once((self.key, &decisions.own)).chain(others) {
            results.push(JointResult { aggregate: key.to_string(), result: self.result(key, decided, detail)? });
        }
        text_of(JointResponse { results }, |body| body.results.iter_mut().for_each(|of_one| of_one.result.state = None))
    }

    fn result<'d>(
        &self,
        key: &'d AggregateKey,
        decided: &'d Decided,
        detail: ResponseDetail,
    ) -> Result<WriteResponse<'d>, Problem> {
        let read = self.reading(key, &decided.after)?;
        let detail = if read.is_allowed() { detail } else { ResponseDetail::VersionOnly };
        let lists_events = detail != ResponseDetail::VersionOnly && read.is_whole();
        let part = read.into_part();
        let model = self.api.model(&key.aggregate_type)?;
        let meta = authorization(model, self.caller, Access::ReadMeta, Some(&key.id), Some(&decided.after))?;
        let event = |event| EventJson::of(event, meta.is_allowed());
        Ok(WriteResponse {
            id: &key.id,
            version: decided.after.version(),
            state: (detail == ResponseDetail::Full).then(|| part.map_or(Cow::Borrowed(&*decided.state), Cow::Owned)),
            events: lists_events.then(|| decided.events.iter().map(event).collect()),
            messages: lists_events.then(|| decided.messages.iter().map(Into::into).collect()),
        })
    }
}

/// Whether the caller may not send the command, or cannot be checked, because the command is none of the aggregate.
fn is_unauthorized(error: &CommandError) -> bool {
    matches!(error, CommandError::Forbidden { .. } | CommandError::Unknown { .. } | CommandError::Invalid { .. })
}

/// The text of a body, without states if it is too large otherwise.
fn text_of<T: Serialize>(mut body: T, leave_states_out: impl FnOnce(&mut T)) -> Result<String, Problem> {
    if let Some(text) = json_text(&body)? {
        return Ok(text);
    }
    leave_states_out(&mut body);
    let detail = "the events and messages together are larger than the 6 MB of a response; send fewer commands at once";
    json_text(&body)?.ok_or_else(|| Problem::new(&problem::TOO_LARGE, detail))
}
