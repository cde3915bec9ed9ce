//! A relay over a local bus, and stream records for it.

use std::time::Duration;

use aws_sdk_eventbridge::config::{Credentials, Region, SharedCredentialsProvider};
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_stream_relay::{BatchResponse, Relay, RelayError, RelaySettings, RetryPolicy, StreamBatch, Waits, clients};
use daybook_test_support::{log, stream_record};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The lines that the relay and its queues logged since this was last called on the thread. The first call only starts the capture.
pub(crate) fn take_log() -> Vec<Value> {
    let mut lines = log::take_all();
    lines.retain(|line| line["target"].as_str().unwrap().starts_with("daybook_"));
    lines
}

/// More time than any test takes.
const TIME: Duration = Duration::from_secs(60);

pub(crate) struct Setup {
    pub(crate) bus: Bus,
    pub(crate) relay: Relay,
    server: Server,
}

/// Short waits.
pub(crate) fn quick() -> RetryPolicy {
    RetryPolicy {
        waits: Waits { first: Duration::from_millis(1), longest: Duration::from_millis(4) },
        margin: Duration::from_millis(10),
        ..RetryPolicy::default()
    }
}

/// A relay with short waits, and a bus and a queue with these faults.
pub(crate) async fn setup(faults: Value) -> Setup {
    setup_with_retries(quick(), faults).await
}

pub(crate) async fn setup_with_retries(retry: RetryPolicy, faults: Value) -> Setup {
    let bus = Bus::with("main", "dlq");
    bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    let server = Server::start(bus.router()).await.unwrap();
    let relay = relay_at(server.url(), retry);
    Setup { bus, relay, server }
}

/// A relay whose services have this URL.
pub(crate) fn relay_at(url: &str, retry: RetryPolicy) -> Relay {
    relay_with(&daybook_function_runtime::aws_config_at(url), retry)
}

/// The configuration that a function in Lambda has with these variables, for services at this URL.
pub(crate) async fn lambda_config(url: &str, variables: &[(&str, &str)]) -> SdkConfig {
    let environment = variables.iter().copied().collect();
    let config = daybook_function_runtime::aws_config_in_lambda(&environment).await.unwrap();
    let credentials = Credentials::new("local", "local", None, None, "tests");
    config
        .into_builder()
        .endpoint_url(url)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .build()
}

pub(crate) fn relay_with(config: &SdkConfig, retry: RetryPolicy) -> Relay {
    let settings = RelaySettings {
        event_bus_name: "main".into(),
        event_source: "daybook".into(),
        dlq_url: "http://localhost/1/dlq".into(),
        retry,
    };
    Relay::new(clients::eventbridge(config), clients::sqs(config), settings)
}

impl Setup {
    /// The relay of a suite with read models, whose queue is `changes`.
    pub(crate) fn with_changes_queue(self) -> Self {
        self.bus.create_work_queue("changes");
        let queue = clients::sqs(&daybook_function_runtime::aws_config_at(self.url()));
        let relay = self.relay.clone().with_changes_queue(queue, "http://localhost/1/changes".to_owned());
        Self { relay, ..self }
    }

    /// The relay of a suite whose reactor has processes: its queue, `reactions`, gets changes too.
    pub(crate) fn with_processes(self) -> Self {
        let queue = clients::sqs(&daybook_function_runtime::aws_config_at(self.url()));
        let this = self.with_reactions_queue();
        let relay = this.relay.clone().with_changes_queue(queue, "http://localhost/1/reactions".to_owned());
        Self { relay, ..this }
    }

    /// The relay of a suite with a reactor, whose queue is `reactions`.
    pub(crate) fn with_reactions_queue(self) -> Self {
        self.bus.create_work_queue("reactions");
        let queue = clients::sqs(&daybook_function_runtime::aws_config_at(self.url()));
        let relay = self.relay.clone().with_reactions_queue(queue, "http://localhost/1/reactions".to_owned());
        Self { relay, ..self }
    }

    /// Relays the records with a deadline that no test reaches.
    pub(crate) async fn relay(&self, records: &[Value]) -> Result<BatchResponse, RelayError> {
        self.relay_within(TIME, records).await
    }

    pub(crate) async fn relay_within(&self, time: Duration, records: &[Value]) -> Result<BatchResponse, RelayError> {
        let batch: StreamBatch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
        self.relay.handle(batch, Instant::now() + time).await
    }

    /// Relays the records and returns the checkpoint.
    pub(crate) async fn checkpoint(&self, records: &[Value]) -> Option<String> {
        self.relay(records).await.unwrap().checkpoint().map(|number| number.as_str().to_owned())
    }

    /// The ids of the messages on the bus, in order of arrival.
    pub(crate) fn delivered(&self) -> Vec<String> {
        self.bus.delivered().iter().map(|entry| message_id(&entry.detail)).collect()
    }

    /// The endpoint of the bus and the queue.
    pub(crate) fn url(&self) -> &str {
        self.server.url()
    }

    /// Replaces the faults.
    pub(crate) fn fail(&self, faults: Value) {
        self.bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    }

    /// The same bus and queue, and a new process of the relay.
    pub(crate) fn new_process(self) -> Self {
        Self { relay: relay_at(self.server.url(), quick()), ..self }
    }

    /// The number of entries of each call.
    pub(crate) fn calls(&self) -> Vec<usize> {
        self.bus.put_events_calls().iter().map(|call| call.entries).collect()
    }

    pub(crate) fn dead_letters(&self) -> Vec<Value> {
        self.bus.dead_letters().iter().map(|dead_letter| serde_json::from_str(&dead_letter.body).unwrap()).collect()
    }
}

/// The stream record of message `seq` of the to-do `id`. Its message id is `<id>-<seq>`.
pub(crate) fn insert(sequence_number: u64, id: &str, seq: u64) -> Value {
    insert_detail(sequence_number, id, seq, &detail(id, seq, ""))
}

pub(crate) fn insert_detail(sequence_number: u64, id: &str, seq: u64, detail: &str) -> Value {
    let image = json!({
        "pk": {"S": format!("AGGREGATE#todo#{id}")}, "sk": {"S": format!("OUTBOX#{seq:012}#0")},
        "messageId": {"S": format!("{id}-{seq}")}, "messageType": {"S": "TodoUpdated"},
        "messageSeq": {"N": seq.to_string()}, "detail": {"S": detail},
        "occurredAt": {"S": "2026-11-21T01:02:03.456Z"}, "seqNum": {"N": seq.to_string()},
        "ttl": {"N": "1800000000"},
    });
    stream_record::insert(sequence_number, image)
}

/// The stream record of new events of the to-do `id`.
pub(crate) fn moved(sequence_number: u64, id: &str) -> Value {
    let image = json!({
        "pk": {"S": format!("AGGREGATE#todo#{id}")}, "sk": {"S": "#METADATA"}, "currentSeqNum": {"N": "7"},
    });
    let mut record = stream_record::insert(sequence_number, image);
    record["eventName"] = "MODIFY".into();
    record
}

/// A detail with whitespace that a JSON printer would not write, so that a reformatted detail would be noticed.
pub(crate) fn detail(id: &str, seq: u64, padding: &str) -> String {
    format!(r#"{{ "metadata": {{"messageId": "{id}-{seq}"}}, "data": {{"amount": 1.0, "text": "{padding}"}} }}"#)
}

pub(crate) fn message_id(detail: &str) -> String {
    let detail: Value = serde_json::from_str(detail).unwrap();
    detail["metadata"]["messageId"].as_str().unwrap().to_owned()
}
