//! Starts the functions of a project and its console in this process. `FunctionSettings`: the endpoints of the services, and the
//! environment variables, which are those of the template, with local names for resources that only a deployment creates.
//! `RemoteStack`: what the pages of the console get from the stack.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::Method;
use axum::{Router, middleware};
use daybook_aws_clients::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, KMS_ENDPOINT, SQS_ENDPOINT, without_tokens};
use daybook_command_handler::{Api, ApiSettings};
use daybook_console::stack::{
    ControlAction, Controls, DeadLetterAction, DeadLetters, Reply, StackError, StackSource, StreamState,
};
use daybook_console::{Console, ConsoleAccess, StackKind, Views};
use daybook_event_source_mapping::Template;
use daybook_event_source_mapping::template::{self, Setting};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{SdkConfig, aws_config_at};
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::messaging::{BusPart, MessageQuery};
use daybook_projector::Projector;
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_reactor::{Reactor, reactions_queue as reactor_queue};
use daybook_settings::Environment;
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::{Clock, Relay, RelaySettings, changes_queue, clients, processes_queue, reactions_queue};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_view_store::ViewStore;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::args::Project;
use crate::error::DevError;
use crate::functions::FunctionsVersion;
use crate::functions::handlers::{self, Handler};
use crate::local_api::{explain, identify};
use crate::servers::{call, forwarding_to};
use crate::services::{DISCARDED_BUCKET, Services};
use crate::usage::{UsageMeter, count_request};

const SEND_ATTEMPTS: u32 = 3;

/// Not "daybook": for table names under 8 characters, AWS SDKs reject the shard ids of the engine's stream.
const TABLE_NAME: &str = "daybook-dev";

/// Starts the functions of a project. The table, the bus and the queues must exist.
pub(crate) fn start(settings: &FunctionSettings, project: Project) -> Result<FunctionsVersion, DevError> {
    let dynamodb = without_tokens(&aws_config_at(&settings.dynamodb_url));
    let meter = UsageMeter::default();
    let metered = meter.metered(&dynamodb);

    let mut handlers = BTreeMap::new();
    handlers.insert("stream-relay", Handler::Relay(relay(settings)?));
    let environment = settings.environment("snapshotter");
    let store = event_store(settings, &metered, &environment)?;
    let snapshotter = Snapshotter::new((project.aggregates)()?, store);
    handlers.insert("snapshotter", Handler::Snapshotter(snapshotter));
    if settings.has("projector") {
        let environment = settings.environment("projector");
        let events = event_store(settings, &dynamodb, &environment)?;
        let views = ViewStore::new(&dynamodb, daybook_projector::views_table(&environment)?);
        handlers.insert("projector", Handler::Projector(Projector::new((project.projections)()?, events, views)));
    }
    if settings.has("reactor") {
        let environment = settings.environment("reactor");
        let store = event_store(settings, &dynamodb, &environment)?;
        let queue = queue(settings, reactor_queue(&environment)?);
        handlers.insert("reactor", Handler::Reactor(Reactor::new((project.aggregates)()?, store, queue)));
    }
    let api = api(settings, project, &metered)?;
    let api = api.layer(middleware::from_fn_with_state(meter.clone(), count_request));
    let api = api.clone().merge(console(settings, project, &dynamodb, api)?);
    Ok(FunctionsVersion::new(api, handlers::router(handlers, meter, settings.clock.clone()), None))
}

/// The store of a function with this environment. KMS is beside the bus.
fn event_store(
    settings: &FunctionSettings,
    dynamodb: &SdkConfig,
    environment: &Environment,
) -> Result<EventStore, DevError> {
    let clock = settings.clock.clone();
    let store = EventStore::new(dynamodb, StoreSettings::read(environment)?);
    let store = store.with_keys(environment, &aws_config_at(&settings.bus_url))?;
    Ok(store.with_clock(move || clock.timestamp()))
}

fn api(settings: &FunctionSettings, project: Project, dynamodb: &SdkConfig) -> Result<Router, DevError> {
    let environment = settings.environment("command-handler");
    let store = event_store(settings, dynamodb, &environment)?;
    let mut api = Api::new((project.aggregates)()?, store, ApiSettings::read(&environment)?);
    if let Some(views_table) = daybook_command_handler::views_table(&environment) {
        api = api.with_views((project.projections)()?, ViewStore::new(dynamodb, views_table));
    }
    let router = daybook_command_handler::router(api).layer(middleware::from_fn(explain));
    Ok(router.layer(middleware::from_fn(identify)))
}

/// The console. Its reads of the table are not counted as those of the functions.
fn console(
    settings: &FunctionSettings,
    project: Project,
    dynamodb: &SdkConfig,
    api: Router,
) -> Result<Router, DevError> {
    let environment = settings.environment("command-handler");
    let store = event_store(settings, dynamodb, &environment)?;
    let ConsoleSettings { stack, access, form_token } = settings.console.clone();
    let changes = settings.queue_of_projector().map(|url| queue(settings, url));
    let (stack, kind) = (Arc::new(RemoteStack { stack: forwarding_to(stack), changes }), StackKind::Local { api });
    let views = match daybook_command_handler::views_table(&environment) {
        Some(table) => {
            let views = ViewStore::new(dynamodb, table).with_sealing(store.sealing());
            Some(Views { projections: (project.projections)()?, store: views })
        }
        None => None,
    };
    let registry = (project.aggregates)()?;
    Ok(daybook_console::router(Console { registry, store, stack, kind, views, access, form_token }))
}

fn queue(settings: &FunctionSettings, url: String) -> Queue {
    Queue { client: SqsClient::new(&aws_config_at(&settings.bus_url)), url, waits: Waits::default() }
}

fn relay(settings: &FunctionSettings) -> Result<Relay, DevError> {
    let environment = settings.environment("stream-relay");
    let aws = aws_config_at(&settings.bus_url);
    let (clock, sqs) = (settings.clock.clone(), clients::sqs(&aws));
    let relay = Relay::new(clients::eventbridge(&aws), sqs.clone(), RelaySettings::read(&environment)?);
    let relay = relay.with_clock(Clock::new(move || clock.timestamp()));
    let changes = [changes_queue(&environment), processes_queue(&environment)].into_iter().flatten();
    let relay = changes.fold(relay, |relay, queue| relay.with_changes_queue(sqs.clone(), queue));
    Ok(match reactions_queue(&environment) {
        Some(queue) => relay.with_reactions_queue(sqs, queue),
        None => relay,
    })
}

pub(crate) type Variables = BTreeMap<String, String>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FunctionSettings {
    /// The variables of each function that the stack has, by its binary.
    functions: BTreeMap<String, Variables>,
    pub(crate) dynamodb_url: String,
    pub(crate) bus_url: String,
    pub(crate) console: ConsoleSettings,
    /// The clock of the stack. In another process, it is a copy.
    pub(crate) clock: LocalClock,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConsoleSettings {
    pub(crate) stack: SocketAddr,
    pub(crate) access: ConsoleAccess,
    /// Every version accepts the forms of those before it.
    pub(crate) form_token: String,
}

impl FunctionSettings {
    pub(crate) fn read(template: &Template, services: &Services, console: ConsoleSettings) -> Result<Self, DevError> {
        let variables = |binary| Ok::<_, DevError>(function_of(template, binary, services.bus_url())?.1);
        let mut settings = Self {
            functions: BTreeMap::new(),
            dynamodb_url: services.dynamodb_url(),
            bus_url: services.bus_url().to_owned(),
            console,
            clock: services.clock.clone(),
        };
        for binary in ["command-handler", "stream-relay", "snapshotter"] {
            settings.functions.insert(binary.to_owned(), variables(binary)?);
        }
        if settings.queue_of_projector().is_some() {
            settings.functions.insert("projector".to_owned(), variables("projector")?);
        }
        if settings.queue_of_reactor().is_some() {
            // Settings of the store have one value, which the main template passes on.
            let of_store = settings.functions["command-handler"].clone();
            let variables = of_store.into_iter().chain(variables("reactor")?).collect();
            settings.functions.insert("reactor".to_owned(), variables);
        }
        Ok(settings)
    }

    fn has(&self, binary: &str) -> bool {
        self.functions.contains_key(binary)
    }

    /// The environment of a function that the stack has.
    pub(crate) fn environment(&self, binary: &str) -> Environment {
        self.functions[binary].iter().collect()
    }

    /// The queue that the relay sends deadlines to, for the reactor; `None` if there is none.
    pub(crate) fn queue_of_reactor(&self) -> Option<String> {
        reactions_queue(&self.environment("stream-relay"))
    }

    /// The queue that the relay sends changes to, for the projector; `None` if there are no read models.
    pub(crate) fn queue_of_projector(&self) -> Option<String> {
        changes_queue(&self.environment("stream-relay"))
    }

    /// The variables with which operator commands reach the stack: those of its functions, and the endpoints.
    pub(crate) fn of_operator(&self) -> Variables {
        let mut variables: Variables = self.functions.values().flat_map(Clone::clone).collect();
        let at_bus = [EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, KMS_ENDPOINT, "AWS_ENDPOINT_URL_S3"];
        variables.extend(at_bus.map(|name| (name.to_owned(), self.bus_url.clone())));
        variables.insert(DYNAMODB_ENDPOINT.to_owned(), self.dynamodb_url.clone());
        variables.insert("DISCARDED_RECORDS_BUCKET".to_owned(), DISCARDED_BUCKET.to_owned());
        variables.remove("RUST_LOG"); // the shell's own stays
        variables
    }
}

/// The function of a template that runs a binary, and its environment variables. A variable of this process overrides the
/// template's. Feeds have no delay, because one process with one clock appends and reads. The stack has read models, a reactor and a
/// key for personal data.
pub(crate) fn function_of<'a>(
    template: &'a Template,
    binary: &'static str,
    bus_url: &str,
) -> Result<(&'a template::Function, Variables), DevError> {
    let is_built = |function: &&template::Function| function.binary == Some(Setting::Known(binary.to_owned()));
    let function = template.functions.values().find(is_built).ok_or(DevError::NoFunction { binary })?;
    let process = Environment::of_process();
    let variable = |(name, setting): (&String, &Setting)| {
        let of_template = if let Setting::Known(value) = setting { Some(value.clone()) } else { None };
        let of_local_stack = (name == "FEED_DELAY_MS").then(|| "0".to_owned());
        let of_stack = match name.as_str() {
            "TABLE_NAME" => Some(TABLE_NAME.to_owned()),
            "EVENT_BUS_NAME" => Some("daybook".to_owned()),
            "VIEWS_TABLE_NAME" => Some(format!("{TABLE_NAME}-views")),
            "KEYS_TABLE_NAME" => Some(format!("{TABLE_NAME}-keys")),
            "DLQ_URL" => Some(format!("{bus_url}/000000000000/daybook-dlq")),
            "REACTIONS_QUEUE_URL" => Some(format!("{bus_url}/000000000000/daybook-reactions")),
            "PERSONAL_DATA_KEY" => Some("local".to_owned()),
            "CHANGES_QUEUE_URL" => Some(format!("{bus_url}/000000000000/daybook-changes")),
            _ => None,
        };
        Some((name.clone(), process.optional(name).or(of_local_stack).or(of_template).or(of_stack)?))
    };
    Ok((function, function.environment.iter().filter_map(variable).collect()))
}

/// The stack for the console in the functions' process: the first process has what a page needs, and is asked once.
struct RemoteStack {
    stack: Router,
    /// The queue of the projector; `None` if there are no read models.
    changes: Option<Queue>,
}

impl RemoteStack {
    async fn ask<T: DeserializeOwned>(&self, part: &str, question: impl Serialize) -> Result<T, StackError> {
        let path = format!("/_dev/console/{part}");
        let failed = |error: &dyn Display| StackError(format!("{path} of the stack cannot be called: {error}"));
        let question = serde_json::to_string(&question).map_err(|error| failed(&error))?;
        let reply = call(self.stack.clone(), Method::POST, &path, question).await.map_err(|error| failed(&error))?;
        serde_json::from_str(&reply).map_err(|error| failed(&error))
    }
}

impl StackSource for RemoteStack {
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters> {
        Box::pin(self.ask("dead-letters", action))
    }

    fn project(&self, aggregate: AggregateKey, event: u64) -> Reply<'_, ()> {
        Box::pin(async move {
            let changes = self.changes.as_ref().ok_or_else(|| StackError("there is no projector".to_owned()))?;
            let message = ChangedAggregates::one(aggregate, event).to_body();
            changes.send(&message, SEND_ATTEMPTS, None).await.map_err(StackError)
        })
    }

    fn messages(&self, query: MessageQuery) -> Reply<'_, BusPart> {
        Box::pin(self.ask("messages", query))
    }

    fn stream(&self) -> Reply<'_, StreamState> {
        Box::pin(self.ask("stream", ()))
    }

    fn controls(&self, action: ControlAction) -> Reply<'_, Controls> {
        Box::pin(self.ask("controls", action))
    }
}
