//! The services of the local stack: DynamoDB, EventBridge and SQS, and the bucket of discarded records.

use std::time::Duration;

use daybook_function_runtime::SdkConfig;
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::dynamodb::{LocalDynamoDb, StartError};
use daybook_local_aws::messaging::Bus;
use daybook_local_aws::server::Server;
use daybook_local_aws::state::StateFile;
use daybook_settings::Environment;

use crate::args::DevArgs;
use crate::aws::{DYNAMODB_ENDPOINT, EVENTBRIDGE_ENDPOINT, SQS_ENDPOINT, service_config};
use crate::discarded::DiscardedRecords;
use crate::error::DevError;
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
    /// The state in the file of the stack's own DynamoDB.
    pub(crate) file: Option<StateFile>,
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
        let (mut database, mut file) = (None, None);
        if !is_elsewhere(DYNAMODB_ENDPOINT) {
            let listener = listen(args.host, args.dynamodb_port, "--dynamodb-port").await?;
            database = Some(LocalDynamoDb::start(args.data.as_deref(), listener)?);
            file = args.data.as_deref().map(StateFile::open).transpose()?;
        }
        let clock = database.as_ref().map(|database| database.clock().clock().clone()).unwrap_or_default();
        let bus = match file.clone() {
            Some(file) => Bus::with_file(file, clock.clone())?,
            None => Bus::with_clock(clock.clone()),
        };
        let discarded = DiscardedRecords::new(file.clone())?;
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
            file,
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
        if let Some(file) = self.file {
            file.close();
        }
        if let Some(database) = self.database {
            database.stop(GRACE).await;
        }
    }
}
