//! Problems of the request itself: it cannot be read, or no aggregate can fulfil it.

use axum::http::StatusCode;
use daybook_decider::{Caller, CommandError, CommandRequest, DecisionInput, Json, Meta, Model, Registry};
use daybook_projection::Projections;
use jiff::Timestamp;
use ulid::Ulid;

use super::response::{Problem, ProblemType};

pub(crate) const MALFORMED_JSON: ProblemType = ProblemType::new(
    ("malformed-json", StatusCode::BAD_REQUEST, "Malformed JSON"),
    "the body is not well-formed JSON, or nests deeper than 100 levels",
    |_| Problem::new(&MALFORMED_JSON, "the body is not JSON: EOF while parsing an object at line 1 column 1"),
);

pub(crate) const BAD_ID: ProblemType = ProblemType::new(
    ("bad-id", StatusCode::BAD_REQUEST, "Bad id"),
    "the id contains a character that is not allowed, or is empty or too long",
    |_| bad_id("two words"),
);

pub(crate) fn bad_id(id: &str) -> Problem {
    let expected = "use 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - (not \".\" or \"..\")";
    Problem::new(&BAD_ID, format!("{id:?} is no id: {expected}"))
}

pub(crate) const BAD_QUERY: ProblemType = ProblemType::new(
    ("bad-query", StatusCode::BAD_REQUEST, "Bad query"),
    "a query parameter is unknown, missing or out of range",
    |_| Problem::new(&BAD_QUERY, "limit must be from 1 to 1000"),
);

pub(crate) const BAD_HEADER: ProblemType = ProblemType::new(
    ("bad-header", StatusCode::BAD_REQUEST, "Bad header"),
    "a header cannot be read, is sent twice or is not allowed in this request",
    |_| bad_header("If-Match", "the ETag of one version, such as \"3-1\""),
);

pub(crate) fn bad_header(name: &str, expected: &str) -> Problem {
    Problem::new(&BAD_HEADER, format!("{name} must be {expected}"))
}

pub(crate) const UNKNOWN_ROUTE: ProblemType = ProblemType::new(
    ("unknown-route", StatusCode::NOT_FOUND, "Unknown route"),
    "there is nothing at this path",
    |_| unknown_route("/one/two/three"),
);

pub(crate) fn unknown_route(path: &str) -> Problem {
    Problem::new(&UNKNOWN_ROUTE, format!("there is nothing at {path}"))
}

pub(crate) fn unknown_view(name: &str, projections: &Projections) -> Problem {
    let known: Vec<_> = projections.names().collect();
    let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {}", known.join(", ")) };
    Problem::new(&UNKNOWN_ROUTE, format!("there is no view {name:?}; {known}"))
}

pub(crate) const UNKNOWN_TYPE: ProblemType = ProblemType::new(
    ("unknown-type", StatusCode::NOT_FOUND, "Unknown aggregate type"),
    "there is no such aggregate type",
    |registry| unknown_type("nothing", registry),
);

pub(crate) fn unknown_type(type_name: &str, registry: &Registry) -> Problem {
    let known: Vec<_> = registry.iter().map(Model::type_name).collect();
    let known =
        if known.is_empty() { "no aggregate is registered".to_owned() } else { format!("known: {}", known.join(", ")) };
    Problem::new(&UNKNOWN_TYPE, format!("there is no type {type_name:?}; {known}"))
}

pub(crate) const UNKNOWN_EVENT_TYPE: ProblemType = ProblemType::new(
    ("unknown-event-type", StatusCode::NOT_FOUND, "Unknown event type"),
    "no aggregate has such an event",
    |_| unknown_event_type("NothingHappened"),
);

pub(crate) fn unknown_event_type(event_type: &str) -> Problem {
    Problem::new(&UNKNOWN_EVENT_TYPE, format!("no aggregate has an event {event_type:?}"))
}

pub(crate) const METHOD_NOT_ALLOWED: ProblemType = ProblemType::new(
    ("method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "Method not allowed"),
    "the resource does not support this method",
    |_| method_not_allowed("PUT", None),
);

/// `model` is the type of the aggregate, if the resource is an aggregate.
pub(crate) fn method_not_allowed(method: &str, model: Option<&dyn Model>) -> Problem {
    let detail = format!("this resource does not take {method}; see the Allow header");
    Problem { allow: model.map(allowed_methods), ..Problem::new(&METHOD_NOT_ALLOWED, detail) }
}

/// The type has no update command, or no delete command.
pub(crate) fn no_command_to(action: &str, model: &dyn Model) -> Problem {
    let detail = format!("{} has no command to {action}; send one to its /commands", model.type_name());
    Problem { allow: Some(allowed_methods(model)), ..Problem::new(&METHOD_NOT_ALLOWED, detail) }
}

/// The methods that an aggregate supports: reads, and those for which its type has commands.
fn allowed_methods(model: &dyn Model) -> Box<str> {
    let commands = model.commands();
    let writes = [commands.update.map(|_| ",POST"), commands.delete.map(|_| ",DELETE")];
    writes.into_iter().flatten().fold("GET,HEAD".to_owned(), |all, method| all + method).into()
}

pub(crate) const TOO_LARGE: ProblemType = ProblemType::new(
    ("too-large", StatusCode::PAYLOAD_TOO_LARGE, "Too large"),
    "the body, an event, the events together or the response would be too large to be stored or returned",
    |_| Problem::new(&TOO_LARGE, CommandError::TooMany.to_string()),
);

pub(crate) const NOT_JSON: ProblemType = ProblemType::new(
    ("not-json", StatusCode::UNSUPPORTED_MEDIA_TYPE, "Not JSON"),
    "the body is not declared to be JSON: send it with Content-Type: application/json",
    |_| Problem::of(&NOT_JSON),
);

pub(crate) const BAD_BODY: ProblemType = ProblemType::new(
    ("bad-body", StatusCode::UNPROCESSABLE_ENTITY, "Wrong fields"),
    "the body is JSON, but not of the expected form",
    |_| bad_body("the body must be an object"),
);

pub(crate) fn bad_body(detail: impl Into<String>) -> Problem {
    Problem::new(&BAD_BODY, detail)
}

pub(crate) const UNKNOWN_COMMAND: ProblemType = ProblemType::new(
    ("unknown-command", StatusCode::UNPROCESSABLE_ENTITY, "Unknown command"),
    "the type has no such command",
    |registry| Problem::new(&UNKNOWN_COMMAND, command_error(registry, |_| "DoNothing", "{}")),
);

pub(crate) const INVALID_COMMAND: ProblemType = ProblemType::new(
    ("invalid-command", StatusCode::UNPROCESSABLE_ENTITY, "Wrong fields"),
    "the data does not fit the command",
    |registry| {
        let error = command_error(registry, |model| model.commands().create, r#"{"colour": "red"}"#);
        Problem::new(&INVALID_COMMAND, error)
    },
);

pub(crate) const KEY_REUSED: ProblemType = ProblemType::new(
    ("key-reused", StatusCode::UNPROCESSABLE_ENTITY, "Idempotency key reused"),
    "this Idempotency-Key was used for another request; take a new one",
    |_| Problem::of(&KEY_REUSED),
);

pub(crate) const IF_MATCH_REQUIRED: ProblemType = ProblemType::new(
    ("if-match-required", StatusCode::PRECONDITION_REQUIRED, "If-Match required"),
    "a write to an aggregate that exists requires If-Match here: send the ETag of the version that you saw",
    |_| Problem::of(&IF_MATCH_REQUIRED),
);

pub(crate) const PRECONDITION_FAILED: ProblemType = ProblemType::new(
    ("precondition-failed", StatusCode::PRECONDITION_FAILED, "Precondition failed"),
    "If-Match: * requires an aggregate that exists; leave it out of a creation",
    |_| Problem::of(&PRECONDITION_FAILED),
);

/// The error of the last registered type for a command that does not reach its rules.
fn command_error(registry: &Registry, command: fn(&dyn Model) -> &'static str, data: &'static str) -> String {
    let decide = || {
        let model = registry.iter().last()?;
        let data = Json::parse(data.to_owned()).ok()?;
        let commands = [CommandRequest { command: command(model).to_owned(), data }];
        let input = DecisionInput::new(Timestamp::UNIX_EPOCH, Ulid::nil(), Meta::default(), Caller::anonymous(), 1);
        model.decide(&model.before_first_event(), "123", &commands, &input).err()
    };
    decide().map_or_else(|| "no type is registered".to_owned(), |error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_view_of_code_without_views_is_explained() {
        let problem = unknown_view("totals", &Projections::new());
        assert_eq!(problem.detail, "there is no view \"totals\"; there is none");
    }
}
