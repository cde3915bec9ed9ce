//! An example of each kind of problem, told by the code that tells them to callers.

use daybook_decider::{DomainRejection, Registry};
use daybook_event_store::limits::TooLarge;
use serde_json::{Map, Value, json};

use super::examples;
use crate::problem::{Kind, Problem};

/// The version that the examples of conflicts are at.
pub(super) const CURRENT: u64 = 3;

/// The examples of all kinds, by the names that answers refer to them by.
pub(super) fn examples(registry: &Registry) -> Value {
    let of = |kind| (name(kind), json!({"summary": kind.title(), "value": body(kind, registry)}));
    Kind::ALL.map(of).into_iter().collect::<Map<_, _>>().into()
}

/// The examples of some kinds, as answers have them.
pub(super) fn references(kinds: &[Kind]) -> Value {
    let of = |&kind: &Kind| (name(kind), json!({"$ref": format!("#/components/examples/{}", name(kind))}));
    kinds.iter().map(of).collect::<Map<_, _>>().into()
}

/// The body of an example.
pub(super) fn body(kind: Kind, registry: &Registry) -> Value {
    serde_json::from_str(&example(kind, registry).tell().1).unwrap_or_default()
}

fn name(kind: Kind) -> String {
    format!("{kind:?}")
}

fn example(kind: Kind, registry: &Registry) -> Problem {
    match kind {
        Kind::MalformedJson => Problem::MalformedJson {
            reason: "the body is not JSON: EOF while parsing an object at line 1 column 1".to_owned(),
        },
        Kind::BadId => Problem::BadId { id: "two words".to_owned() },
        Kind::BadQuery => Problem::BadQuery { reason: "limit must be from 1 to 1000".to_owned() },
        Kind::BadHeader => Problem::BadHeader { name: "If-Match", expected: "the ETag of one version, such as \"3\"" },
        Kind::UnknownRoute => Problem::UnknownRoute { path: "/one/two/three".to_owned() },
        Kind::UnknownType => Problem::UnknownType {
            asked: "nothing".to_owned(),
            known: registry.iter().map(daybook_decider::Model::type_name).collect(),
        },
        Kind::UnknownEventType => Problem::UnknownEventType { asked: "NothingHappened".to_owned() },
        Kind::NotFound => Problem::NotFound,
        Kind::NoSuchVersion => Problem::NoSuchVersion { asked: CURRENT + 1, current: CURRENT },
        Kind::MethodNotAllowed => Problem::MethodNotAllowed { method: "PUT".to_owned(), allow: None },
        Kind::VersionConflict => Problem::Conflict { expected: CURRENT - 1, actual: CURRENT },
        Kind::AlreadyExists => Problem::AlreadyExists { version: CURRENT },
        Kind::Deleted => Problem::Deleted,
        Kind::TooLarge => Problem::TooLarge(TooLarge::Items { items: 101 }),
        Kind::NotJson => Problem::NotJson,
        Kind::BadBody => Problem::BadBody { reason: "the body must be an object".to_owned() },
        Kind::UnknownCommand => examples::unknown_command(registry)
            .unwrap_or_else(|| Problem::UnknownCommand { reason: "no command \"DoNothing\"".to_owned() }),
        Kind::InvalidCommand => examples::invalid_command(registry)
            .unwrap_or_else(|| Problem::InvalidCommand { reason: "missing field `title`".to_owned() }),
        Kind::Refused => Problem::Refused {
            refusal: DomainRejection {
                name: "InsufficientFunds",
                detail: "the balance would be -1001, it may not go below -1000".to_owned(),
            },
            version: CURRENT,
        },
        Kind::KeyReused => Problem::KeyReused,
        Kind::IfMatchRequired => Problem::IfMatchRequired,
        Kind::Internal => Problem::Internal { cause: String::new() },
        Kind::Unavailable => Problem::Unavailable { cause: String::new() },
        Kind::NewerRelease => Problem::NewerRelease { cause: String::new() },
        Kind::Contended => Problem::Contended,
    }
}
