//! Starting and stopping it all.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodbstreams::Client as StreamsClient;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONNECTION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use daybook_command_handler::Api;
use daybook_decider::RegistrationError;
use daybook_event_source_mapping::Template;
use daybook_event_source_mapping::template::{Function as TemplateFunction, TemplateError};
use daybook_event_store::{EventStore, StoreError};
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::{Bus, Delivered};
use daybook_settings::{Environment, SettingError};
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::Relay;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::args::Options;
use super::functions::{Discards, Function, Worker};
use super::stream::Stream;
use super::{endpoints, environment};
use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT};

/// How long requests may take to finish once it is stopped.
const GRACE: Duration = Duration::from_secs(2);

/// What API Gateway takes of a request, in bytes.
const MAX_REQUEST: usize = 10 * 1024 * 1024;

/// Records that a reader may be ahead of its mapping.
const READ_AHEAD: usize = 1000;

/// The variables that lead to a service that is not the stack's own.
const ELSEWHERE: [&str; 3] = [DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT];

/// The whole suite, running. Dropping it ends it at once.
pub struct Stack {
    api_url: String,
    dynamodb_url: String,
    bus_url: Option<String>,
    elsewhere: Vec<(&'static str, String)>,
    table_name: String,
    bus: Bus,
    messages: UnboundedReceiver<Delivered>,
    database: Option<LocalDynamoDb>,
    stop: watch::Sender<()>,
    servers: JoinSet<()>,
    workers: JoinSet<()>,
}

/// Why the stack does not start.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The template cannot be read.
    #[error("cannot read the template {path}; name another with --template")]
    ReadTemplate {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The template is not one.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A function is missing from the template.
    #[error("the template has no function with Metadata.BuildProperties.Binary: {binary}")]
    NoFunction {
        /// Its binary.
        binary: &'static str,
    },
    /// A function's setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The aggregates.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// A port is taken.
    #[error("cannot listen on {address}; choose another port with {option}")]
    Listen {
        /// Where.
        address: String,
        /// The option that changes it.
        option: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The embedded engine.
    #[error(transparent)]
    Database(#[from] daybook_local_aws::dynamodb::StartError),
    /// The table.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The table, where a variable says that it is.
    #[error("cannot use the DynamoDB at {DYNAMODB_ENDPOINT}={url}; unset the variable to use the stack's own")]
    Elsewhere {
        /// The variable's value.
        url: String,
        /// Why not there.
        source: StoreError,
    },
    /// Standard output takes nothing more.
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
    /// The stream.
    #[error("cannot read the table's stream")]
    Stream(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DevError {
    pub(super) fn stream(fault: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stream(fault.into())
    }
}

impl Stack {
    /// Starts everything; when it returns, the API answers.
    ///
    /// # Errors
    ///
    /// See [`DevError`].
    pub async fn start(options: Options) -> Result<Self, DevError> {
        let text = std::fs::read_to_string(&options.template)
            .map_err(|source| DevError::ReadTemplate { path: options.template.clone(), source })?;
        let template = Template::parse(&text)?;
        let process = Environment::of_process();
        let (stop, stopped) = watch::channel(());
        let (mut servers, mut workers) = (JoinSet::new(), JoinSet::new());

        let database = match process.optional(DYNAMODB_ENDPOINT) {
            Some(_) => None,
            None => {
                let listener = listen(&options, options.dynamodb_port, "--dynamodb-port").await?;
                Some(LocalDynamoDb::start(options.data.as_deref(), listener)?)
            }
        };
        let dynamodb = endpoint(&process, DYNAMODB_ENDPOINT, database.as_ref().map(LocalDynamoDb::url)).await;

        let bus = Bus::new();
        let messages = bus.subscribe();
        let elsewhere = [EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT].map(|name| process.optional(name));
        let bus_url = if elsewhere.iter().all(Option::is_some) {
            None
        } else {
            let listener = listen(&options, options.bus_port, "--bus-port").await?;
            let url = url_of(&listener)?;
            serve(&mut servers, listener, bus.router(), &stopped);
            Some(url)
        };
        let eventbridge = endpoint(&process, EVENTBRIDGE_ENDPOINT, bus_url.as_deref()).await;
        let sqs = endpoint(&process, SQS_ENDPOINT, bus_url.as_deref()).await;

        let settings = |binary| -> Result<Environment, DevError> {
            let function = environment::function(&template, binary)?;
            Ok(environment::of_function(function, sqs.endpoint_url().unwrap_or_default()))
        };
        let of_api = settings("command-handler")?;
        let store_settings = daybook_command_handler::store_settings(&of_api)?;
        let table_name = store_settings.table_name.clone();
        let store = EventStore::new(&dynamodb, store_settings);
        store.admin().create_table().await.map_err(|source| match process.optional(DYNAMODB_ENDPOINT) {
            Some(url) => DevError::Elsewhere { url, source },
            None => source.into(),
        })?;

        let relay = Relay::new(
            daybook_stream_relay::clients::eventbridge(&eventbridge),
            daybook_stream_relay::clients::sqs(&sqs),
            daybook_stream_relay::RelaySettings::read(&settings("stream-relay")?)?,
        );
        let of_snapshotter = daybook_snapshotter::store_settings(&settings("snapshotter")?)?;
        let snapshotter = Snapshotter::new(aggregates::registry()?, EventStore::new(&dynamodb, of_snapshotter));
        let discards = Discards::default();
        for (binary, function) in [
            ("stream-relay", Function::Relay(Arc::new(relay))),
            ("snapshotter", Function::Snapshotter(Arc::new(snapshotter))),
        ] {
            let declared = environment::function(&template, binary)?;
            follow_stream(&mut workers, &dynamodb, &table_name, declared, &function, &discards).await?;
        }

        let api = Api::new(aggregates::registry()?, store, daybook_command_handler::ApiSettings::read(&of_api)?);
        let router = daybook_command_handler::router(api).merge(endpoints::router(bus.clone(), discards));
        let router = router.layer(middleware::from_fn(read_whole));
        let listener = listen(&options, options.port, "--port").await?;
        let api_url = url_of(&listener)?;
        serve(&mut servers, listener, router, &stopped);

        let named = ELSEWHERE.map(|name| Some((name, process.optional(name)?)));
        let elsewhere = named.into_iter().flatten().collect();
        let dynamodb_url = dynamodb.endpoint_url().unwrap_or_default().to_owned();
        Ok(Self {
            api_url,
            dynamodb_url,
            bus_url,
            elsewhere,
            table_name,
            bus,
            messages,
            database,
            stop,
            servers,
            workers,
        })
    }

    /// Where the API answers.
    pub fn api_url(&self) -> &str {
        &self.api_url
    }

    /// Where DynamoDB answers.
    pub fn dynamodb_url(&self) -> &str {
        &self.dynamodb_url
    }

    /// Where EventBridge and SQS answer; none when both are elsewhere.
    pub fn bus_url(&self) -> Option<&str> {
        self.bus_url.as_deref()
    }

    /// The variables that lead to services that are not the stack's own, and where they lead.
    pub fn elsewhere(&self) -> &[(&'static str, String)] {
        &self.elsewhere
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

    /// Lets the requests that are being served finish, then ends everything.
    pub async fn stop(mut self) {
        self.workers.shutdown().await;
        // Closing the channel is the signal.
        drop(self.stop);
        let all_served = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_served).await.is_err() {
            self.servers.shutdown().await;
        }
        if let Some(database) = self.database.take() {
            database.stop().await;
        }
    }
}

/// The AWS configuration of a service: at the endpoint that the environment names, else at the stack's own.
async fn endpoint(process: &Environment, variable: &str, own: Option<&str>) -> SdkConfig {
    match crate::aws::at_endpoint(process, variable).await {
        Some(elsewhere) => elsewhere,
        None => daybook_function_runtime::aws_config_at(own.unwrap_or_default()),
    }
}

async fn listen(options: &Options, port: u16, option: &'static str) -> Result<TcpListener, DevError> {
    let address = (options.host, port);
    let failed = |source| DevError::Listen { address: format!("{}:{port}", options.host), option, source };
    TcpListener::bind(address).await.map_err(failed)
}

fn url_of(listener: &TcpListener) -> Result<String, DevError> {
    Ok(format!("http://{}", listener.local_addr().map_err(daybook_local_aws::dynamodb::StartError::from)?))
}

/// Reads a request to its end before it is answered, as API Gateway does. A connection on which an answer was faster would
/// be closed, and the client's next request with it.
async fn read_whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match to_bytes(body, MAX_REQUEST).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, [(CONNECTION, "close")]).into_response(),
    }
}

/// Serves until the sender of `stopped` is gone.
fn serve(servers: &mut JoinSet<()>, listener: TcpListener, router: Router, stopped: &watch::Receiver<()>) {
    let mut stopped = stopped.clone();
    servers.spawn(async move {
        let gone = async move { while stopped.changed().await.is_ok() {} };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(gone).await {
            tracing::error!(%error, "a server failed");
        }
    });
}

/// Puts a function behind the mappings that the template declares for it, a worker for each shard.
async fn follow_stream(
    workers: &mut JoinSet<()>,
    dynamodb: &SdkConfig,
    table_name: &str,
    declared: &TemplateFunction,
    function: &Function,
    discards: &Discards,
) -> Result<(), DevError> {
    let stream = Stream::of_table(StreamsClient::new(dynamodb), table_name).await?;
    for event in declared.streams.values().filter(|event| event.enabled) {
        let work_off = {
            let (stream, event) = (stream.clone(), event.clone());
            let (function, timeout, discards) = (function.clone(), declared.timeout, discards.clone());
            move |shard: String| {
                let stream = stream.clone();
                let worker = Worker {
                    function: function.clone(),
                    timeout,
                    event: event.clone(),
                    stream_arn: stream.arn.clone(),
                    shard: shard.clone(),
                    discards: discards.clone(),
                };
                async move {
                    let (sender, records) = mpsc::channel(READ_AHEAD);
                    tokio::join!(worker.run(records), stream.read(&shard, sender));
                }
            }
        };
        let stream = stream.clone();
        workers.spawn(async move { stream.follow(work_off).await });
    }
    Ok(())
}
