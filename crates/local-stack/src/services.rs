//! The services of the local stack: DynamoDB, EventBridge, SQS and KMS, and the records that mappings discarded, with the bucket
//! that holds them for operator commands.

use std::time::Duration;

use daybook_aws_clients::DYNAMODB_ENDPOINT;
use daybook_function_runtime::with_causes;
use daybook_local_aws::bucket::Bucket;
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::dynamodb::{LocalDynamoDb, StartError};
use daybook_local_aws::messaging::Bus;
use daybook_local_aws::server::Server;
use daybook_local_aws::state::{DataFileError, Journal, StackState};
use daybook_settings::Environment;
use serde_json::Value;

use crate::args::DevArgs;
use crate::error::DevError;
use crate::servers::listen;

/// How long calls may continue after the stop. The API and the functions have ended by then.
const GRACE: Duration = Duration::from_millis(200);

pub(crate) const DISCARDED_BUCKET: &str = "daybook-discarded";

pub(crate) struct Services {
    pub(crate) database: LocalDynamoDb,
    /// The clock of the stack, which is the one of its DynamoDB.
    pub(crate) clock: LocalClock,
    /// The state besides the table: in the file of DynamoDB, or in memory.
    pub(crate) state: StackState,
    pub(crate) bus: Bus,
    /// The discarded records, whose bucket is at the endpoint of the bus.
    pub(crate) discarded: DiscardedRecords,
    bus_server: Server,
}

impl Services {
    pub(crate) async fn start(args: &DevArgs) -> Result<Self, DevError> {
        let listener = listen(args.host, args.dynamodb_port, "--dynamodb-port").await?;
        let database = LocalDynamoDb::start(args.data.as_deref(), listener)?;
        let clock = database.clock().clock().clone();
        let state = args.data.as_deref().map_or_else(StackState::in_memory, StackState::open)?;
        let bus = Bus::new(state.clone(), clock.clone())?;
        let discarded = DiscardedRecords::new(state.clone())?;
        let listener = listen(args.host, args.bus_port, "--bus-port").await?;
        let router = bus.router().merge(discarded.bucket.router());
        let bus_server = Server::serve(listener, router).map_err(StartError::from)?;
        Ok(Self { database, clock, state, bus, discarded, bus_server })
    }

    /// The URL at which the functions reach DynamoDB. The environment can name a proxy in front of it, which counts or fails calls.
    pub(crate) fn dynamodb_url(&self) -> String {
        Environment::of_process().optional(DYNAMODB_ENDPOINT).unwrap_or_else(|| self.database.url().to_owned())
    }

    /// The URL of EventBridge, SQS, KMS and S3.
    pub(crate) fn bus_url(&self) -> &str {
        self.bus_server.url()
    }

    pub(crate) async fn stop(self) {
        self.bus_server.stop(GRACE).await;
        // Before the database, which may be closed at any time after its server has stopped.
        self.state.close();
        self.database.stop(GRACE).await;
    }
}

/// The records that mappings discarded, as an on-failure destination receives them. Clones share them.
#[derive(Clone)]
pub(crate) struct DiscardedRecords {
    /// Has a line for each that was ever discarded.
    state: StackState,
    /// Has an object for each that no operator deleted.
    bucket: Bucket,
}

impl DiscardedRecords {
    /// Goes on with the records in the state.
    fn new(state: StackState) -> Result<Self, DataFileError> {
        let all = state.entries::<Value>(Journal::DISCARDED)?;
        let objects = all.iter().map(|discarded| (object_key(discarded), discarded.to_string()));
        let bucket = Bucket::new(DISCARDED_BUCKET, objects, state.clone())?;
        Ok(Self { state, bucket })
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        let log = |error: &DataFileError| tracing::error!(error = with_causes(error), "cannot read discarded records");
        self.state.entries(Journal::DISCARDED).inspect_err(log).unwrap_or_default()
    }

    pub(crate) fn push(&self, discarded: &Value) {
        self.bucket.put(object_key(discarded), discarded.to_string());
        if let Err(error) = self.state.append(Journal::DISCARDED, discarded) {
            tracing::error!(error = with_causes(&error), %discarded, "cannot store the discarded records");
        }
    }
}

/// The key of an object as Lambda writes it: `aws/lambda/MAPPING/SHARD/YYYY/MM/DD/YYYY-MM-DDTHH.MM.SS-ID`. Here, the function
/// stands for the mapping's id, and the first record's number for the random id, so that the key is the same after a
/// restart.
fn object_key(discarded: &Value) -> String {
    let text = |pointer: &str| discarded.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (function, shard) = (text("/requestContext/functionArn"), text("/DDBStreamBatchInfo/shardId"));
    let (at, first) = (text("/timestamp"), text("/DDBStreamBatchInfo/startSequenceNumber"));
    let at = at.get(..19).unwrap_or(at);
    let (day, time) = at.split_once('T').unwrap_or((at, ""));
    let (path, time) = (day.replace('-', "/"), time.replace(':', "."));
    format!("aws/lambda/{function}/{shard}/{path}/{day}T{time}-{first}")
}
