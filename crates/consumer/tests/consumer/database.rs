//! The table, in this process, behind a network that loses calls and responses, and processes that are killed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use daybook_function_runtime::SdkConfig;
use daybook_test_support::engine::Engine;
use daybook_test_support::network::{AwsCall, ConnectionLost, Reply, Service, config};
use fastrand::Rng;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) const TABLE: &str = "daybook-consumer";

/// Longer than a client waits for a response.
const LATE: Duration = Duration::from_secs(4);

/// The fault of a call.
#[derive(Clone, Copy, Debug)]
enum InjectedFault {
    /// 400: nothing was done.
    Throttled,
    /// A transaction is cancelled because another one holds one of its items.
    Conflict,
    /// 500, and the call was executed.
    FailedAfter,
    /// The connection breaks before the call arrives.
    LostBefore,
    /// The connection breaks before the response arrives.
    LostAfter,
    /// The call arrives after its caller has stopped waiting.
    Late,
}

const FAULTS: [InjectedFault; 6] = [
    InjectedFault::Throttled,
    InjectedFault::Conflict,
    InjectedFault::FailedAfter,
    InjectedFault::LostBefore,
    InjectedFault::LostAfter,
    InjectedFault::Late,
];

/// A call that was executed.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) operation: String,
    pub(crate) request: Value,
    pub(crate) units: f64,
}

/// The table and its network. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Database(Arc<Inner>);

struct Inner {
    engine: Engine,
    rng: Mutex<Rng>,
    /// The share of calls with a fault.
    fault_rate: Mutex<f64>,
    /// The number of the next reads of several items whose responses contain none of them.
    unprocessed: Mutex<usize>,
    calls: Mutex<Vec<RecordedCall>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inner")
    }
}

/// An instance of the function, which may be killed at one of its calls.
#[derive(Debug)]
pub(crate) struct Process {
    /// The number of calls until it is killed, and whether the last of them is executed.
    kill: Mutex<Option<(usize, bool)>>,
    killed: Notify,
}

impl Process {
    pub(crate) fn reliable() -> Arc<Self> {
        Arc::new(Self { kill: Mutex::default(), killed: Notify::new() })
    }

    /// A process that is killed at its call with this number, counted from 0, before or after it is executed.
    pub(crate) fn killed_at(call: usize, is_executed: bool) -> Arc<Self> {
        Arc::new(Self { kill: Mutex::new(Some((call, is_executed))), killed: Notify::new() })
    }

    /// Ends when the process is killed.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }

    /// Counts a call. Returns whether it is the last one, and whether it is executed.
    fn count(&self) -> Option<bool> {
        let mut kill = self.kill.lock().unwrap();
        let (calls, is_executed) = kill.as_mut()?;
        if *calls == 0 {
            return Some(*is_executed);
        }
        *calls -= 1;
        None
    }

    async fn kill(&self) -> ! {
        self.killed.notify_one();
        match std::future::pending::<std::convert::Infallible>().await {}
    }
}

impl Database {
    /// A database without faults.
    pub(crate) fn new(seed: u64) -> Self {
        let engine = Engine::in_memory(|| Duration::from_secs(1_900_000_000)).unwrap();
        let (rng, fault_rate, calls) = (Mutex::new(Rng::with_seed(seed)), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { engine, rng, fault_rate, unprocessed: Mutex::default(), calls }))
    }

    pub(crate) fn fault_rate(&self) -> MutexGuard<'_, f64> {
        self.0.fault_rate.lock().unwrap()
    }

    pub(crate) fn set_fault_rate(&self, rate: f64) {
        *self.0.fault_rate.lock().unwrap() = rate;
    }

    /// From now on, this number of reads of several items returns none of them, as if their partitions were throttled.
    pub(crate) fn leave_unprocessed(&self, reads: usize) {
        *self.0.unprocessed.lock().unwrap() = reads;
    }

    /// The configuration of a process's clients.
    pub(crate) fn config(&self, process: Arc<Process>) -> SdkConfig {
        config(Connection { database: self.clone(), process })
    }

    /// The calls since they were last taken.
    pub(crate) fn take_calls(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut self.0.calls.lock().unwrap())
    }

    /// All items of the table.
    pub(crate) fn items(&self) -> Vec<Value> {
        let response = self.0.engine.call("Scan", &json!({"TableName": TABLE}).to_string());
        let mut page: Value = serde_json::from_str(&response.body).unwrap();
        assert!(page["LastEvaluatedKey"].is_null());
        serde_json::from_value(page["Items"].take()).unwrap()
    }

    /// Deletes the item whose sort key begins with a text, and returns it.
    pub(crate) fn hide(&self, sk: &str) -> Value {
        let mut items = self.items().into_iter();
        let item = items.find(|item| item["sk"]["S"].as_str().unwrap().starts_with(sk)).unwrap();
        let key = json!({"pk": item["pk"], "sk": item["sk"]});
        self.0.engine.call("DeleteItem", &json!({"TableName": TABLE, "Key": key}).to_string());
        item
    }

    /// Puts an item that was hidden.
    pub(crate) fn show(&self, item: &Value) {
        self.0.engine.call("PutItem", &json!({"TableName": TABLE, "Item": item}).to_string());
    }

    fn execute(&self, call: &AwsCall) -> Reply {
        let mut request: Value = serde_json::from_str(&call.body).unwrap();
        if call.operation != "CreateTable" {
            request["ReturnConsumedCapacity"] = "TOTAL".into();
        }
        let response = self.0.engine.call(&call.operation, &request.to_string());
        let body: Value = serde_json::from_str(&response.body).unwrap();
        let units = |consumed: &Value| consumed["CapacityUnits"].as_f64().unwrap_or_default();
        let units = match &body["ConsumedCapacity"] {
            Value::Array(tables) => tables.iter().map(units).sum(),
            consumed => units(consumed),
        };
        let operation = call.operation.clone();
        let mut unprocessed = self.0.unprocessed.lock().unwrap();
        if operation == "BatchGetItem" && *unprocessed > 0 {
            *unprocessed -= 1;
            let body = json!({"Responses": {}, "UnprocessedKeys": request["RequestItems"]}).to_string();
            self.0.calls.lock().unwrap().push(RecordedCall { operation, request, units: 0.0 });
            return Reply { status: 200, body };
        }
        self.0.calls.lock().unwrap().push(RecordedCall { operation, request, units });
        Reply { status: response.status, body: response.body }
    }

    fn fault(&self, operation: &str) -> Option<InjectedFault> {
        let (mut rng, rate) = (self.0.rng.lock().unwrap(), *self.0.fault_rate.lock().unwrap());
        if rng.f64() >= rate {
            return None;
        }
        let fault = FAULTS[rng.usize(..FAULTS.len())];
        let is_of_transactions = matches!(fault, InjectedFault::Conflict);
        (!is_of_transactions || operation == "TransactWriteItems").then_some(fault)
    }

    fn latency(&self) -> Duration {
        Duration::from_millis(self.0.rng.lock().unwrap().u64(1..20))
    }
}

#[derive(Debug)]
struct Connection {
    database: Database,
    process: Arc<Process>,
}

impl Service for Connection {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let (database, process) = (self.database.clone(), Arc::clone(&self.process));
        async move {
            let last = process.count();
            if last == Some(false) {
                process.kill().await;
            }
            sleep(database.latency()).await;
            let fault = database.fault(&call.operation);
            match fault {
                Some(InjectedFault::Throttled) => return Ok(error(400, "ThrottlingException", None)),
                Some(InjectedFault::Conflict) => return Ok(cancelled(&call)),
                Some(InjectedFault::LostBefore) => return Err(ConnectionLost),
                Some(InjectedFault::Late) => {
                    // It arrives even if its sender has been killed.
                    tokio::spawn(async move {
                        sleep(LATE).await;
                        database.execute(&call);
                    });
                    return std::future::pending().await;
                }
                _ => {}
            }
            let reply = database.execute(&call);
            if last == Some(true) {
                process.kill().await;
            }
            sleep(database.latency()).await;
            match fault {
                Some(InjectedFault::FailedAfter) => Ok(error(500, "InternalServerError", None)),
                Some(InjectedFault::LostAfter) => Err(ConnectionLost),
                _ => Ok(reply),
            }
        }
        .boxed()
    }
}

fn cancelled(call: &AwsCall) -> Reply {
    let request: Value = serde_json::from_str(&call.body).unwrap();
    let items = request["TransactItems"].as_array().map_or(1, Vec::len);
    let codes = (0..items).map(|item| json!({"Code": if item == 0 { "TransactionConflict" } else { "None" }}));
    error(400, "TransactionCanceledException", Some(codes.collect()))
}

fn error(status: u16, code: &str, reasons: Option<Value>) -> Reply {
    let mut body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "injected fault"});
    if let Some(reasons) = reasons {
        body["CancellationReasons"] = reasons;
    }
    Reply { status, body: body.to_string() }
}
