//! A row that all aggregates change: the events that several instances of the projector fold into it in a second.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use aggregates::Account;
use aggregates::account::Event;
use daybook_admin::AdminCalls;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_projection::{FollowedEvent, Follows, Parts, Projection, Projections, Source};
use daybook_projector::{Projector, QueueBatch, QueueRecord};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_test_support::commands::execute;
use daybook_view_store::{View, ViewStore};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;

use crate::clock::{Clock, in_virtual_time};
use crate::database::TABLE;
use crate::network;
use crate::queue_kinds::CountedTables;

/// The time for which a transaction holds the row.
const HELD: Duration = Duration::from_millis(10);

/// The number of all accounts, in one row of `N` parts.
struct Total<const N: u32>;

impl<const N: u32> Projection for Total<N> {
    const NAME: &'static str = "total";
    const VERSION: u32 = 1;
    const PARTS: Parts<u64> = Parts::merged(N, |one, other| one + other);

    type Row = u64;
    type Change = ();

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<u64>, (): &()) -> Option<u64> {
        Some(row.unwrap_or_default() + 1)
    }
}

impl<const N: u32> Follows<Account> for Total<N> {
    type State = ();

    fn advance((): (), _: &FollowedEvent<'_, Event>) {}

    fn changes((): &(), _: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, ())> {
        vec![("total".to_owned(), ())]
    }
}

/// The tables with an event for each of some accounts.
struct Setup {
    tables: CountedTables,
    keys: Vec<AggregateKey>,
}

impl Setup {
    async fn new(accounts: usize) -> Self {
        fastrand::seed(1);
        let tables = CountedTables::new(Clock::start(), HELD);
        let config = network::config(tables.clone());
        let store = EventStore::new(&config, StoreSettings::new(TABLE));
        store.admin().create_table().await.unwrap();
        let registry = aggregates::registry().unwrap();
        let keys: Vec<_> = (0..accounts).map(|id| AggregateKey::new("account", id.to_string())).collect();
        for key in &keys {
            execute(&store, registry.get("account").unwrap(), key, &[("OpenAccount", json!({}))]).await.unwrap();
        }
        Self { tables, keys }
    }

    /// Folds all events some times, in batches of so many accounts that all wait at the beginning. Returns the events per
    /// second.
    async fn measure<const N: u32>(&self, instances: usize, batch_size: usize, runs: u32) -> f64 {
        let (mut elapsed, conflicts_before) = (Duration::ZERO, self.tables.conflicts());
        for _ in 0..runs {
            elapsed += self.run::<N>(instances, batch_size).await;
        }
        let events = self.keys.len() as f64 * f64::from(runs);
        let rate = events / elapsed.as_secs_f64();
        let conflicts = (self.tables.conflicts() - conflicts_before) as f64 * batch_size as f64 / events;
        eprintln!(
            "{N} parts, {instances} instances, batches of {batch_size}: {rate:.0} events a second, {conflicts:.1} \
             conflicts a batch"
        );
        rate
    }

    /// The time until the row of a new view shows all accounts.
    async fn run<const N: u32>(&self, instances: usize, batch_size: usize) -> Duration {
        let config = network::config(self.tables.clone());
        let views = ViewStore::new(&config, format!("views-{}", fastrand::u64(..)));
        views.create_table().await.unwrap();
        let batches: Mutex<VecDeque<_>> = Mutex::new(self.keys.chunks(batch_size).collect());
        let began = Instant::now();
        let instance = async |_| {
            let events = EventStore::new(&config, StoreSettings::new(TABLE));
            let projector = Projector::new(Projections::new().with::<Total<N>>().unwrap(), events, views.clone());
            loop {
                let Some(keys) = batches.lock().unwrap().pop_front() else { return };
                let records = keys
                    .iter()
                    .map(|key| QueueRecord::new(key.id.clone(), ChangedAggregates::one(key.clone(), 1).to_body()));
                let batch = QueueBatch { records: records.collect() };
                let response = projector.handle(batch, Instant::now() + Duration::from_secs(30)).await;
                assert!(response.batch_item_failures.is_empty());
            }
        };
        join_all((0..instances).map(instance)).await;
        let elapsed = began.elapsed();
        let row = views.row(&View::new("total", 1), N, "total").await.unwrap().unwrap();
        let total: usize = row.parts.iter().map(|part| part.read::<usize>().unwrap()).sum();
        assert_eq!(total, self.keys.len());
        elapsed
    }
}

/// The minimum rate, as a part of the highest one with fewer instances. It covers chance.
const NO_FEWER: f64 = 0.95;

/// `SHARED_ROW_BATCHES=40` prints the figures of docs/read-models.md.
#[test]
fn more_instances_fold_no_fewer_events_into_a_shared_row() {
    in_virtual_time(async {
        let batches = std::env::var("SHARED_ROW_BATCHES").ok().map(|batches| batches.parse().unwrap());
        for batch_size in [1, 10] {
            let (setup, mut highest) = (Setup::new(batches.unwrap_or(20) * batch_size).await, 0.0_f64);
            for instances in [1, 2, 5, 10, 20] {
                let rate = setup.measure::<1>(instances, batch_size, 3).await;
                assert!(rate >= NO_FEWER * highest, "{instances} instances, batches of {batch_size}: {rate} {highest}");
                highest = highest.max(rate);
                if batches.is_some() {
                    setup.measure::<8>(instances, batch_size, 3).await;
                    setup.measure::<64>(instances, batch_size, 3).await;
                }
            }
        }
    });
}
