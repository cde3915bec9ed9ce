//! The services of the local stack: DynamoDB, EventBridge and SQS, and the bucket of discarded records. The functions'
//! settings: those of the template, with local names for resources that only a deployment creates.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_event_source_mapping::Template;
use daybook_event_source_mapping::template::{Function, Setting};
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::dynamodb::{LocalDynamoDb, StartError};
use daybook_local_aws::messaging::Bus;
use daybook_local_aws::server::Server;
use daybook_local_aws::state::StackState;
use daybook_settings::Environment;

use crate::args::DevArgs;
use crate::discarded::DiscardedRecords;
use crate::error::DevError;
use crate::http::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};
use crate::servers::listen;

/// How long calls may continue after the stop. The API and the functions have ended by then.
const GRACE: Duration = Duration::from_millis(200);

/// The services, each at the endpoint that the environment names or at the stack's own.
pub(crate) struct Services {
    pub(crate) dynamodb: SdkConfig,
    pub(crate) eventbridge: SdkConfig,
    pub(crate) sqs: SdkConfig,
    /// The stack's own DynamoDB.
    pub(crate) database: Option<LocalDynamoDb>,
    /// The clock of the stack, which is the one of its own DynamoDB.
    pub(crate) clock: LocalClock,
    /// The state besides the table: in the file of the stack's own DynamoDB, or in memory.
    pub(crate) state: StackState,
    /// The stack's own EventBridge and SQS; without a server if both are external.
    pub(crate) bus: Bus,
    /// The discarded records, whose bucket is at the endpoint of the bus.
    pub(crate) discarded: DiscardedRecords,
    bus_server: Option<Server>,
    /// The endpoints that the environment names, by variable.
    pub(crate) elsewhere: Vec<(&'static str, String)>,
}

impl Services {
    /// Starts the services for which the environment names no endpoint.
    pub(crate) async fn start(args: &DevArgs) -> Result<Self, DevError> {
        let process = Environment::of_process();
        let endpoints = [DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT];
        let elsewhere = endpoints.into_iter().filter_map(|variable| Some((variable, process.optional(variable)?)));
        let elsewhere: Vec<_> = elsewhere.collect();
        let is_elsewhere = |variable| elsewhere.iter().any(|(name, _)| *name == variable);
        let mut database = None;
        if !is_elsewhere(DYNAMODB_ENDPOINT) {
            let listener = listen(args.host, args.dynamodb_port, "--dynamodb-port").await?;
            database = Some(LocalDynamoDb::start(args.data.as_deref(), listener)?);
        }
        let clock = database.as_ref().map(|database| database.clock().clock().clone()).unwrap_or_default();
        let state = match args.data.as_deref().filter(|_| database.is_some()) {
            Some(data) => StackState::open(data)?,
            None => StackState::in_memory()?,
        };
        let bus = Bus::new(state.clone(), clock.clone())?;
        let discarded = DiscardedRecords::new(state.clone())?;
        let mut bus_server = None;
        if !(is_elsewhere(EVENTBRIDGE_ENDPOINT) && is_elsewhere(SQS_ENDPOINT)) {
            let listener = listen(args.host, args.bus_port, "--bus-port").await?;
            bus_server =
                Some(Server::serve(listener, bus.router().merge(discarded.bucket.router())).map_err(StartError::from)?);
        }
        let bus_url = bus_server.as_ref().map(Server::url);
        Ok(Self {
            dynamodb: service_config(&process, DYNAMODB_ENDPOINT, database.as_ref().map(LocalDynamoDb::url)).await,
            eventbridge: service_config(&process, EVENTBRIDGE_ENDPOINT, bus_url).await,
            sqs: service_config(&process, SQS_ENDPOINT, bus_url).await,
            database,
            clock,
            state,
            bus,
            discarded,
            bus_server,
            elsewhere,
        })
    }

    /// The URL of the stack's own DynamoDB; `None` if it is external.
    pub(crate) fn dynamodb_url(&self) -> Option<&str> {
        self.database.as_ref().map(LocalDynamoDb::url)
    }

    /// The URL of the stack's own EventBridge and SQS; `None` if both are external.
    pub(crate) fn bus_url(&self) -> Option<&str> {
        self.bus_server.as_ref().map(Server::url)
    }

    pub(crate) async fn stop(self) {
        if let Some(server) = self.bus_server {
            server.stop(GRACE).await;
        }
        // Before the database, which may be closed at any time after its server has stopped.
        self.state.close();
        if let Some(database) = self.database {
            database.stop(GRACE).await;
        }
    }
}

/// Not "daybook": for table names under 8 characters, AWS SDKs reject the shard ids of the engine's stream.
const TABLE_NAME: &str = "daybook-dev";

pub(crate) type Variables = BTreeMap<String, String>;

/// The environment with these variables.
pub(crate) fn environment_of(variables: &Variables) -> Environment {
    variables.iter().collect()
}

/// The function of a template that runs a binary, and its environment variables. A variable of this process overrides the
/// template's. Feeds have no delay, because one process with one clock appends and reads. The stack has read models.
pub(crate) fn function_of<'a>(
    template: &'a Template,
    binary: &'static str,
    sqs: &SdkConfig,
) -> Result<(&'a Function, Variables), DevError> {
    let is_built = |function: &&Function| function.binary == Some(Setting::Known(binary.to_owned()));
    let function = template.functions.values().find(is_built).ok_or(DevError::NoFunction { binary })?;
    let process = Environment::of_process();
    let variable = |(name, setting): (&String, &Setting)| {
        let of_template = if let Setting::Known(value) = setting { Some(value.clone()) } else { None };
        let of_local_stack = (name == "FEED_DELAY_MS").then(|| "0".to_owned());
        let of_stack = match name.as_str() {
            "TABLE_NAME" => Some(TABLE_NAME.to_owned()),
            "EVENT_BUS_NAME" => Some("daybook".to_owned()),
            "VIEWS_TABLE_NAME" => Some(format!("{TABLE_NAME}-views")),
            "DLQ_URL" => Some(format!("{}/000000000000/daybook-dlq", sqs.endpoint_url().unwrap_or_default())),
            "CHANGES_QUEUE_URL" => {
                Some(format!("{}/000000000000/daybook-changes", sqs.endpoint_url().unwrap_or_default()))
            }
            _ => None,
        };
        Some((name.clone(), process.optional(name).or(of_local_stack).or(of_template).or(of_stack)?))
    };
    Ok((function, function.environment.iter().filter_map(variable).collect()))
}
