use std::collections::BTreeSet;
use std::iter::successors;

use super::*;

/// The problem after another in a chain of all: the compiler asks for the place of each new one.
fn after(problem: &Problem) -> Option<Problem> {
    let text = || "text".to_owned();
    Some(match problem {
        Problem::MalformedJson { .. } => Problem::BadBody { reason: text() },
        Problem::BadBody { .. } => Problem::BadId { id: text() },
        Problem::BadId { .. } => Problem::BadQuery { reason: text() },
        Problem::BadQuery { .. } => Problem::BadHeader { name: "If-Match", expected: "a version" },
        Problem::BadHeader { .. } => Problem::UnknownRoute { path: text() },
        Problem::UnknownRoute { .. } => Problem::UnknownType { asked: text(), known: vec!["todo"] },
        Problem::UnknownType { .. } => Problem::UnknownEventType { asked: text() },
        Problem::UnknownEventType { .. } => Problem::NotFound,
        Problem::NotFound => Problem::NoSuchVersion { asked: 2, current: 1 },
        Problem::NoSuchVersion { .. } => Problem::MethodNotAllowed { method: text(), allow: Some(text()) },
        Problem::MethodNotAllowed { .. } => {
            Problem::NoCommandForVerb { type_name: "order", verb: "update", allow: text() }
        }
        Problem::NoCommandForVerb { .. } => Problem::Conflict { expected: 1, actual: 2 },
        Problem::Conflict { .. } => Problem::AlreadyExists { version: 1 },
        Problem::AlreadyExists { .. } => Problem::Deleted,
        Problem::Deleted => Problem::BodyTooLarge,
        Problem::BodyTooLarge => Problem::TooLarge(TooLarge::Items { items: 101 }),
        Problem::TooLarge(_) => Problem::StateTooLarge,
        Problem::StateTooLarge => Problem::AnswerTooLarge,
        Problem::AnswerTooLarge => Problem::NotJson,
        Problem::NotJson => Problem::UnknownCommand { reason: text() },
        Problem::UnknownCommand { .. } => Problem::InvalidCommand { reason: text() },
        Problem::InvalidCommand { .. } => {
            Problem::Refused { refusal: Refusal { name: "No", detail: text() }, version: 1 }
        }
        Problem::Refused { .. } => Problem::KeyReused,
        Problem::KeyReused => Problem::IfMatchRequired,
        Problem::IfMatchRequired => Problem::Unavailable { cause: text() },
        Problem::Unavailable { .. } => Problem::NewerRelease { cause: text() },
        Problem::NewerRelease { .. } => Problem::Contended,
        Problem::Contended => Problem::Internal { cause: text() },
        Problem::Internal { .. } => return None,
    })
}

fn all() -> impl Iterator<Item = Problem> {
    successors(Some(Problem::MalformedJson { reason: "text".to_owned() }), after)
}

#[test]
fn the_list_of_kinds_is_that_of_all_problems() {
    assert_eq!(all().map(|problem| problem.kind()).collect::<BTreeSet<_>>(), BTreeSet::from(Kind::ALL));
    assert!(Kind::ALL.is_sorted_by_key(|kind| kind.status().as_u16()));
    let urns: BTreeSet<_> = Kind::ALL.map(Kind::urn).into();
    assert_eq!(urns.len(), Kind::ALL.len(), "{urns:?}");
}

#[test]
fn a_problem_tells_its_kind() {
    for problem in all() {
        let (status, body) = problem.tell();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, problem.kind().status());
        assert_eq!((&body["type"], &body["status"]), (&problem.kind().urn().into(), &status.as_u16().into()));
        assert!(!body["detail"].as_str().unwrap().is_empty(), "{body}");
    }
}
