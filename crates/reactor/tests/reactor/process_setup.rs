//! Errands and postboxes beside the timers of the setup.

use daybook_decider::{Aggregate, Registry};
use daybook_event_store::StoredPosition;
use daybook_function_runtime::{QueueBatch, QueueRecord};
use daybook_reactor::{Reactor, ReactorEvent};
use daybook_table::{AggregateKey, ChangedAggregates, DueDeadline, DueDeadlines, keys};
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::{requests, transact};
use daybook_test_support::row::{Item, text};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::errand::{Errand, Postbox};
use crate::setup::{Setup, soon};

pub(crate) fn registry() -> Registry {
    Registry::new().with::<Postbox>().unwrap().with::<Errand>().unwrap()
}

pub(crate) fn postbox(id: &str) -> AggregateKey {
    AggregateKey::new(Postbox::TYPE, id)
}

pub(crate) fn errand(id: &str) -> AggregateKey {
    AggregateKey::new(Errand::TYPE, id)
}

impl Setup {
    pub(crate) fn processes(&self) -> Reactor {
        self.reactor_of(registry())
    }

    pub(crate) async fn send(&self, to: &AggregateKey, command: &str, data: Value) {
        let (registry, store, requests) = (registry(), self.table.direct_store(), requests(&[(command, data)]));
        let model = registry.get(&to.aggregate_type).unwrap();
        let decide = |before: &daybook_decider::Folded| model.decide(before, &to.id, &requests, &next_input());
        transact(&store, model, to, decide).await.unwrap();
    }

    /// Opens a postbox with these notes.
    pub(crate) async fn notes(&self, id: &str, notes: &[&str]) {
        if self.table.row(&postbox(id), keys::METADATA).await.is_none() {
            self.send(&postbox(id), "Open", json!({})).await;
        }
        for note in notes {
            self.send(&postbox(id), "Put", json!({ "note": note })).await;
        }
    }

    /// Begins an errand with these dispatches, each with the id of its postbox.
    pub(crate) async fn begin(&self, id: &str, asks: &[(&str, &str)]) {
        self.send(&errand(id), "Begin", json!({ "asks": asks })).await;
    }

    /// The texts of the events of an aggregate.
    pub(crate) async fn texts(&self, of: &AggregateKey) -> Vec<String> {
        let page = self.table.direct_store().events(of, 1, 100).await.unwrap();
        let text = |data: &str| {
            let data: Value = serde_json::from_str(data).unwrap();
            data["note"].as_str().or(data["text"].as_str()).unwrap_or("-").to_owned()
        };
        page.items.iter().map(|event| text(event.data.text())).collect()
    }

    /// The rows of dispatches: their names, with their states.
    pub(crate) async fn rows_of(&self, id: &str) -> Vec<(String, String)> {
        let rows = self.table.rows(&errand(id), keys::DEADLINE_PREFIX).await;
        let state = |row: &Item| row.get("gsi1pk").map_or("FIRED", |state| state.as_s().unwrap()).to_owned();
        rows.iter().map(|row| (keys::deadline_name(text(row, "sk")).to_owned(), state(row))).collect()
    }

    /// Delivers a message about a dispatch. Returns whether it must come again.
    pub(crate) async fn hint(&self, reactor: &Reactor, id: &str, name: &str) -> bool {
        let stored = self.table.direct_store().deadline(&errand(id), name).await.unwrap();
        let due = stored.map_or_else(|| self.after(0), |stored| stored.due);
        let due = DueDeadline { due, key: errand(id), name: name.to_owned() };
        message(reactor, DueDeadlines::new(&[due]).to_body(), soon()).await
    }

    /// Delivers a message about a postbox. Returns whether it must come again.
    pub(crate) async fn changed(&self, reactor: &Reactor, id: &str) -> bool {
        message(reactor, ChangedAggregates::one(postbox(id), 0).to_body(), soon()).await
    }

    pub(crate) async fn position(&self, id: &str) -> StoredPosition {
        self.table.direct_store().position(&postbox(id), Errand::TYPE).await.unwrap()
    }
}

pub(crate) async fn message(reactor: &Reactor, body: String, deadline: Instant) -> bool {
    let batch = QueueBatch { records: vec![QueueRecord::new("m", body)] };
    let response = reactor.handle(ReactorEvent::Messages(batch), deadline).await;
    !response.batch_item_failures.is_empty()
}
