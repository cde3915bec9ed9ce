//! What a trial runs on: the local stack, or the command handler over a table that fails; and what it observes there.
//!
//! The local stack has no CloudWatch, so each metric has a counterpart:
//!
//! | metric | counterpart |
//! |---|---|
//! | `Daybook/…` | the functions' counters, the number of their log lines of level `ERROR`, and the statuses of responses |
//! | `AWS/ApiGateway` | the requests of the trial |
//! | `AWS/Lambda` of a mapping | `/_dev/mappings` and `/_dev/discarded`: a disabled mapping does not poll; records wait after an invocation that did not settle them |
//! | `AWS/SQS` | the dead-letter queue |
//! | `AWS/DynamoDB` | the failed calls at a proxy |

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use daybook_local_aws::messaging::{Faults, QueueMessage};
use daybook_test_support::log;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{ApiResponse, PATIENCE, Suite, workspace};
use tokio::time::{Instant, sleep};

use super::super::names::{
    APPENDED, BREAKER, DEAD_LETTERED, DISCARDED, FAILED, FORBIDDEN, LOGGED, LOGGED_5XX, POLLED, QUEUED, RELAY_AGE,
    RELAY_TIME, SENT, SENT_TO_QUEUE, SERVER_ERRORS, SNAPSHOTTER_AGE, TOO_LARGE, UNREADABLE,
};
use super::metrics::ThreadCounters;

/// The messages of a minute in normal operation, as in `failures`.
pub(super) const MESSAGES: usize = 12;
/// The conflicts of a minute in normal operation, as in `failures`.
const OUTDATED_REQUESTS: usize = 3;

/// The value of each metric that a trial observes; `None` if the metric has none.
pub(in super::super) type Observed = BTreeMap<&'static str, Option<f64>>;

/// The counters, log lines and responses of a trial.
pub(super) struct Signals {
    counters: ThreadCounters,
    responses: RefCell<BTreeMap<u16, u32>>,
}

impl Signals {
    pub(super) fn start() -> Self {
        log::take_all();
        Self { counters: ThreadCounters::start(), responses: RefCell::default() }
    }

    /// A counter since it was last taken.
    pub(super) fn count_of(&self, metric: &str) -> Option<f64> {
        let count = self.counters.get(counter(metric));
        (count > 0).then(|| f64::from(u32::try_from(count).unwrap()))
    }

    /// The latest value of a histogram.
    pub(super) fn latest_of(&self, metric: &str) -> Option<f64> {
        self.counters.latest(counter(metric))
    }

    pub(super) fn count_response(&self, status: u16) {
        *self.responses.borrow_mut().entry(status).or_default() += 1;
    }

    /// The metrics since they were last taken.
    pub(super) fn take(&self) -> Observed {
        let counts = self.counters.take();
        let counted = [APPENDED, SENT, DEAD_LETTERED, BREAKER, TOO_LARGE, UNREADABLE]
            .map(|metric| (metric, counts.get(counter(metric)).map(|count| f64::from(u32::try_from(*count).unwrap()))));
        let functions = [
            "daybook_command_handler",
            "daybook_stream_relay",
            "daybook_snapshotter",
            "daybook_event_store",
            "daybook_reactor",
        ];
        let of_function =
            |line: &Value| functions.contains(&line["target"].as_str().unwrap().split("::").next().unwrap());
        let errors = log::take_all().iter().filter(|line| line["level"] == "ERROR" && of_function(line)).count();
        let responses = self.responses.take();
        let requests: u32 = responses.values().sum();
        let with = |statuses: std::ops::RangeInclusive<u16>| {
            let count: u32 = responses.range(statuses).map(|(_, count)| count).sum();
            (requests > 0).then(|| f64::from(count))
        };
        let mut observed = Observed::from(counted);
        observed.insert(LOGGED, (errors > 0).then(|| f64::from(u32::try_from(errors).unwrap())));
        observed.insert(SERVER_ERRORS, with(500..=599));
        observed.insert(LOGGED_5XX, with(500..=599));
        observed.insert(FORBIDDEN, with(403..=403));
        observed
    }
}

/// The name of a counter in that of its metric.
fn counter(metric: &str) -> &str {
    metric.rsplit(' ').next().unwrap()
}

/// The local stack of a trial.
pub(super) struct Bench {
    pub(super) suite: Suite,
    pub(super) signals: Signals,
    ids: AtomicU32,
}

impl Bench {
    /// A stack with the template of this repository.
    pub(super) async fn start() -> Self {
        Self::with_template(str::to_owned).await
    }

    /// A stack with an edited template.
    pub(super) async fn with_template(edit: impl FnOnce(&str) -> String) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let signals = Signals::start();
        let text = std::fs::read_to_string(workspace().join("template.yaml")).unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("trial-{}-{number}.yaml", std::process::id()));
        std::fs::write(&path, edit(&text)).unwrap();
        let suite = Suite::with_template(path.clone()).await;
        std::fs::remove_file(path).unwrap();
        Self { suite, signals, ids: AtomicU32::new(0) }
    }

    /// Replaces the faults of the bus and the queue.
    pub(super) fn fail(&self, faults: Value) {
        self.suite.stack.bus().set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> ApiResponse {
        let body = body.map(|body| body.to_string());
        let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
        let response = self.suite.send(method, path, &headers, body.as_deref()).await;
        self.signals.count_response(response.status.as_u16());
        response
    }

    /// Creates a to-do, which publishes a message that contains the title.
    pub(super) async fn create(&self, title: &str) -> String {
        let id = format!("{}", self.ids.fetch_add(1, Ordering::Relaxed));
        let todo = json!({"id": id, "title": title, "message": ""});
        self.send(Method::POST, "/todo", &[], Some(todo)).await.expect(201);
        format!("/todo/{id}")
    }

    /// Sends the requests of a minute in normal operation.
    pub(super) async fn minute(&self) {
        let mut last = String::new();
        for _ in 0..MESSAGES {
            last = self.create("TODO").await;
        }
        for _ in 0..OUTDATED_REQUESTS {
            self.conflict(&last).await;
        }
    }

    /// Updates a to-do from an outdated version.
    pub(super) async fn conflict(&self, todo: &str) {
        let update = json!({"title": "TODO", "message": "late"});
        self.send(Method::POST, todo, &[("if-match", "\"7\"")], Some(update)).await.expect(409);
    }

    /// The mapping of a function.
    async fn mapping(&self, function: &str) -> Value {
        let mappings = self.suite.get("/_dev/mappings").await.body;
        mappings.as_array().unwrap().iter().find(|mapping| mapping["function"] == function).unwrap().clone()
    }

    /// The number of the relay's records that are not settled.
    pub(super) async fn waiting(&self) -> u64 {
        self.mapping("stream-relay").await["shards"][0]["waiting"].as_u64().unwrap()
    }

    /// All messages that ever arrived in the dead-letter queue.
    pub(super) fn dead_letters(&self) -> Vec<QueueMessage> {
        let is_dead_letter = |message: &QueueMessage| message.queue_url.ends_with("dlq");
        self.suite.stack.bus().dead_letters().into_iter().filter(is_dead_letter).collect()
    }

    /// Waits until the relay has been invoked, and this number of records, or more, is unsettled.
    pub(super) async fn unsettled(&self, count: usize) {
        let is_reached = async || {
            let shard = &self.mapping("stream-relay").await["shards"][0];
            let waiting = shard["waiting"].as_u64().and_then(|waiting| usize::try_from(waiting).ok());
            // Changes for the projector wait too.
            shard["lastResult"].as_str().is_some_and(|result| result != "OK") && waiting >= Some(count)
        };
        self.until(&format!("{count} unsettled records"), is_reached).await;
    }

    /// Waits until the relay has counted this number of messages, sent or dead-lettered, and no record is unsettled.
    pub(super) async fn settled(&self, count: usize) {
        let is_reached = async || {
            let settled: f64 = [SENT, DEAD_LETTERED].iter().filter_map(|metric| self.signals.count_of(metric)).sum();
            let shard = &self.mapping("stream-relay").await["shards"][0];
            settled >= f64::from(u32::try_from(count).unwrap()) && shard["lastResult"] == "OK" && shard["waiting"] == 0
        };
        self.until(&format!("{count} settled messages"), is_reached).await;
    }

    pub(super) async fn until(&self, what: &str, is_reached: impl AsyncFn() -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_reached().await {
            assert!(Instant::now() < give_up, "{what}: {}", self.mapping("stream-relay").await);
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The metrics since they were last observed.
    pub(super) async fn observe(&self) -> Observed {
        let mut observed = self.signals.take();
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let relay = self.mapping("stream-relay").await;
        let shard = &relay["shards"][0];
        let is_invoked = shard["lastResult"].is_string();
        observed.insert(POLLED[0], relay["enabled"].as_bool().unwrap().then_some(60.0));
        observed.insert(RELAY_AGE, is_invoked.then(|| number(&shard["oldestAgeMs"])));
        let is_failed = shard["lastResult"] != "OK";
        observed.insert(FAILED, is_invoked.then(|| if is_failed { number(&shard["waiting"]) } else { 0.0 }));
        if !is_invoked {
            observed.insert(RELAY_TIME, None);
        }
        let snapshotter = self.mapping("snapshotter").await;
        observed.insert(POLLED[1], snapshotter["enabled"].as_bool().unwrap().then_some(60.0));
        if snapshotter["enabled"] == false {
            observed.insert(SNAPSHOTTER_AGE, None);
        }
        let count = |count: usize| Some(f64::from(u32::try_from(count).unwrap()));
        let discarded = self.suite.get("/_dev/discarded").await.body;
        let discarded: Vec<_> = discarded.as_array().unwrap().iter().map(|one| &one["DDBStreamBatchInfo"]).collect();
        let records: f64 = discarded.iter().map(|batch| number(&batch["batchSize"])).sum();
        if is_invoked {
            observed.insert(DISCARDED, Some(records));
        }
        observed.insert(SENT_TO_QUEUE, count(self.dead_letters().len()));
        let queued = self.suite.stack.bus().queued();
        observed.insert(QUEUED, count(queued.iter().filter(|message| message.queue_url.ends_with("dlq")).count()));
        observed
    }
}
