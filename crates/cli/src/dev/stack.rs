//! Starts and stops the local stack.

use std::path::Path;
use std::sync::Arc;

use aws_sdk_dynamodbstreams::Client as StreamsClient;
use axum::middleware;
use daybook_command_handler::{Api, ApiSettings};
use daybook_event_source_mapping::Template;
use daybook_event_store::EventStore;
use daybook_local_aws::messaging::{Bus, Delivered};
use daybook_settings::Environment;
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::{Relay, RelaySettings, clients};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::args::DevArgs;
use super::caller::identify;
use super::error::DevError;
use super::functions::StreamFunction;
use super::mapping_worker::{DiscardedRecords, MappingWorker};
use super::servers::{HttpServers, read_whole};
use super::services::Services;
use super::stream::TableStream;
use super::{endpoints, environment};

/// The running stack. Dropping it ends it at once.
pub struct Stack {
    api_url: String,
    table_name: String,
    bus: Bus,
    messages: UnboundedReceiver<Delivered>,
    services: Services,
    servers: HttpServers,
    workers: JoinSet<()>,
}

impl Stack {
    /// Starts the stack. When this returns, the API accepts requests.
    ///
    /// # Errors
    ///
    /// See [`DevError`].
    pub async fn start(args: DevArgs) -> Result<Self, DevError> {
        let template = read_template(&args.template)?;
        let bus = Bus::new();
        let messages = bus.subscribe();
        let mut servers = HttpServers::new(args.host);
        let services = Services::start(&args, &bus, &mut servers).await?;

        let (_, api_environment) = environment::function(&template, "command-handler", &services.sqs)?;
        let store = create_table(&services, &api_environment).await?;
        let table_name = api_environment.required("TABLE_NAME")?;
        let discarded = DiscardedRecords::default();
        let workers = start_stream_functions(&template, &services, &bus, &table_name, &discarded).await?;

        let api = Api::new(aggregates::registry()?, store, ApiSettings::read(&api_environment)?);
        let api = daybook_command_handler::router(api).layer(middleware::from_fn(identify));
        let router = api.merge(endpoints::router(bus.clone(), discarded));
        let router = router.layer(middleware::from_fn(read_whole));
        let api_url = servers.serve(args.port, "--port", router).await?;
        Ok(Self { api_url, table_name, bus, messages, services, servers, workers })
    }

    /// The URL of the API.
    pub fn api_url(&self) -> &str {
        &self.api_url
    }

    /// The URL of DynamoDB.
    pub fn dynamodb_url(&self) -> &str {
        self.services.dynamodb.endpoint_url().unwrap_or_default()
    }

    /// The URL of EventBridge and SQS; `None` if both are external.
    pub fn bus_url(&self) -> Option<&str> {
        self.services.bus_url.as_deref()
    }

    /// The external services: the variable that names each, and its value.
    pub fn elsewhere(&self) -> &[(&'static str, String)] {
        &self.services.elsewhere
    }

    /// The table.
    pub fn table_name(&self) -> &str {
        &self.table_name
    }

    /// The bus and the dead-letter queue.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The next message that reaches the bus, from the first on.
    pub async fn next_message(&mut self) -> Option<Delivered> {
        self.messages.recv().await
    }

    /// Lets open requests finish, then ends everything.
    pub async fn stop(mut self) {
        self.workers.shutdown().await;
        self.servers.stop().await;
        if let Some(database) = self.services.database {
            database.stop().await;
        }
    }
}

fn read_template(path: &Path) -> Result<Template, DevError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| DevError::ReadTemplate { path: path.to_owned(), source })?;
    Ok(Template::parse(&text)?)
}

/// Creates the table if it does not exist. Returns the store of the API over it.
async fn create_table(services: &Services, environment: &Environment) -> Result<EventStore, DevError> {
    let store = EventStore::new(&services.dynamodb, daybook_command_handler::store_settings(environment)?);
    store.admin().create_table().await.map_err(|source| {
        match (&services.database, services.dynamodb.endpoint_url()) {
            (None, Some(url)) => DevError::Elsewhere { url: url.to_owned(), source },
            _ => source.into(),
        }
    })?;
    Ok(store)
}

/// Starts a worker for each event source mapping that the template declares for the stream functions.
async fn start_stream_functions(
    template: &Template,
    services: &Services,
    bus: &Bus,
    table_name: &str,
    discarded: &DiscardedRecords,
) -> Result<JoinSet<()>, DevError> {
    let (relay, environment) = environment::function(template, "stream-relay", &services.sqs)?;
    let settings = RelaySettings::read(&environment)?;
    bus.create_event_bus(&settings.event_bus_name);
    bus.create_queue(&settings.dlq_url);
    let eventbridge = clients::eventbridge(&services.eventbridge);
    // Only an external service may not have the bus.
    clients::warm(&eventbridge, &settings).await?;
    let relay_function = Relay::new(eventbridge, clients::sqs(&services.sqs), settings);
    let (snapshotter, environment) = environment::function(template, "snapshotter", &services.sqs)?;
    let settings = daybook_snapshotter::store_settings(&environment)?;
    let snapshotter_function = Snapshotter::new(aggregates::registry()?, EventStore::new(&services.dynamodb, settings));

    let stream = TableStream::of_table(StreamsClient::new(&services.dynamodb), table_name).await?;
    let mut workers = JoinSet::new();
    for (declared, function) in [
        (relay, StreamFunction::Relay(Arc::new(relay_function))),
        (snapshotter, StreamFunction::Snapshotter(Arc::new(snapshotter_function))),
    ] {
        for event in declared.streams.values().filter(|event| event.enabled) {
            let (function, timeout, event) = (function.clone(), declared.timeout, event.clone());
            let (stream, discarded) = (stream.clone(), discarded.clone());
            workers.spawn(MappingWorker { function, timeout, event, stream, discarded }.run());
        }
    }
    Ok(workers)
}
