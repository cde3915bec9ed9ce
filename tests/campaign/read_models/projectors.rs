//! The projector behind its queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{QueueBatch, QueueResponse};
use daybook_projector::Projector;
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_view_store::ViewStore;
use tokio::time::Instant;

use crate::database::TABLE;
use crate::hint_queue::Received;
use crate::process::Process;
use crate::queue_function::QueueHandler;
use crate::read_models::VIEWS_TABLE;
use crate::read_models::strokes::projections;
use crate::read_models::view_ledger::ViewLedger;
use crate::torn::TornTables;
use crate::writers::Work;

/// The code of the projector.
pub(crate) struct ProjectorCode {
    pub(crate) work: Arc<Work>,
    pub(crate) ledger: Arc<ViewLedger>,
    pub(crate) tables: Arc<TornTables>,
    /// Whether it is without the defect.
    pub(crate) is_repaired: bool,
}

impl QueueHandler for ProjectorCode {
    const NAME: &'static str = "projector";
    const TIMEOUTS: [u64; 3] = [1_200, 5_000, 30_000];
    const BEGINS_AFTER: [u64; 4] = [0, 0, 400, 3_000];

    type Instance = Projector;

    fn instance(&self, process: &Arc<Process>) -> Projector {
        let config = self.work.database.config(Arc::clone(process));
        let events = EventStore::new(&config, StoreSettings::new(TABLE));
        let views = ViewStore::new(&config, VIEWS_TABLE);
        Projector::new(projections(self.is_repaired), events, views)
    }

    async fn handle(projector: &Projector, batch: QueueBatch, deadline: Instant) -> QueueResponse {
        projector.handle(batch, deadline).await
    }

    fn received(&self, received: &[Received]) -> Box<dyn FnOnce(&QueueResponse)> {
        let visible = |key: AggregateKey| {
            let hidden = self.tables.first_hidden_event(TABLE, &key);
            let events = hidden.map_or_else(|| self.ledger.events(&key), |hidden| hidden - 1);
            (key, events)
        };
        let aggregates = |message: &Received| {
            let changed: ChangedAggregates = serde_json::from_str(&message.body).ok()?;
            Some((message.id, changed.keys().map(visible).collect()))
        };
        let rung = Rung(received.iter().filter_map(aggregates).collect());
        let (work, ledger) = (Arc::clone(&self.work), Arc::clone(&self.ledger));
        work.log.count("projection");
        Box::new(move |response| rung.check(response, &ledger, &work))
    }
}

/// The aggregates of each message, with the number of events that were visible when the invocation began.
struct Rung(BTreeMap<u64, Vec<(AggregateKey, u64)>>);

impl Rung {
    /// Checks that the views show all these events of the messages that are settled.
    fn check(&self, response: &QueueResponse, ledger: &ViewLedger, work: &Work) {
        for (id, aggregates) in &self.0 {
            if response.batch_item_failures.iter().any(|failure| failure.item_identifier == id.to_string()) {
                continue;
            }
            for (key, events) in aggregates {
                let behind = ledger.behind(key, *events);
                work.log.expect(behind.is_empty(), || {
                    format!("change {id} is settled, and {behind:?} do not show event {events} of {key}")
                });
            }
        }
    }
}
