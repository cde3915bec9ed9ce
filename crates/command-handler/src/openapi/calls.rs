//! The calls: what each takes and answers, as one table.

use axum::http::StatusCode;
use daybook_decider::Commands;
use schemars::{Schema, schema_for};

use super::headers::Header;
use crate::feeds::{EventsQuery, FeedQuery, ListQuery};
use crate::problem::Kind;
use crate::read::StateQuery;
use crate::request::WriteQuery;

/// What a call does; with the type's name it makes the operation's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    List,
    Get,
    Update,
    Delete,
    Command,
    Events,
    Feed,
    Describe,
}

/// A way to call the API.
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    pub(super) query: Option<fn() -> Schema>,
    /// The request headers that it reads, by the names of their components.
    pub(super) headers: &'static [&'static str],
    /// Its good answers, with their headers and whether these are always there.
    pub(super) successes: &'static [(u16, &'static [(Header, bool)])],
    /// Its bad answers.
    pub(super) problems: &'static [&'static [Kind]],
}

const OF_READS: &[&str] = &["ReadCorrelationId"];
const OF_CREATIONS: &[&str] = &["IdempotencyKey", "XCorrelationId", "XCausationId", "Traceparent", "XAmznTraceId"];
const OF_WRITES: &[&str] =
    &["IfMatch", "IdempotencyKey", "XCorrelationId", "XCausationId", "Traceparent", "XAmznTraceId"];
const WRITTEN: &[(Header, bool)] = &[(Header::ETag, true), (Header::IdempotencyReplayed, false)];
const CREATED: &[(Header, bool)] =
    &[(Header::ETag, true), (Header::Location, true), (Header::IdempotencyReplayed, false)];
const READ: &[(Header, bool)] = &[(Header::ETag, true)];
const PAGE: &[(Header, bool)] = &[(Header::Link, false)];

/// What any call that reaches the table can come to.
const STORED: &[Kind] = &[Kind::Unavailable, Kind::Internal];
/// What any write can come to.
const WRITE: &[Kind] = &[
    Kind::MalformedJson,
    Kind::BadId,
    Kind::BadQuery,
    Kind::BadHeader,
    Kind::TooLarge,
    Kind::NotJson,
    Kind::Refused,
    Kind::KeyReused,
    Kind::NewerRelease,
    Kind::Contended,
];
/// What any write to an aggregate that should exist can come to.
const CHANGE: &[Kind] = &[Kind::NotFound, Kind::Deleted, Kind::VersionConflict, Kind::IfMatchRequired];

/// All calls, in the order of the document.
pub(super) const CALLS: [Call; 9] = [
    Call {
        verb: Verb::Create,
        method: "post",
        path: "/{type}",
        summary: "Create one",
        description: "The body is the data of the create command. With an `id` the aggregate gets that one; without, it \
                      gets one that follows from the `Idempotency-Key`, or else a new ULID. An id is used once, also \
                      after a deletion. What is new has no version yet, so there is no `If-Match`.",
        query: Some(|| schema_for!(WriteQuery)),
        headers: OF_CREATIONS,
        successes: &[(201, CREATED)],
        problems: &[STORED, WRITE, &[Kind::AlreadyExists, Kind::BadBody, Kind::InvalidCommand]],
    },
    Call {
        verb: Verb::List,
        method: "get",
        path: "/{type}",
        summary: "List all",
        description: "By creation, deleted ones too. The list follows a write within moments. `Link` leads to the next \
                      page, and is missing on the last.",
        query: Some(|| schema_for!(ListQuery)),
        headers: OF_READS,
        successes: &[(200, PAGE)],
        problems: &[STORED, &[Kind::BadQuery]],
    },
    Call {
        verb: Verb::Get,
        method: "get",
        path: "/{type}/{id}",
        summary: "Get the state",
        description: "As it is, every write before the call included; or as it was, with `version`. An earlier version \
                      of a deleted aggregate can still be read.",
        query: Some(|| schema_for!(StateQuery)),
        headers: &["IfNoneMatch", "ReadCorrelationId"],
        successes: &[(200, READ), (304, READ)],
        problems: &[
            STORED,
            &[
                Kind::BadId,
                Kind::BadQuery,
                Kind::NotFound,
                Kind::NoSuchVersion,
                Kind::Deleted,
                Kind::TooLarge,
                Kind::NewerRelease,
            ],
        ],
    },
    Call {
        verb: Verb::Update,
        method: "post",
        path: "/{type}/{id}",
        summary: "Update it",
        description: "The body is the data of the update command. Where nothing changes, nothing is appended and the \
                      `ETag` stays.",
        query: Some(|| schema_for!(WriteQuery)),
        headers: OF_WRITES,
        successes: &[(200, WRITTEN)],
        problems: &[STORED, WRITE, CHANGE, &[Kind::InvalidCommand]],
    },
    Call {
        verb: Verb::Delete,
        method: "delete",
        path: "/{type}/{id}",
        summary: "Delete it",
        description: "Without a body. From then on it answers 410; its events and its earlier versions can be read, and \
                      its id is not used again.",
        query: Some(|| schema_for!(WriteQuery)),
        headers: OF_WRITES,
        successes: &[(200, WRITTEN)],
        problems: &[STORED, WRITE, CHANGE, &[Kind::BadBody]],
    },
    Call {
        verb: Verb::Command,
        method: "post",
        path: "/{type}/{id}/commands",
        summary: "Send commands",
        description: "One command, or an array of them that is carried out all or not at all. A refusal of one drops \
                      what the others would have done; what the refusal itself records is appended, and the `ETag` then \
                      tells the version after it. An array that creates twice comes to 409, one that goes on after the \
                      deletion to 410. `data` may be left out where it would be empty.",
        query: Some(|| schema_for!(WriteQuery)),
        headers: OF_WRITES,
        successes: &[(200, WRITTEN), (201, CREATED)],
        problems: &[
            STORED,
            WRITE,
            CHANGE,
            &[Kind::AlreadyExists, Kind::BadBody, Kind::UnknownCommand, Kind::InvalidCommand],
        ],
    },
    Call {
        verb: Verb::Events,
        method: "get",
        path: "/{type}/{id}/events",
        summary: "Read its events",
        description: "In order, from the first or after a number, as they were stored; those of a deleted aggregate too. \
                      `Link` leads to the next page, and is missing on the last.",
        query: Some(|| schema_for!(EventsQuery)),
        headers: OF_READS,
        successes: &[(200, PAGE)],
        problems: &[STORED, &[Kind::BadId, Kind::BadQuery, Kind::NotFound]],
    },
    Call {
        verb: Verb::Feed,
        method: "get",
        path: "/events",
        summary: "Read the events of a type, across all aggregates",
        description: "By time. Events are found by the name that they were stored under: what has another name today, or \
                      means nothing any more, by the one that it had. The feed follows a write within moments, and an \
                      event can appear behind a cursor of the same second: it is for looking back, the bus for keeping \
                      up. `Link` leads to the next page, and is missing on the last.",
        query: Some(|| schema_for!(FeedQuery)),
        headers: OF_READS,
        successes: &[(200, PAGE)],
        problems: &[STORED, &[Kind::BadQuery, Kind::UnknownEventType]],
    },
    Call {
        verb: Verb::Describe,
        method: "get",
        path: "/openapi.json",
        summary: "Read this document",
        description: "OpenAPI 3.1, made from the code that answers.",
        query: None,
        headers: OF_READS,
        successes: &[(200, &[])],
        problems: &[&[Kind::BadQuery, Kind::Unavailable]],
    },
];

impl Call {
    /// Whether a type with these commands takes it.
    pub(super) fn is_of(&self, commands: Commands) -> bool {
        match self.verb {
            Verb::Update => commands.update.is_some(),
            Verb::Delete => commands.delete.is_some(),
            Verb::Create | Verb::List | Verb::Get | Verb::Command | Verb::Events => true,
            Verb::Feed | Verb::Describe => false,
        }
    }

    /// Whether it is not about one type.
    pub(super) fn is_of_suite(&self) -> bool {
        matches!(self.verb, Verb::Feed | Verb::Describe)
    }

    /// No word begins another and types are not named with capitals, so an id is unique as its type is.
    pub(super) fn operation_id(&self, name: &str) -> String {
        let word = match self.verb {
            Verb::Create => "create",
            Verb::List => "list",
            Verb::Get => "get",
            Verb::Update => "update",
            Verb::Delete => "delete",
            Verb::Command => "command",
            Verb::Events => "eventsOf",
            Verb::Feed => "listEvents",
            Verb::Describe => "describe",
        };
        format!("{word}{name}")
    }

    /// The headers of a bad answer.
    pub(super) fn problem_headers(&self, status: StatusCode) -> Vec<(Header, bool)> {
        match status {
            StatusCode::CONFLICT => vec![(Header::ETag, false)],
            // A refusal that is recorded is an answer like a success.
            StatusCode::UNPROCESSABLE_ENTITY => vec![(Header::ETag, false), (Header::IdempotencyReplayed, false)],
            StatusCode::SERVICE_UNAVAILABLE => vec![(Header::RetryAfter, true)],
            _ => vec![],
        }
    }
}
