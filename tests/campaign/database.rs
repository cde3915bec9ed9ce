//! The table, in this process, behind a simulated network that loses calls and responses.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use daybook_decider::Claim;
use daybook_event_store::{ARRIVAL_TIME, CALL_TIMEOUT, EventStore, SETTLE_WRITES, StoreSettings};
use daybook_function_runtime::SdkConfig;
use daybook_table::keys;
use daybook_test_support::engine::Engine;
use futures_util::future::{BoxFuture, FutureExt};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use crate::clock::Clock;
use crate::dice::Dice;
use crate::log::Log;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};
use crate::process::Process;
use crate::torn::TornTables;
use crate::writers::{CLOCK_ERROR, PERSONAL};

/// The longest usual time of a call.
const ROUND_TRIP: Duration = Duration::from_millis(20);

/// The time until the table refuses a call.
const REFUSAL_TIME: Duration = Duration::from_millis(5);

/// The time of a slow call of KMS, for which its callers wait.
const KMS_TIME: Duration = Duration::from_millis(2_500);

pub(crate) const TABLE: &str = "daybook-campaign";

pub(crate) const KEYS_TABLE: &str = "daybook-campaign-keys";

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// 400: nothing was done.
    Throttled,
    /// A transaction is cancelled because another one holds one of its items.
    Conflict,
    /// A transaction is cancelled because one of its items is throttled.
    Exceeded,
    /// The response is that an earlier attempt with the same token is still in progress.
    InProgress,
    /// 500, and the call was not executed.
    FailedBefore,
    /// 500, and the call was executed.
    FailedAfter,
    /// The connection breaks before the call arrives.
    LostBefore,
    /// The connection breaks before the response arrives.
    LostAfter,
    /// The call never arrives, and the caller gets no error.
    HangsBefore,
    /// The response never arrives, and the caller gets no error.
    HangsAfter,
    /// The call arrives after its caller has stopped waiting.
    Late,
    /// The call takes up to a second more than its caller waits.
    Slow,
}

const FAULTS: [InjectedFault; 12] = [
    InjectedFault::Throttled,
    InjectedFault::Conflict,
    InjectedFault::Exceeded,
    InjectedFault::InProgress,
    InjectedFault::FailedBefore,
    InjectedFault::FailedAfter,
    InjectedFault::LostBefore,
    InjectedFault::LostAfter,
    InjectedFault::HangsBefore,
    InjectedFault::HangsAfter,
    InjectedFault::Late,
    InjectedFault::Slow,
];

/// The faults of a read: faults after its execution make no difference.
const FAULTS_OF_READS: [InjectedFault; 4] =
    [InjectedFault::Throttled, InjectedFault::FailedBefore, InjectedFault::LostBefore, InjectedFault::HangsBefore];

/// The table and its simulated network.
#[derive(Clone, Debug)]
pub(crate) struct Database(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    clock: Clock,
    log: Arc<Log>,
    state: Mutex<State>,
    /// The transactions in progress, if they take time.
    torn: OnceLock<Arc<TornTables>>,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    /// The share of calls with a fault, and the faults.
    rate: f64,
    kinds: Vec<InjectedFault>,
    reads_failed: u32,
    /// When all transactions fail.
    outage: Range<Instant>,
}

impl Database {
    /// A database without faults until [`start_faults`](Self::start_faults).
    pub(crate) fn new(seed: u64, clock: Clock, log: Arc<Log>) -> Self {
        let engine = Engine::in_memory(move || clock.now()).unwrap();
        let keys = json!({
            "TableName": KEYS_TABLE, "BillingMode": "PAY_PER_REQUEST",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        });
        assert_eq!(engine.call("CreateTable", &keys.to_string()).status, 200);
        let now = Instant::now();
        let state =
            State { dice: Dice::new(seed, "database"), rate: 0.0, kinds: vec![], reads_failed: 0, outage: now..now };
        Self(Arc::new(Inner { engine, clock, log, state: Mutex::new(state), torn: OnceLock::new() }))
    }

    /// From now on, transactions take time.
    pub(crate) fn tear(&self, tables: Arc<TornTables>) {
        self.0.torn.set(tables).expect("it was not set before");
    }

    /// From now on, some calls have some of the faults.
    pub(crate) fn start_faults(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.rate = state.dice.one_of(&[0.0, 0.05, 0.2, 0.4]);
        let mut kinds = FAULTS.to_vec();
        state.dice.shuffle(&mut kinds);
        kinds.truncate(state.dice.size(1..=FAULTS.len()));
        state.kinds = kinds;
    }

    /// All transactions fail meanwhile, unless the faults stop before.
    pub(crate) fn fail_transactions(&self, meanwhile: Range<Instant>) {
        self.0.state.lock().unwrap().outage = meanwhile;
    }

    pub(crate) fn stop_faults(&self) {
        let state = &mut *self.0.state.lock().unwrap();
        (state.rate, state.outage.end) = (0.0, state.outage.start);
    }

    /// The configuration of a process's clients.
    pub(crate) fn config(&self, process: Arc<Process>) -> SdkConfig {
        network::config(Connection { database: self.clone(), process })
    }

    /// The store of a process. KMS is at the same endpoint.
    pub(crate) fn store(&self, process: Arc<Process>, settings: StoreSettings) -> EventStore {
        let config = self.config(process);
        let keys = [("KEYS_TABLE_NAME", KEYS_TABLE), ("PERSONAL_DATA_KEY", "campaign")].into_iter().collect();
        EventStore::new(&config, settings).with_keys(&keys, &config).unwrap()
    }

    /// A call without the simulated network.
    pub(crate) fn call(&self, operation: &str, request: &Value) -> Value {
        let response = self.0.engine.call(operation, &request.to_string());
        assert_eq!(response.status, 200, "{operation}: {}", response.body);
        serde_json::from_str(&response.body).unwrap()
    }

    pub(crate) fn sweep_expired(&self) -> usize {
        self.0.engine.sweep_expired().unwrap()
    }

    /// The rows of a partition, in DynamoDB's JSON, by their sort keys.
    pub(crate) fn rows(&self, pk: &str) -> Vec<Value> {
        let query = json!({"KeyConditionExpression": "pk = :pk", "ExpressionAttributeValues": {":pk": {"S": pk}}});
        self.read(TABLE, "Query", query)
    }

    /// The claims of all rows, as they are stored.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        let rows = self.all_rows(TABLE);
        rows.iter().filter_map(|row| keys::claim_of_pk(row["pk"]["S"].as_str()?)).collect()
    }

    pub(crate) fn all_rows(&self, table: &str) -> Vec<Value> {
        self.read(table, "Scan", json!({}))
    }

    /// Replaces all rows of a table, as a restore does.
    pub(crate) fn replace_rows(&self, table: &str, rows: &[Value]) {
        for row in self.all_rows(table) {
            let key: BTreeMap<_, _> = ["pk", "sk"].iter().filter_map(|name| Some((*name, row.get(*name)?))).collect();
            self.call("DeleteItem", &json!({"TableName": table, "Key": key}));
        }
        for row in rows {
            self.call("PutItem", &json!({"TableName": table, "Item": row}));
        }
    }

    /// The rows of all pages.
    fn read(&self, table: &str, operation: &str, mut request: Value) -> Vec<Value> {
        (request["TableName"], request["ConsistentRead"]) = (table.into(), true.into());
        let mut rows = Vec::new();
        loop {
            let mut page = self.call(operation, &request);
            rows.extend(page["Items"].as_array().unwrap().iter().cloned());
            match page["LastEvaluatedKey"].take() {
                Value::Null => return rows,
                key => request["ExclusiveStartKey"] = key,
            }
        }
    }

    /// All records of the stream, as `GetRecords` returns them.
    pub(crate) fn stream(&self) -> Vec<Value> {
        self.stream_from(&mut None)
    }

    /// The records from an iterator on, from the first without one. Leaves the iterator for the next records.
    pub(crate) fn stream_from(&self, iterator: &mut Option<Value>) -> Vec<Value> {
        let mut next = iterator.take().unwrap_or_else(|| self.first_iterator());
        let mut records = Vec::new();
        loop {
            let mut page = self.call("GetRecords", &json!({"ShardIterator": next}));
            let found = page["Records"].as_array().unwrap();
            if found.is_empty() {
                *iterator = Some(next);
                return records;
            }
            records.extend(found.iter().cloned());
            next = page["NextShardIterator"].take();
        }
    }

    fn first_iterator(&self) -> Value {
        let streams = self.call("ListStreams", &json!({"TableName": TABLE}));
        let arn = &streams["Streams"][0]["StreamArn"];
        let stream = self.call("DescribeStream", &json!({"StreamArn": arn}));
        let shard = &stream["StreamDescription"]["Shards"][0]["ShardId"];
        let start = json!({"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"});
        self.call("GetShardIterator", &start)["ShardIterator"].take()
    }
}

/// A process's connection to the table.
#[derive(Debug)]
struct Connection {
    database: Database,
    process: Arc<Process>,
}

impl Service for Connection {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let (database, process) = (Arc::clone(&self.database.0), Arc::clone(&self.process));
        async move {
            if let "Encrypt" | "Decrypt" = &*call.operation {
                return Ok(database.kms(&call).await);
            }
            let (crashes_before, crashes_after) = process.call();
            if crashes_before {
                process.crash().await;
            }
            if process.is_refused(&call.body) {
                database.log.line(|| format!("{} is refused", call.operation));
                sleep(REFUSAL_TIME).await;
                // An error that the SDK does not retry: retries would use up what all schedules of this process share.
                return Ok(error_reply(400, "AccessDeniedException", None));
            }
            let fault = database.draw(&call.operation);
            let (request_time, response_time) = database.latency();
            let (request_time, response_time) = (process.latency(request_time), process.latency(response_time));
            database.log.line(|| format!("{} {}", call.operation, fault.map_or(String::new(), |f| format!("{f:?}"))));
            let arrives = match fault {
                Some(InjectedFault::LostBefore) => {
                    sleep(request_time).await;
                    return Err(ConnectionLost);
                }
                Some(InjectedFault::HangsBefore) => return std::future::pending().await,
                Some(InjectedFault::Throttled) => return Ok(error_reply(400, "ThrottlingException", None)),
                Some(InjectedFault::InProgress) => return Ok(error_reply(400, "TransactionInProgressException", None)),
                Some(InjectedFault::FailedBefore) => return Ok(error_reply(500, "InternalServerError", None)),
                Some(InjectedFault::Conflict) => {
                    return Ok(cancelled(&call, "TransactionConflict", database.pick(&call)));
                }
                Some(InjectedFault::Exceeded) => {
                    return Ok(cancelled(&call, "ProvisionedThroughputExceeded", database.pick(&call)));
                }
                Some(InjectedFault::Late) => request_time + database.lateness(),
                Some(InjectedFault::Slow) => request_time + database.slowness(),
                Some(InjectedFault::FailedAfter | InjectedFault::LostAfter | InjectedFault::HangsAfter) | None => {
                    request_time
                }
            };
            // A call that was sent arrives even if its sender crashes.
            let service = Arc::clone(&database);
            let effect = tokio::spawn(async move {
                sleep(arrives).await;
                service.check_personal_data(&call);
                let response = match service.torn.get() {
                    Some(tables) => tables.execute(&service.engine, &call).await,
                    None => service.engine.call(&call.operation, &call.body),
                };
                if response.status == 200 && service.torn.get().is_none() && arrives <= CALL_TIMEOUT + ARRIVAL_TIME {
                    service.check_visibility(&call);
                }
                service.log.line(|| format!("{} done: {}", call.operation, response.status));
                Reply { status: response.status, body: response.body }
            });
            if fault == Some(InjectedFault::Late) {
                return std::future::pending().await;
            }
            let reply = effect.await.map_err(|_| ConnectionLost)?;
            if crashes_after {
                process.crash().await;
            }
            sleep(response_time).await;
            match fault {
                Some(InjectedFault::FailedAfter) => Ok(error_reply(500, "InternalServerError", None)),
                Some(InjectedFault::LostAfter) => Err(ConnectionLost),
                Some(InjectedFault::HangsAfter) => std::future::pending().await,
                _ => Ok(reply),
            }
        }
        .boxed()
    }
}

impl Inner {
    /// The response of KMS, whose ciphertext is the plain text. Its errors are such that the SDK does not retry.
    async fn kms(&self, call: &AwsCall) -> Reply {
        let request: Value = serde_json::from_str(&call.body).unwrap();
        self.log.expect(request["EncryptionContext"] == json!({"daybook:table": KEYS_TABLE}), || call.body.clone());
        let (fails, is_slow) = {
            let State { dice, rate, .. } = &mut *self.state.lock().unwrap();
            (dice.chance(*rate / 2.0), dice.chance(*rate / 2.0))
        };
        if is_slow {
            self.log.count("KMS Slow");
            sleep(KMS_TIME).await;
        }
        if fails {
            self.log.count("KMS Failed");
            return error_reply(400, "KMSInvalidStateException", None);
        }
        let body = match &*call.operation {
            "Encrypt" => json!({ "CiphertextBlob": request["Plaintext"] }),
            _ => json!({ "Plaintext": request["CiphertextBlob"] }),
        };
        Reply { status: 200, body: body.to_string() }
    }

    fn draw(&self, operation: &str) -> Option<InjectedFault> {
        let mut state = self.state.lock().unwrap();
        let State { dice, rate, kinds, reads_failed, outage } = &mut *state;
        if operation == "TransactWriteItems" && outage.contains(&Instant::now()) {
            self.log.count("transaction in an outage");
            return Some(InjectedFault::Exceeded);
        }
        let writes = ["TransactWriteItems", "PutItem", "UpdateItem"].contains(&operation);
        if !dice.chance(*rate) || (!writes && *reads_failed >= 2) {
            *reads_failed = 0;
            return None;
        }
        let fault = dice.one_of(kinds);
        let of_transactions = [InjectedFault::Conflict, InjectedFault::Exceeded, InjectedFault::InProgress];
        if !writes && !FAULTS_OF_READS.contains(&fault)
            || operation != "TransactWriteItems" && of_transactions.contains(&fault)
        {
            return None;
        }
        *reads_failed += u32::from(!writes);
        self.log.count(&format!("database {fault:?}"));
        Some(fault)
    }

    fn latency(&self) -> (Duration, Duration) {
        let dice = &mut self.state.lock().unwrap().dice;
        (dice.milliseconds(1..=10), dice.milliseconds(1..=10))
    }

    /// Longer than a client waits. Half of such calls arrive within the time in which calls should arrive.
    fn lateness(&self) -> Duration {
        let dice = &mut self.state.lock().unwrap().dice;
        let longest = if dice.chance(0.5) { ARRIVAL_TIME } else { Duration::from_secs(30) };
        CALL_TIMEOUT + dice.milliseconds(0..=longest.as_millis().try_into().unwrap()).saturating_sub(ROUND_TRIP)
    }

    fn slowness(&self) -> Duration {
        let longest = CALL_TIMEOUT + ARRIVAL_TIME - ROUND_TRIP;
        self.state.lock().unwrap().dice.milliseconds(1..=longest.as_millis().try_into().unwrap())
    }

    /// No call contains a personal value in plain text: neither those that write, nor those that look for a claim. A key is
    /// read consistently, so that one that has ended is not read any more.
    fn check_personal_data(&self, call: &AwsCall) {
        let reads_key = call.operation.contains("Get") && call.body.contains(KEYS_TABLE);
        let is_consistent = !reads_key || call.body.contains("\"ConsistentRead\":true");
        self.log.expect(is_consistent, || format!("{}: {}", call.operation, call.body));
        self.log.expect(!call.body.contains(PERSONAL), || format!("{}: {}", call.operation, call.body));
    }

    /// The events of a transaction that has taken effect are visible in time.
    fn check_visibility(&self, call: &AwsCall) {
        if call.operation != "TransactWriteItems" {
            return;
        }
        let request: Value = serde_json::from_str(&call.body).unwrap();
        for item in request["TransactItems"].as_array().unwrap() {
            let row = &item["Put"]["Item"];
            let Some(id) = row["eventId"]["S"].as_str() else { continue };
            let time: Timestamp = row["occurredAt"]["S"].as_str().unwrap().parse().unwrap();
            let of_id = Ulid::from_string(id).unwrap().timestamp_ms();
            self.log
                .expect(i64::try_from(of_id).unwrap() == time.as_millisecond(), || format!("{id} is not of {time}"));
            let age = self.clock.timestamp().duration_since(time);
            let bound = SignedDuration::try_from(SETTLE_WRITES + CLOCK_ERROR).unwrap();
            self.log.expect(age <= bound, || format!("event {id} of {time} is visible after {age}"));
        }
    }

    /// One of a transaction's items.
    fn pick(&self, call: &AwsCall) -> usize {
        let items = items(call);
        self.state.lock().unwrap().dice.size(0..=items - 1)
    }
}

fn items(call: &AwsCall) -> usize {
    let request: Value = serde_json::from_str(&call.body).unwrap();
    request["TransactItems"].as_array().map_or(1, Vec::len)
}

fn cancelled(call: &AwsCall, code: &str, at: usize) -> Reply {
    let reasons = (0..items(call)).map(|index| json!({"Code": if index == at { code } else { "None" }}));
    error_reply(400, "TransactionCanceledException", Some(reasons.collect()))
}

fn error_reply(status: u16, code: &str, reasons: Option<Value>) -> Reply {
    let mut body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "injected fault"});
    if let Some(reasons) = reasons {
        body["CancellationReasons"] = reasons;
    }
    Reply { status, body: body.to_string() }
}
