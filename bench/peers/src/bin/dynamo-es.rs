//! A function around `dynamo-es`, the DynamoDB store of `cqrs-es`. The framework loads, decides and persists, but does not return the
//! new state, so the response has no body.

use std::sync::Arc;

use cqrs_es::event_sink::EventSink;
use cqrs_es::persist::PersistedEventStore;
use cqrs_es::{Aggregate, CqrsFramework, DomainEvent};
use dynamo_es::DynamoEventRepository;
use lambda_http::{Body, Error, Request, Response, service_fn};
use peers::Command;
use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize)]
struct Account(peers::Account);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Event(peers::Event);

impl DomainEvent for Event {
    fn event_type(&self) -> String {
        "TransactionAccepted".to_owned()
    }

    fn event_version(&self) -> String {
        "1.0".to_owned()
    }
}

#[derive(Debug)]
struct Rejected(String);

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Rejected {}

impl Aggregate for Account {
    const TYPE: &'static str = "account";
    type Command = Command;
    type Event = Event;
    type Error = Rejected;
    type Services = ();

    async fn handle(&mut self, command: Command, (): &(), sink: &EventSink<Self>) -> Result<(), Rejected> {
        let event = self.0.decide(command).map_err(|error| Rejected(error.to_string()))?;
        sink.write(Event(event), self).await;
        Ok(())
    }

    fn apply(&mut self, event: Event) {
        self.0.evolve(&event.0);
    }
}

type Framework = CqrsFramework<Account, PersistedEventStore<DynamoEventRepository, Account>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let repository =
        DynamoEventRepository::new(peers::client().await).with_tables("dynamo-es-events", "dynamo-es-snapshots");
    let store = match peers::snapshot_every() {
        Some(every) => PersistedEventStore::new_snapshot_store(repository, usize::try_from(every)?),
        None => PersistedEventStore::new_event_store(repository),
    };
    let framework = Arc::new(CqrsFramework::new(store, vec![], ()));
    lambda_http::run(service_fn(move |request| handle(framework.clone(), request))).await
}

async fn handle(framework: Arc<Framework>, request: Request) -> Result<Response<Body>, Error> {
    let (id, command) = peers::read(&request)?;
    framework.execute(&id, command).await?;
    Ok(Response::new(Body::Empty))
}
