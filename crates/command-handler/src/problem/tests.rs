use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use axum::response::IntoResponse;
use daybook_decider::{AggregatePanic, CommandError};
use daybook_event_store::limits::TooLarge;
use daybook_event_store::{StoreError, TransactError};
use daybook_table::AggregateKey;

use super::*;
use crate::endpoints::ENDPOINTS;

fn types() -> impl Iterator<Item = &'static ProblemType> {
    ENDPOINTS.iter().flat_map(|endpoint| endpoint.problems).copied().flatten().copied()
}

fn problems() -> Vec<Problem> {
    let text = || "text".to_owned();
    let registry = aggregates::registry().unwrap();
    let of_commands = [
        CommandError::Unknown { index: 0, command: text(), known: vec![text()] },
        CommandError::Invalid { index: 0, command: text(), reason: text() },
        CommandError::Forbidden { index: 0, command: text() },
        CommandError::Missing,
        CommandError::Exists { index: 0 },
        CommandError::Deleted,
        CommandError::CreatedTwice { index: 1 },
        CommandError::AfterDeletion { index: 1 },
        CommandError::TooMany,
        CommandError::TooLarge,
        CommandError::Panicked(AggregatePanic {
            aggregate_type: "todo",
            method: "decide",
            message: text(),
            location: text(),
        }),
        CommandError::Unwritable { event: text(), reason: text() },
    ];
    let of_store = [
        StoreError::Unavailable { doing: "test", source: text().into() },
        StoreError::Newer { item: text(), source: text().into() },
        StoreError::Corrupt { item: text(), source: text().into() },
        StoreError::Panicked { item: text(), source: text().into() },
        StoreError::InvalidRequest { doing: "test", source: text().into() },
    ];
    let of_transactions = [
        TransactError::Decide(Problem::of(&NOT_FOUND)),
        TransactError::Conflict { expected: 1, actual: 0 },
        TransactError::KeyReused,
        TransactError::Contended,
        TransactError::OutcomeUnknown { of: None, after: 3, has_key: false, source: text().into() },
        TransactError::OutcomeUnknown { of: None, after: 0, has_key: true, source: text().into() },
        TransactError::TooLarge { limit: TooLarge::Item { bytes: 1 }, of: None },
    ];
    let mut problems: Vec<_> = types().map(|problem_type| (problem_type.example)(&registry)).collect();
    problems.extend(of_commands.iter().map(|error| Problem::of_command(error, 1)));
    let key = AggregateKey::new("todo", "1");
    let of_store = of_store.map(TransactError::Store).into_iter();
    problems.extend(of_store.chain(of_transactions).map(|error| Problem::of_write(error, &key)));
    problems.push(outcome_unknown(None, false, "text"));
    problems.push(no_command_to("update", registry.iter().last().unwrap()));
    problems
}

#[test]
fn each_type_of_the_endpoints_has_its_own_slug_and_example() {
    let registry = aggregates::registry().unwrap();
    let mut descriptions = BTreeMap::new();
    for problem_type in types() {
        let taken = descriptions.insert(problem_type.slug, problem_type.description);
        assert!(taken.is_none_or(|taken| taken == problem_type.description), "{}", problem_type.slug);
        assert_eq!((problem_type.example)(&registry).problem_type.slug, problem_type.slug);
    }
    assert_eq!(descriptions.len(), 30, "{descriptions:?}");
}

#[test]
fn unknown_type_lists_the_registered_ones() {
    let detail = |registry| unknown_type("gift-card", &registry).detail;
    let known = "there is no type \"gift-card\"; known: account, course, customer, fulfilment, order, payment, reservation, shipment, student, subscription, todo";
    assert_eq!(detail(aggregates::registry().unwrap()), known);
    let none = "there is no type \"gift-card\"; no aggregate is registered";
    assert_eq!(detail(daybook_decider::Registry::new()), none);
}

#[test]
fn every_problem_is_a_response_in_the_document() {
    let document = crate::openapi::document(&aggregates::registry().unwrap(), &projections::projections().unwrap());
    let responses = document["components"]["responses"].to_string();
    let of_routes = [unknown_route("/"), method_not_allowed("PUT", None)];
    for problem in problems().iter().chain(&of_routes) {
        let urn = problem.problem_type.urn();
        assert!(responses.contains(&format!("`{urn}`")), "{urn}");
    }
}

#[test]
fn the_body_of_a_problem_has_its_type_status_and_detail() {
    for problem in problems() {
        let body: serde_json::Value = serde_json::from_str(&problem.to_json()).unwrap();
        let (urn, status) = (problem.problem_type.urn(), problem.problem_type.status);
        assert_eq!((&body["type"], &body["status"]), (&urn.into(), &status.as_u16().into()));
        assert!(!body["detail"].as_str().unwrap().is_empty(), "{body}");
        assert_eq!(problem.into_response().status(), status);
    }
}

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
fn failures_of_the_service_are_logged_by_their_type() {
    for problem in problems() {
        let (problem_type, log) = (problem.problem_type, Log::default());
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || log_problem(&problem.into_response(), "c-1"));
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        if !problem_type.status.is_server_error() {
            assert_eq!(text, "", "{problem_type:?}");
            continue;
        }
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        let level = if problem_type.status == 500 { "ERROR" } else { "WARN" };
        assert_eq!((&line["level"], &line["message"]), (&level.into(), &"request failed".into()), "{problem_type:?}");
        assert_eq!(
            (&line["problem"], &line["status"], &line["correlation_id"]),
            (&problem_type.urn().into(), &problem_type.status.as_u16().into(), &"c-1".into())
        );
    }
}
