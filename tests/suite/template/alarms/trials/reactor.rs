//! Failures of the reactor, over a reservation that should have expired an hour ago.

use std::time::{Duration, SystemTime};

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_function_runtime::{QueueBatch, QueueRecord, aws_config_at};
use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{AggregateKey, ChangedAggregates, DueDeadline, DueDeadlines, keys};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::names::{GIVEN_UP, LOGGED, OLDEST_DEADLINE, REACTION_FAILED, REACTOR_BEHIND};
use super::bench::{Observed, Signals};
use super::{DENIED, old_batch};
use crate::instance::Instance;

struct Late {
    signals: Signals,
    instance: Instance,
    bus: Bus,
    server: Server,
    due: Timestamp,
}

impl Late {
    async fn start() -> Self {
        let (signals, instance) = (Signals::start(), Instance::start().await);
        let reserve = json!({"id": "1", "concert": "fidelio", "seats": 2});
        let reserved = instance.post("/reservation", reserve).await.expect(201).body;
        let due = reserved["state"]["heldUntil"].as_str().unwrap().parse().unwrap();
        let bus = Bus::in_memory();
        bus.create_work_queue("reactions");
        let server = Server::start(bus.router()).await.unwrap();
        Self { signals, instance, bus, server, due }
    }

    fn reactor(&self, late: SignedDuration) -> Reactor {
        let store = self.instance.table.store();
        let store = store.with_clock(move || Timestamp::now() + late);
        let client = SqsClient::new(&aws_config_at(self.server.url()));
        let waits = Waits { first: Duration::from_millis(1), ..Waits::default() };
        let queue = Queue { client, url: "http://localhost/1/reactions".to_owned(), waits };
        Reactor::new(aggregates::registry().unwrap(), store, queue)
    }

    fn fail(&self, faults: Value) {
        self.bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    }

    async fn observe_tick(&self) -> Observed {
        self.handle_at(70, ReactorEvent::Tick { tick: true }).await;
        let oldest = self.signals.latest_of(OLDEST_DEADLINE);
        let mut observed = self.signals.take();
        observed.retain(|metric, _| *metric == LOGGED);
        observed.insert(OLDEST_DEADLINE, oldest);
        observed
    }

    /// Delivers a message until the reactor gives up.
    async fn observe_given_up(&self, body: &str) -> Observed {
        let sent = Some(SystemTime::now() + Duration::from_mins(70));
        for (minutes, again) in [(70, 1), (80, 1), (82, 0)] {
            let record = QueueRecord { sent, ..QueueRecord::new("1", body) };
            let event = ReactorEvent::Messages(QueueBatch { records: vec![record] });
            assert_eq!(self.handle_at(minutes, event).await, again);
        }
        self.observe_messages()
    }

    /// Delivers a message that was sent seven minutes ago, and fails.
    async fn observe_failed(&self, body: &str) -> Observed {
        let event = ReactorEvent::Messages(old_batch(body));
        assert_eq!(self.handle_at(0, event).await, 1);
        self.observe_messages()
    }

    fn observe_messages(&self) -> Observed {
        let given_up = self.signals.count_of(GIVEN_UP);
        let failed = self.signals.latest_of(REACTION_FAILED);
        let mut observed = self.signals.take();
        observed.retain(|metric, _| *metric == LOGGED);
        observed.extend([(GIVEN_UP, given_up), (REACTION_FAILED, failed)]);
        observed
    }

    async fn handle_at(&self, minutes: i64, event: ReactorEvent) -> usize {
        let reactor = self.reactor(SignedDuration::from_mins(minutes));
        let response = reactor.handle(event, Instant::now() + Duration::from_secs(300)).await;
        response.batch_item_failures.len()
    }
}

pub(in super::super) async fn table_denies_the_tick() -> Observed {
    let late = Late::start().await;
    late.instance.table.proxy.fail_next("Query", DENIED);
    late.observe_tick().await
}

pub(in super::super) async fn queue_denies_the_tick() -> Observed {
    let late = Late::start().await;
    late.fail(json!({"getQueueAttributes": [{"http": 403, "code": "AccessDenied"}]}));
    late.observe_tick().await
}

pub(in super::super) async fn messages_of_the_reactor_are_lost() -> Observed {
    let late = Late::start().await;
    late.observe_tick().await;
    assert_eq!(late.bus.queued().len(), 1, "nobody receives it");
    let mut observed = late.observe_tick().await;
    let sent = late.bus.receive("reactions", 1, Duration::ZERO).await.unwrap().remove(0).sent;
    let sent = Timestamp::from_millisecond(i64::try_from(sent).unwrap()).unwrap();
    observed.insert(REACTOR_BEHIND, Some(Timestamp::now().duration_since(sent).as_secs_f64()));
    observed
}

pub(in super::super) async fn command_of_a_deadline_cannot_be_executed() -> Observed {
    let late = Late::start().await;
    let key = AggregateKey::new("reservation", "1");
    let broken = AttributeValue::S("{".to_owned());
    late.instance.table.tamper(&key, &keys::event_sk(1), [("data", broken)]).await;
    let deadline = DueDeadline { due: late.due, key, name: "hold".to_owned() };
    late.observe_given_up(&DueDeadlines::new(&[deadline]).to_body()).await
}

pub(in super::super) async fn event_cannot_be_handled() -> Observed {
    let late = Late::start().await;
    let order =
        json!({"id": "1", "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 10});
    late.instance.post("/order", order).await.expect(201);
    let key = AggregateKey::new("order", "1");
    let broken = AttributeValue::S("{".to_owned());
    late.instance.table.tamper(&key, &keys::event_sk(1), [("data", broken)]).await;
    late.observe_given_up(&ChangedAggregates::one(key, 1).to_body()).await
}

pub(in super::super) async fn message_of_the_reactor_fails() -> Observed {
    let late = Late::start().await;
    late.instance.table.proxy.fail_next("GetItem", DENIED);
    late.observe_failed(&ChangedAggregates::one(AggregateKey::new("order", "1"), 1).to_body()).await
}
