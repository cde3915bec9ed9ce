use std::collections::BTreeSet;
use std::io::{self, Write};
use std::iter::successors;
use std::sync::{Arc, Mutex};

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
        Problem::AlreadyExists { .. } => Problem::CreatedTwice { reason: text() },
        Problem::CreatedTwice { .. } => Problem::Deleted,
        Problem::Deleted => Problem::AfterDeletion { reason: text() },
        Problem::AfterDeletion { .. } => Problem::BodyTooLarge,
        Problem::BodyTooLarge => Problem::TooLarge(TooLarge::Items { items: 101 }),
        Problem::TooLarge(_) => Problem::StateTooLarge,
        Problem::StateTooLarge => Problem::AnswerTooLarge,
        Problem::AnswerTooLarge => Problem::NotJson,
        Problem::NotJson => Problem::UnknownCommand { reason: text() },
        Problem::UnknownCommand { .. } => Problem::InvalidCommand { reason: text() },
        Problem::InvalidCommand { .. } => {
            Problem::Refused { refusal: DomainRejection { name: "No", detail: text() }, version: 1 }
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

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_the_service_could_not_do_is_logged_by_its_type() {
    for problem in all() {
        let (kind, log) = (problem.kind(), Log::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .finish();
        let _ = tracing::subscriber::with_default(subscriber, || problem.into_response());
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        if !kind.status().is_server_error() {
            assert_eq!(text, "", "{kind:?}");
            continue;
        }
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        let level = if kind == Kind::Internal { "ERROR" } else { "WARN" };
        assert_eq!((&line["level"], &line["message"]), (&level.into(), &"request failed".into()), "{kind:?}");
        assert_eq!((&line["problem"], &line["status"]), (&kind.urn().into(), &kind.status().as_u16().into()));
    }
}
