//! A function around `event-store-adapter-rs`, which uses it as the repository of the library's example does: read the snapshot and
//! the events after it, decide, and persist the event, with a snapshot where one is due. Without snapshots, it reads the events
//! alone, which saves a call.

use std::sync::Arc;

use chrono::Utc;
use event_store_adapter_rs::{
    AggregateId, DynamoDbOptions, DynamoDbTables, EventEnvelope, EventStoreForDynamoDB, SnapshotEnvelope,
};
use lambda_http::{Body, Error, Request, Response, service_fn};
use peers::{Account, Event};

#[derive(Clone, Debug)]
struct AccountId(String);

impl AggregateId for AccountId {
    fn type_name(&self) -> String {
        "account".to_owned()
    }

    fn value(&self) -> String {
        self.0.clone()
    }
}

struct Function {
    store: EventStoreForDynamoDB<AccountId, Account, Event>,
    snapshot_every: Option<u64>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let tables = DynamoDbTables {
        journal_table_name: "adapter-journal".to_owned(),
        snapshot_table_name: "adapter-snapshot".to_owned(),
        head_table_name: "adapter-head".to_owned(),
        snapshot_history_index_name: "adapter-history".to_owned(),
    };
    let store = EventStoreForDynamoDB::open(peers::client().await, tables, DynamoDbOptions::default()).await?;
    let function = Arc::new(Function { store, snapshot_every: peers::snapshot_every() });
    lambda_http::run(service_fn(move |request| handle(function.clone(), request))).await
}

async fn handle(function: Arc<Function>, request: Request) -> Result<Response<Body>, Error> {
    let Function { store, snapshot_every } = &*function;
    let (id, command) = peers::read(&request)?;
    let aggregate = AccountId(id.clone());
    let snapshot = match snapshot_every {
        Some(_) => store.get_latest_snapshot_by_id(&aggregate).await?.and_then(|read| read.into_parts().0),
        None => None,
    };
    let (mut version, mut state) = match snapshot {
        Some(snapshot) => (snapshot.seq_nr(), snapshot.into_aggregate()),
        None => (0, Account { id: id.clone(), ..Account::default() }),
    };
    for event in store.get_events_by_id_since_seq_nr(&aggregate, version + 1).await? {
        version = event.seq_nr();
        state.evolve(event.payload());
    }
    let event = state.decide(command)?;
    state.evolve(&event);
    version += 1;
    let event = EventEnvelope::new(aggregate, version, Utc::now(), event).with_manifest("transaction-accepted/v1");
    if snapshot_every.is_some_and(|every| version.is_multiple_of(every)) {
        store.persist_event_and_snapshot(event, SnapshotEnvelope::new(state.clone(), version)).await?;
    } else {
        store.persist_event(event).await?;
    }
    peers::respond(&id, version, &state)
}
