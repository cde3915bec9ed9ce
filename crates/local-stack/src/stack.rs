//! Starts and stops the local stack: its services and functions, the workers that invoke the functions, and the schedule of the
//! reactor.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header::ACCEPT;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use daybook_admin::AdminCalls;
use daybook_console::stack::Notices;
use daybook_console::{ConsoleAccess, new_token};
use daybook_event_source_mapping::Template;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::dynamodb::StartError;
use daybook_local_aws::messaging::{Bus, Delivered};
use daybook_local_aws::server::Server;
use daybook_stream_relay::RelaySettings;
use daybook_table::attributes::PK;
use daybook_view_store::ViewStore;
use serde_json::json;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{console, endpoints, functions, rules};
use crate::args::{DevArgs, Project};
use crate::endpoints::StackParts;
use crate::error::DevError;
use crate::functions::{ConsoleSettings, Function, FunctionSettings, Functions, function_of};
use crate::local_api::admit_this_machine;
use crate::mapping_worker::{MappingStates, MappingWorker, StreamCheckpoint};
use crate::queue_worker::{QueueFunction, QueueWorker};
use crate::restart::{Rebuilder, Restarts};
use crate::servers::{address_here, listen, read_whole};
use crate::services::Services;
use crate::usage::UsageMeter;

/// The parameter for a key of one's own, which the stack always has, and its value.
const KEY: (&str, &str) = ("KmsKeyArn", "local");

/// The parameters that turn on the optional parts, which the stack always has, and the template of each part.
const PARTS: [(&str, &str, &str); 2] =
    [("ReadModels", "true", "deploy/read-models.yaml"), ("Reactor", "processes", "deploy/reactor.yaml")];

const NOTICES: HeaderName = HeaderName::from_static(Notices::HEADER);

/// How long requests and invocations may continue after the stop.
const GRACE: Duration = Duration::from_secs(1);

/// The running stack. Dropping it stops its servers and mappings; [`stop`](Self::stop) lets them finish first.
pub struct LocalStack {
    api: Server,
    console_url: String,
    table_name: String,
    messages: UnboundedReceiver<Delivered>,
    services: Services,
    workers: JoinSet<()>,
    /// Dropping it stops the workers.
    stop: DropGuard,
}

impl LocalStack {
    /// Starts the stack, with the functions in this process. When this returns, the API accepts requests.
    pub async fn start(args: DevArgs, project: Project) -> Result<Self, DevError> {
        Self::start_with(args, project, None).await
    }

    /// The same. With `restarts`, the functions are in a process of their own, which is replaced after changes of its sources.
    pub async fn start_with(args: DevArgs, project: Project, restarts: Option<Restarts>) -> Result<Self, DevError> {
        let template = read_template(&args.template)?;
        let services = Services::start(&args).await?;
        let messages = services.bus.subscribe();
        // The console calls the stack. Its requests wait until the stack is served.
        let listener = listen(args.host, args.port, "--port").await?;
        let access = if args.host.is_loopback() { ConsoleAccess::Loopback } else { ConsoleAccess::with_new_token() };
        let address = address_here(&listener)?;
        let console = ConsoleSettings { stack: address, access: access.clone(), form_token: new_token() };
        let settings = FunctionSettings::read(&template, &services, console)?;
        let meter = UsageMeter::default();
        create_resources(&services, &settings, &meter).await?;

        let stop_signal = CancellationToken::new();
        let stop = stop_signal.clone().drop_guard();
        let mut workers = JoinSet::new();
        let functions = match restarts {
            None => Functions::new(functions::start(&settings, project)?, None),
            Some(restarts) => {
                let (functions, rebuilder) = Rebuilder::start(restarts, settings.clone(), meter.clone()).await?;
                workers.spawn(rebuilder.run(stop_signal.clone()));
                functions
            }
        };
        let states = MappingStates::new(services.clock.clone());
        let mappings = Mappings { template: &template, services: &services, functions: &functions, stop: &stop_signal };
        let table_name = settings.environment("command-handler").required("TABLE_NAME")?;
        mappings.start_streams(&table_name, &states, &meter, &mut workers)?;
        if let Some(queue) = settings.queue_of_projector() {
            workers.spawn(mappings.queue("projector", &queue)?.run());
        }
        let ticks = Arc::new(Notify::new());
        if let Some(queue) = settings.queue_of_reactor() {
            let worker = mappings.queue("reactor", &queue)?;
            let reactor = functions.function("reactor");
            workers.spawn(run_reactor_schedule(reactor, worker.timeout, ticks.clone(), stop_signal.clone()));
            workers.spawn(worker.run());
        }
        let timeout = Duration::from_secs(args.function_timeout.into());
        let relay = RelaySettings::read(&settings.environment("stream-relay"))?;
        let (bus, api) = (&relay.event_bus_name, format!("http://{address}"));
        let rules = rules::start(&args.rules, timeout, &services, bus, &api, &mut workers, &stop_signal).await?;

        let parts = StackParts {
            bus: services.bus.clone(),
            discarded: services.discarded.clone(),
            mappings: states,
            rules,
            meter,
            functions,
            set_faults: Arc::new(Mutex::new(json!({}))),
            clock: services.clock.clone(),
            table_clock: services.database.clock().clone(),
            ticks,
            of_operator: Arc::new(settings.of_operator()),
            eventbridge: aws_config_at(services.bus_url()),
            relay,
        };
        let router = router_to(parts.clone()).merge(console::router(&parts)).merge(endpoints::router(parts));
        let mut router = router.layer(middleware::from_fn(read_whole));
        if args.host.is_loopback() {
            router = router.layer(middleware::from_fn(admit_this_machine));
        }
        let api = Server::serve(listener, router).map_err(StartError::from)?;
        let console_url = access.address(api.url());
        Ok(Self { api, console_url, table_name, messages, services, workers, stop })
    }

    pub fn api_url(&self) -> &str {
        self.api.url()
    }

    pub fn console_url(&self) -> &str {
        &self.console_url
    }

    pub fn dynamodb_url(&self) -> &str {
        self.services.database.url()
    }

    /// The URL of EventBridge, SQS and KMS.
    pub fn bus_url(&self) -> &str {
        self.services.bus_url()
    }

    pub fn clock(&self) -> &LocalClock {
        &self.services.clock
    }

    pub fn table_name(&self) -> &str {
        &self.table_name
    }

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
            let ended = async { while workers.join_next().await.is_some() {} };
            if tokio::time::timeout(GRACE, ended).await.is_err() {
                workers.shutdown().await;
            }
        };
        tokio::join!(api.stop(GRACE), invocations);
        services.stop().await;
    }
}

/// The API and the console. They have no routes here: the parameters of a path of this router would be added to those of the
/// routers that respond.
fn router_to(parts: StackParts) -> Router {
    let respond = async move |mut request: Request| {
        if request.uri().path().starts_with("/_console") {
            let notices = serde_json::to_string(&parts.notices()).unwrap_or_default();
            request.headers_mut().extend(HeaderValue::try_from(notices).map(|text| (NOTICES, text)).ok());
        }
        parts.functions.respond(request).await
    };
    Router::new().fallback(respond).layer(middleware::from_fn(lead_to_console))
}

/// Leads a browser from `/` to the console. The API has nothing there, and programs get this response as from API Gateway: only a
/// browser accepts HTML.
async fn lead_to_console(request: Request, next: Next) -> Response {
    let accepted = request.headers().get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
    let is_browser = accepted.is_some_and(|accepted| accepted.contains("text/html"));
    if is_browser && request.method() == Method::GET && request.uri().path() == "/" {
        return Redirect::to("/_console").into_response();
    }
    next.run(request).await
}

fn read_template(path: &Path) -> Result<Template, DevError> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map_err(|source| DevError::ReadTemplate { path: path.to_owned(), source })
    };
    // A project without the part has no such file.
    let parts = PARTS.map(|(parameter, value, file)| (parameter, value, path.with_file_name(file)));
    let parts = || parts.iter().filter(|(.., file)| file.exists());
    let parameters: Vec<_> = parts().map(|(parameter, value, _)| (*parameter, *value)).chain([KEY]).collect();
    let mut template = Template::with_parameters(&read(path)?, &parameters)?;
    for (.., file) in parts() {
        template.functions.extend(Template::parse(&read(file)?)?.functions);
    }
    Ok(template)
}

/// Creates the tables, the bus and the queues that do not exist.
async fn create_resources(
    services: &Services,
    settings: &FunctionSettings,
    meter: &UsageMeter,
) -> Result<(), DevError> {
    let dynamodb = meter.metered(&aws_config_at(&services.dynamodb_url()));
    let environment = settings.environment("command-handler");
    EventStore::new(&dynamodb, StoreSettings::read(&environment)?).admin().create_table().await?;
    if let Some(views_table) = daybook_command_handler::views_table(&environment) {
        ViewStore::new(&dynamodb, views_table).create_table().await?;
    }
    if let Some(keys_table) = environment.optional("KEYS_TABLE_NAME") {
        services.database.create_table(&keys_table, PK).map_err(|error| DevError::KeysTable(error.into()))?;
    }
    let relay = RelaySettings::read(&settings.environment("stream-relay"))?;
    services.bus.create_event_bus(&relay.event_bus_name);
    services.bus.create_queue(&relay.dlq_url);
    for queue in [settings.queue_of_projector(), settings.queue_of_reactor()].into_iter().flatten() {
        services.bus.create_work_queue(&queue);
    }
    Ok(())
}

struct Mappings<'a> {
    template: &'a Template,
    services: &'a Services,
    functions: &'a Functions,
    stop: &'a CancellationToken,
}

impl Mappings<'_> {
    /// Starts a worker for each event source mapping that the template declares for the stream functions.
    fn start_streams(
        &self,
        table_name: &str,
        states: &MappingStates,
        meter: &UsageMeter,
        workers: &mut JoinSet<()>,
    ) -> Result<(), DevError> {
        let Self { template, services, functions, .. } = self;
        let stream = services.database.stream(table_name).map_err(DevError::stream)?;
        let stream = stream.ok_or(DevError::OtherTable)?;
        let mut readers = Vec::new();
        for binary in ["stream-relay", "snapshotter"] {
            let (declared, _) = function_of(template, binary, services.bus_url())?;
            for (name, event) in &declared.streams {
                let checkpoint = StreamCheckpoint::load(services.state.clone(), binary, name, &stream);
                readers.push(checkpoint.reader.clone());
                states.add(binary, name, event.enabled, &stream);
                if !event.enabled {
                    continue;
                }
                let worker = MappingWorker {
                    function: functions.function(binary),
                    timeout: declared.timeout,
                    event_name: name.clone(),
                    event: event.clone(),
                    stream: stream.clone(),
                    checkpoint,
                    discarded: services.discarded.clone(),
                    states: states.clone(),
                    meter: meter.clone(),
                    clock: services.clock.clone(),
                    stop: self.stop.clone(),
                };
                workers.spawn(worker.run());
            }
        }
        Ok(services.state.retain_checkpoints(&readers)?)
    }

    fn queue(&self, binary: &'static str, queue: &str) -> Result<QueueWorker, DevError> {
        let (declared, _) = function_of(self.template, binary, self.services.bus_url())?;
        Ok(QueueWorker {
            function: QueueFunction::OfStack(self.functions.function(binary)),
            timeout: declared.timeout,
            queue: queue.rsplit('/').next().unwrap_or_default().to_owned(),
            bus: self.services.bus.clone(),
            stop: self.stop.clone(),
        })
    }
}

const TICK: &str = r#"{"tick":true}"#;

const TICK_INTERVAL: Duration = Duration::from_mins(1);

/// Invokes the reactor once a minute and whenever `moved` is notified, after a move of the clock, until the stack stops. A failed
/// invocation is not retried: its error is logged, and the next tick does its work.
async fn run_reactor_schedule(reactor: Function, timeout: Duration, moved: Arc<Notify>, stop: CancellationToken) {
    loop {
        tokio::select! {
            _ = reactor.invoke(TICK.to_owned(), timeout, None) => {}
            () = stop.cancelled() => return,
        }
        tokio::select! {
            () = tokio::time::sleep(TICK_INTERVAL) => {}
            () = moved.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_open_personal_data_have_a_key_and_its_table() {
        let template = read_template(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml")).unwrap();
        for binary in ["command-handler", "snapshotter", "projector", "reactor", "stream-relay"] {
            let (_, variables) = function_of(&template, binary, "http://localhost").unwrap();
            let found = ["KEYS_TABLE_NAME", "PERSONAL_DATA_KEY"].map(|name| variables.get(name).map(String::as_str));
            let expected =
                [Some("daybook-dev-keys"), Some("local")].map(|value| value.filter(|_| binary != "stream-relay"));
            assert_eq!(found, expected, "{binary}");
        }
    }
}
