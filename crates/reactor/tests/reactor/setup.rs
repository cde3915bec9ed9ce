//! Timers in a table, a queue, and a reactor of them.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_decider::{Caller, DecisionInput, Meta, Registry};
use daybook_event_store::StoreSettings;
use daybook_function_runtime::{QueueBatch, QueueRecord, aws_config_at};
use daybook_local_aws::clock::{Ahead, LocalClock};
use daybook_local_aws::messaging::{Bus, Faults, ReceivedMessage, Server};
use daybook_local_aws::state::StackState;
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{AggregateKey, DueDeadline, DueDeadlines, keys};
use daybook_test_support::commands::{requests, transact};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::Item;
use daybook_test_support::table::{TestTable, settings};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use ulid::Ulid;

use crate::timer::Timer;

/// How long a message stays hidden that was received.
const HIDDEN: Duration = Duration::from_secs(600);

pub(crate) struct Setup {
    pub(crate) table: TestTable,
    pub(crate) bus: Bus,
    pub(crate) clock: LocalClock,
    pub(crate) registry: Registry,
    server: Server,
}

pub(crate) fn timer(id: &str) -> AggregateKey {
    AggregateKey::new("timer", id)
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self::with(settings()).await
    }

    /// Throttles the calls of `operation` until the faults are taken back.
    pub(crate) fn throttle(&self, operation: &'static str) {
        let throttled = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };
        (0..1_000).for_each(|_| self.table.proxy.fail_next(operation, throttled.clone()));
    }

    pub(crate) async fn with(settings: StoreSettings) -> Self {
        let clock = LocalClock::default();
        let bus = Bus::new(StackState::in_memory().unwrap(), clock.clone()).unwrap();
        bus.create_work_queue("reactions");
        let server = Server::start(bus.router()).await.unwrap();
        let registry = Registry::new().with::<Timer>().unwrap();
        Self { table: TestTable::with(settings).await, bus, clock, registry, server }
    }

    /// A new instance of the reactor, whose calls of the table go through the proxy.
    pub(crate) fn reactor(&self) -> Reactor {
        self.reactor_of(Registry::new().with::<Timer>().unwrap())
    }

    pub(crate) fn reactor_of(&self, registry: Registry) -> Reactor {
        self.reactor_ahead(registry, Duration::ZERO)
    }

    /// An instance whose clock is ahead.
    pub(crate) fn reactor_ahead(&self, registry: Registry, ahead: Duration) -> Reactor {
        let clock = self.clock.clone();
        let store = self.table.store().with_clock(move || clock.timestamp() + ahead);
        Reactor::new(registry, store, self.queue())
    }

    pub(crate) fn queue(&self) -> Queue {
        let client = SqsClient::new(&aws_config_at(self.server.url()));
        let waits = Waits { first: Duration::from_millis(1), longest: Duration::from_millis(4) };
        Queue { client, url: "http://localhost/1/reactions".to_owned(), waits }
    }

    pub(crate) fn fail_queue(&self, faults: Value) {
        self.bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    }

    /// The time so many seconds from now, in whole milliseconds.
    pub(crate) fn after(&self, seconds: i64) -> Timestamp {
        let now = self.clock.timestamp().as_millisecond();
        Timestamp::from_millisecond(now + seconds * 1_000).unwrap()
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance_to(Ahead { seconds: self.clock.ahead().seconds + seconds });
    }

    /// Starts a timer with these deadlines.
    pub(crate) async fn start(&self, id: &str, deadlines: &[(&str, Timestamp)]) -> AggregateKey {
        let deadlines: BTreeMap<_, _> = deadlines.iter().copied().collect();
        self.execute(id, "Start", json!({"deadlines": deadlines})).await;
        timer(id)
    }

    pub(crate) async fn execute(&self, id: &str, command: &str, data: Value) {
        let (model, requests) = (self.registry.get("timer").unwrap(), requests(&[(command, data)]));
        let meta = Meta { correlation_id: Some("of-the-test".to_owned()), ..Meta::default() };
        let (store, key) = (self.table.direct_store(), timer(id));
        let decided = transact(&store, model, &key, |before| {
            let now = Timestamp::from_millisecond(self.clock.timestamp().as_millisecond()).unwrap();
            let input = DecisionInput::new(now, Ulid::from_datetime(now.into()), meta.clone(), Caller::anonymous(), 1);
            model.decide(before, id, &requests, &input)
        });
        decided.await.unwrap();
    }

    /// The events of a timer after the first: their names, and those of their deadlines.
    pub(crate) async fn events(&self, id: &str) -> Vec<String> {
        let page = self.table.direct_store().events(&timer(id), 1, 100).await.unwrap();
        let name = |data: &str| {
            let data: Value = serde_json::from_str(data).unwrap();
            data["name"].as_str().map(str::to_owned).unwrap_or_default()
        };
        page.items.iter().map(|event| format!("{} {}", event.event_type, name(event.data.text()))).collect()
    }

    /// The row of a deadline.
    pub(crate) async fn row(&self, id: &str, name: &str) -> Option<Item> {
        self.table.row(&timer(id), &keys::deadline_sk(name)).await
    }

    /// The index partition of the row of a deadline: its state.
    pub(crate) async fn state(&self, id: &str, name: &str) -> Option<String> {
        self.row(id, name).await.map(|row| row.get("gsi1pk").map_or("fired", |text| text.as_s().unwrap()).to_owned())
    }

    /// The deadlines of the messages that are in the queue, in the order of the messages.
    pub(crate) fn queued(&self) -> Vec<Vec<DueDeadline>> {
        let bodies = self.bus.queued().into_iter().map(|message| message.body);
        bodies.map(|body| serde_json::from_str::<DueDeadlines>(&body).unwrap().into_deadlines().collect()).collect()
    }

    pub(crate) async fn tick(&self, reactor: &Reactor) {
        let response = reactor.handle(ReactorEvent::Tick { tick: true }, soon()).await;
        assert_eq!(response.batch_item_failures, []);
    }

    /// Delivers the visible messages until there are none, each once. Returns the number of those that must come again.
    pub(crate) async fn deliver(&self, reactor: &Reactor) -> usize {
        let mut again = 0;
        while self.bus.message_counts("reactions").0 > 0 {
            let messages = self.bus.receive("reactions", 10, HIDDEN).await.unwrap();
            again += self.process(reactor, &messages).await;
        }
        again
    }

    async fn process(&self, reactor: &Reactor, messages: &[ReceivedMessage]) -> usize {
        let record = |message: &ReceivedMessage| QueueRecord::new(&*message.message_id, &*message.body);
        let batch = QueueBatch { records: messages.iter().map(record).collect() };
        let response = reactor.handle(ReactorEvent::Messages(batch), soon()).await;
        let failed: Vec<_> = response.batch_item_failures.iter().map(|failure| &failure.item_identifier).collect();
        for message in messages.iter().filter(|message| !failed.contains(&&message.message_id)) {
            self.bus.delete("reactions", message).await;
        }
        failed.len()
    }

    pub(crate) async fn tick_and_deliver(&self, reactor: &Reactor) -> usize {
        self.tick(reactor).await;
        self.deliver(reactor).await
    }
}

/// A message about these deadlines of a timer. Returns whether it must come again.
pub(crate) async fn message(reactor: &Reactor, deadlines: &[(&str, &str, Timestamp)]) -> bool {
    message_until(reactor, deadlines, soon()).await
}

pub(crate) async fn message_until(reactor: &Reactor, deadlines: &[(&str, &str, Timestamp)], deadline: Instant) -> bool {
    let due =
        |(id, name, due): &(&str, &str, Timestamp)| DueDeadline { key: timer(id), name: (*name).to_owned(), due: *due };
    let deadlines: Vec<_> = deadlines.iter().map(due).collect();
    let batch = QueueBatch { records: vec![QueueRecord::new("m", DueDeadlines::new(&deadlines).to_body())] };
    let response = reactor.handle(ReactorEvent::Messages(batch), deadline).await;
    !response.batch_item_failures.is_empty()
}

/// A time that is later than the end of a test.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}
