//! The console over a table, with a stack that has nothing but the table.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod cost;
mod deadlines;
mod process;
mod unreadable;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use daybook_console::stack::{ControlAction, Controls, DeadLetterAction, DeadLetters, Reply, StackSource, StreamState};
use daybook_console::{Console, ConsoleAccess, StackKind, new_token};
use daybook_decider::Registry;
use daybook_local_aws::messaging::{BusPart, MessageQuery};
use daybook_table::AggregateKey;
use daybook_test_support::commands::{account_command, execute};
use daybook_test_support::table::{TestTable, settings};
use tower::ServiceExt;

/// The console of a table.
pub(crate) struct Bench {
    pub(crate) table: TestTable,
    pub(crate) registry: Registry,
    pub(crate) console: Router,
    /// The calls of the console to the stack.
    pub(crate) calls: Arc<AtomicUsize>,
}

/// A response of the console.
pub(crate) struct PageResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// A stack in which nothing happens.
struct EmptyStack {
    calls: Arc<AtomicUsize>,
}

impl EmptyStack {
    fn reply<T: Send + 'static>(&self, reply: T) -> Reply<'_, T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(reply) })
    }
}

impl StackSource for EmptyStack {
    fn dead_letters(&self, _: DeadLetterAction) -> Reply<'_, DeadLetters> {
        self.reply(DeadLetters::default())
    }

    fn messages(&self, _: MessageQuery) -> Reply<'_, BusPart> {
        self.reply(BusPart::default())
    }

    fn stream(&self) -> Reply<'_, StreamState> {
        self.reply(StreamState::default())
    }

    fn controls(&self, _: ControlAction) -> Reply<'_, Controls> {
        self.reply(Controls::default())
    }
}

impl Bench {
    pub(crate) async fn with(access: ConsoleAccess) -> Self {
        Self::over(TestTable::with(settings()).await, access)
    }

    pub(crate) fn over(table: TestTable, access: ConsoleAccess) -> Self {
        let registry = aggregates::registry().unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let stack = Arc::new(EmptyStack { calls: calls.clone() });
        let kind = StackKind::Local { api: Router::new() };
        let (store, form_token) = (table.store(), new_token());
        let console = Console { registry: registry.clone(), store, stack, kind, views: None, access, form_token };
        Self { table, registry, calls, console: daybook_console::router(console) }
    }

    pub(crate) async fn start() -> Self {
        Self::with(ConsoleAccess::Loopback).await
    }

    /// Appends events to an account until it has this number.
    pub(crate) async fn fill_account(&self, id: &str, events: u64) -> AggregateKey {
        let key = AggregateKey::new("account", id);
        self.append(&key, 1..=events).await;
        key
    }

    /// Appends the events with these numbers to an account.
    pub(crate) async fn append(&self, key: &AggregateKey, numbers: RangeInclusive<u64>) {
        let (store, model) = (self.table.direct_store(), self.registry.get("account").unwrap());
        let all: Vec<_> = numbers.map(|number| account_command(number, "a")).collect();
        for commands in all.chunks(90) {
            execute(&store, model, key, commands).await.unwrap();
        }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> PageResponse {
        let response = self.console.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        PageResponse { status: parts.status, headers: parts.headers, body }
    }

    /// The operations that the table has got since the last time, each with the number of calls.
    pub(crate) fn operations(&self) -> String {
        let mut counts = BTreeMap::<_, usize>::new();
        for call in self.table.proxy.take_calls() {
            *counts.entry(call.operation).or_default() += 1;
        }
        let counts: Vec<_> = counts.iter().map(|(operation, count)| format!("{operation} {count}")).collect();
        counts.join(", ")
    }

    pub(crate) async fn get(&self, path: &str) -> PageResponse {
        self.send(Request::get(path).header("host", "localhost:3000").body(Body::empty()).unwrap()).await
    }
}
