//! Aggregates with events, a projector of them, and what its views show.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_decider::Registry;
use daybook_function_runtime::aws_config_at;
use daybook_projection::{ProjectionModel, Projections};
use daybook_projector::{EventRange, Projected, Projecting};
use daybook_table::AggregateKey;
use daybook_test_support::commands::execute;
use daybook_test_support::table::TestTable;
use daybook_view_store::{RowRange, View, ViewStore};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The name of the views table.
const VIEWS: &str = "daybook-views";

/// A table with events, and one with views.
pub(crate) struct Setup {
    pub(crate) table: TestTable,
    pub(crate) registry: Registry,
    pub(crate) projections: Projections,
}

impl Setup {
    pub(crate) async fn new(projections: Projections) -> Self {
        let setup = Self { table: TestTable::new().await, registry: aggregates::registry().unwrap(), projections };
        setup.direct_views().create_table().await.unwrap();
        setup
    }

    pub(crate) fn model(&self, name: &str) -> &dyn ProjectionModel {
        self.projections.read_version(name, None).unwrap()
    }

    /// The views, by calls that the proxy neither records nor fails.
    pub(crate) fn direct_views(&self) -> ViewStore {
        ViewStore::new(&aws_config_at(self.table.engine.url()), VIEWS)
    }

    /// The views, by calls that the proxy records.
    pub(crate) fn views(&self) -> ViewStore {
        ViewStore::new(&aws_config_at(self.table.proxy.url()), VIEWS)
    }

    pub(crate) async fn execute(&self, key: &AggregateKey, commands: &[(&str, Value)]) {
        let model = self.registry.get(&key.aggregate_type).unwrap();
        execute(&self.table.direct_store(), model, key, commands).await.unwrap();
    }

    /// Opens an account with these transactions.
    pub(crate) async fn account(&self, id: &str, amounts: &[i64]) -> AggregateKey {
        let key = AggregateKey::new("account", id);
        self.execute(&key, &[("OpenAccount", json!({}))]).await;
        self.transactions(&key, amounts).await;
        key
    }

    pub(crate) async fn transactions(&self, key: &AggregateKey, amounts: &[i64]) {
        for amount in amounts {
            self.execute(key, &[("RecordTransaction", json!({"desc": "A", "amount": amount}))]).await;
        }
    }

    /// Projects the aggregates, by calls that the proxy records.
    pub(crate) async fn project(&self, name: &str, keys: &[AggregateKey]) -> Projected {
        let (events, views) = (self.table.store(), self.views());
        let projecting = Projecting { model: self.model(name), events: &events, views: &views };
        projecting.project(all(keys.iter().cloned()), soon()).await.unwrap()
    }

    /// The rows that a view shows.
    pub(crate) async fn rows(&self, name: &str) -> BTreeMap<String, Value> {
        let model = self.model(name);
        let view = View::new(name, model.version());
        let (rows, more) =
            self.direct_views().list(&view, model.part_count(), RowRange::default(), 1000).await.unwrap();
        assert!(!more);
        let shown = rows.into_iter().map(|row| (row.key, model.merge(&row.parts).unwrap().unwrap()));
        shown.map(|(key, row)| (key, row.read().unwrap())).collect()
    }

    /// Why an aggregate is suspended in a view, and the number of the last event that the view shows.
    pub(crate) async fn position(&self, name: &str, key: &AggregateKey) -> Option<(u64, Option<String>)> {
        let view = View::new(name, self.model(name).version());
        let positions = self.direct_views().positions(&view, &BTreeSet::from([key.clone()])).await.unwrap();
        positions.into_values().next().map(|position| (position.seq_num, position.suspended))
    }
}

/// All events of these aggregates.
pub(crate) fn all(keys: impl IntoIterator<Item = AggregateKey>) -> BTreeMap<AggregateKey, EventRange> {
    keys.into_iter().map(|key| (key, EventRange::default())).collect()
}

/// A time that is later than the end of a test.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}
