//! Starts and stops the local stack.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodbstreams::Client as StreamsClient;
use axum::middleware;
use daybook_command_handler::{Api, ApiSettings};
use daybook_console::{Access, Console};
use daybook_event_source_mapping::Template;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::dynamodb::StartError;
use daybook_local_aws::messaging::{Bus, Delivered};
use daybook_local_aws::server::Server;
use daybook_projection::Projections;
use daybook_projector::Projector;
use daybook_settings::Environment;
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::{Relay, RelaySettings, changes_queue, clients};
use daybook_view_store::ViewStore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::args::DevArgs;
use super::caller::identify;
use super::checkpoints::reader_of_stream;
use super::discarded::DiscardedRecords;
use super::error::DevError;
use super::faults::ReadModelFaultScript;
use super::functions::StreamFunction;
use super::mapping_states::MappingStates;
use super::mapping_worker::MappingWorker;
use super::queue_worker::QueueWorker;
use super::servers::{listen, read_whole};
use super::services::Services;
use super::stop::StopSignal;
use super::stream::TableStream;
use super::usage::{UsageMeter, count_request};
use super::{endpoints, environment, messages, rules};
use crate::project::Project;

/// The parameter of the template that turns on read models, which the stack always has.
const READ_MODELS: (&str, &str) = ("ReadModels", "true");

/// How long requests and invocations may continue after the stop.
const GRACE: Duration = Duration::from_secs(1);

/// The running stack. Dropping it stops its servers and mappings; [`stop`](Self::stop) lets them finish first.
pub struct Stack {
    api: Server,
    console_url: String,
    table_name: String,
    messages: UnboundedReceiver<Delivered>,
    services: Services,
    workers: JoinSet<()>,
    /// Dropping it stops the workers.
    stop: watch::Sender<()>,
}

impl Stack {
    /// Starts the stack. When this returns, the API accepts requests.
    ///
    /// # Errors
    ///
    /// See [`DevError`].
    pub async fn start(args: DevArgs, project: Project) -> Result<Self, DevError> {
        let template = read_template(&args.template)?;
        let services = Services::start(&args).await?;
        let messages = services.bus.subscribe();

        let (_, api_environment) = environment::function(&template, "command-handler", &services.sqs)?;
        let meter = UsageMeter::default();
        // An external DynamoDB checks signatures.
        let dynamodb = &services.dynamodb;
        let dynamodb = if services.database.is_some() { meter.metered(dynamodb) } else { dynamodb.clone() };
        let store = create_table(&services, &dynamodb, &api_environment).await?;
        let table_name = api_environment.required("TABLE_NAME")?;
        let discarded = services.discarded.clone();
        let states = MappingStates::default();
        let (stop, stop_signal) = StopSignal::new();
        let reports = MappingReports {
            discarded: discarded.clone(),
            states: states.clone(),
            meter: meter.clone(),
            faults: ReadModelFaultScript::default(),
        };
        let mut workers =
            start_stream_functions(&template, &services, &dynamodb, &table_name, project, &reports, &stop_signal)
                .await?;

        let (_, relay_environment) = environment::function(&template, "stream-relay", &services.sqs)?;
        let relay = RelaySettings::read(&relay_environment)?;
        let timeout = Duration::from_secs(args.function_timeout.into());
        let rules = rules::start(&args.rules, timeout, &services, &relay.event_bus_name, &mut workers, &stop_signal)?;

        let mut api = Api::new((project.aggregates)()?, store, ApiSettings::read(&api_environment)?);
        if let Some(views_table) = daybook_command_handler::views_table(&api_environment) {
            let views = ViewStore::new(&reports.faults.with_faults(&dynamodb), views_table);
            views.create_table().await?;
            api = api.with_views((project.projections)()?, views);
        }
        let api = daybook_command_handler::router(api)
            .layer(middleware::from_fn(identify))
            .layer(middleware::from_fn_with_state(meter.clone(), count_request));
        let router = endpoints::router(services.bus.clone(), discarded, states, rules, meter, reports.faults);
        let messages_router = messages::router(services.bus.clone(), services.eventbridge.clone(), relay);
        let router = api.merge(router).merge(messages_router);
        let access = if args.host.is_loopback() { Access::Loopback } else { Access::with_new_token() };
        // A store of its own: what the console reads is not counted as the stack's usage.
        let of_console = daybook_command_handler::store_settings(&api_environment)?;
        let of_console = EventStore::new(&services.dynamodb, of_console);
        let mut console = Console::new((project.aggregates)()?, of_console, router.clone(), access.clone());
        if let Some(views_table) = daybook_command_handler::views_table(&api_environment) {
            console = console.with_views((project.projections)()?, ViewStore::new(&services.dynamodb, views_table));
        }
        let router = router.merge(daybook_console::router(console)).layer(middleware::from_fn(read_whole));
        let listener = listen(args.host, args.port, "--port").await?;
        let api = Server::serve(listener, router).map_err(StartError::from)?;
        let console_url = access.address(api.url());
        Ok(Self { api, console_url, table_name, messages, services, workers, stop })
    }

    /// The URL of the API.
    pub fn api_url(&self) -> &str {
        self.api.url()
    }

    /// The address of the console.
    pub fn console_url(&self) -> &str {
        &self.console_url
    }

    /// The URL of DynamoDB.
    pub fn dynamodb_url(&self) -> &str {
        self.services.dynamodb.endpoint_url().unwrap_or_default()
    }

    /// The URL of EventBridge and SQS; `None` if both are external.
    pub fn bus_url(&self) -> Option<&str> {
        self.services.bus_url()
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
        &self.services.bus
    }

    /// The next message that reaches the bus, from the first on.
    pub async fn next_message(&mut self) -> Option<Delivered> {
        self.messages.recv().await
    }

    /// Lets open requests and invocations finish for a moment, then ends everything.
    pub async fn stop(self) {
        let Self { api, services, mut workers, stop, .. } = self;
        drop(stop);
        let invocations = async {
            let settled = async { while workers.join_next().await.is_some() {} };
            if tokio::time::timeout(GRACE, settled).await.is_err() {
                workers.shutdown().await;
            }
        };
        tokio::join!(api.stop(GRACE), invocations);
        services.stop().await;
    }
}

/// The worker that projects the changes in the queue. Creates the views table if it does not exist.
async fn projector(
    template: &Template,
    services: &Services,
    queue: String,
    projections: Projections,
    faults: &ReadModelFaultScript,
    stop: &StopSignal,
) -> Result<QueueWorker, DevError> {
    let (function, environment) = environment::function(template, "projector", &services.sqs)?;
    let events = EventStore::new(&services.dynamodb, StoreSettings::new(environment.required("TABLE_NAME")?));
    let views = ViewStore::new(&faults.with_faults(&services.dynamodb), daybook_projector::views_table(&environment)?);
    views.create_table().await?;
    Ok(QueueWorker {
        projector: Arc::new(Projector::new(projections, events, views)),
        timeout: function.timeout,
        sqs: aws_sdk_sqs::Client::new(&services.sqs),
        url: queue,
        faults: faults.clone(),
        stop: stop.clone(),
    })
}

fn read_template(path: &Path) -> Result<Template, DevError> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map_err(|source| DevError::ReadTemplate { path: path.to_owned(), source })
    };
    // A project without read models has no such file.
    let read_models = path.with_file_name("read-models.yaml");
    if !read_models.exists() {
        return Ok(Template::parse(&read(path)?)?);
    }
    let mut template = Template::with_parameters(&read(path)?, &[READ_MODELS])?;
    template.functions.extend(Template::parse(&read(&read_models)?)?.functions);
    Ok(template)
}

/// Creates the table if it does not exist. Returns the store of the API over it.
async fn create_table(
    services: &Services,
    dynamodb: &SdkConfig,
    environment: &Environment,
) -> Result<EventStore, DevError> {
    let store = EventStore::new(dynamodb, daybook_command_handler::store_settings(environment)?);
    store.admin().create_table().await.map_err(|source| {
        match (&services.database, services.dynamodb.endpoint_url()) {
            (None, Some(url)) => DevError::Elsewhere { url: url.to_owned(), source },
            _ => source.into(),
        }
    })?;
    Ok(store)
}

/// Where the event source mappings report what they do, and the faults that are injected into the projector's.
struct MappingReports {
    discarded: DiscardedRecords,
    states: MappingStates,
    meter: UsageMeter,
    faults: ReadModelFaultScript,
}

/// Starts a worker for each event source mapping that the template declares for the stream functions.
async fn start_stream_functions(
    template: &Template,
    services: &Services,
    dynamodb: &SdkConfig,
    table_name: &str,
    project: Project,
    reports: &MappingReports,
    stop: &StopSignal,
) -> Result<JoinSet<()>, DevError> {
    let (relay, environment) = environment::function(template, "stream-relay", &services.sqs)?;
    let settings = RelaySettings::read(&environment)?;
    services.bus.create_event_bus(&settings.event_bus_name);
    services.bus.create_queue(&settings.dlq_url);
    let eventbridge = clients::eventbridge(&services.eventbridge);
    // Only an external service can lack the bus.
    clients::warm(&eventbridge, &settings).await?;
    let mut relay_function = Relay::new(eventbridge, clients::sqs(&services.sqs), settings);
    let mut workers = JoinSet::new();
    if let Some(queue) = changes_queue(&environment) {
        services.bus.create_work_queue(&queue);
        workers.spawn(
            projector(template, services, queue.clone(), (project.projections)()?, &reports.faults, stop).await?.run(),
        );
        relay_function = relay_function.with_changes_queue(clients::sqs(&services.sqs), queue);
    }
    let (snapshotter, environment) = environment::function(template, "snapshotter", &services.sqs)?;
    let settings = daybook_snapshotter::store_settings(&environment)?;
    let snapshotter_function = Snapshotter::new((project.aggregates)()?, EventStore::new(dynamodb, settings));

    let stream = TableStream::of_table(StreamsClient::new(&services.dynamodb), table_name).await?;
    let mut readers = Vec::new();
    for (declared, function) in [
        (relay, StreamFunction::Relay(Arc::new(relay_function))),
        (snapshotter, StreamFunction::Snapshotter(Arc::new(snapshotter_function))),
    ] {
        for (name, event) in &declared.streams {
            readers.push(reader_of_stream(function.name(), name, &stream.arn));
            reports.states.add(function.name(), name, event.enabled);
            if !event.enabled {
                continue;
            }
            let worker = MappingWorker {
                function: function.clone(),
                timeout: declared.timeout,
                event_name: name.clone(),
                event: event.clone(),
                stream: stream.clone(),
                file: services.file.clone(),
                discarded: reports.discarded.clone(),
                states: reports.states.clone(),
                meter: reports.meter.clone(),
                stop: stop.clone(),
            };
            workers.spawn(worker.run());
        }
    }
    if let Some(file) = &services.file {
        file.retain_checkpoints(|reader| readers.iter().any(|of_template| reader.starts_with(of_template.as_str())))?;
    }
    Ok(workers)
}
