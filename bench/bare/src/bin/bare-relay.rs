//! The bare relay: the runtime, and calls with a prepared request, one for each ten records. It reads nothing of the records.
//!
//! Its input is a PutEvents request of the suite's relay, in the file that `BARE_ENTRIES` names.

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::primitives::DateTime;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Batch {
    #[serde(rename = "Records")]
    records: Vec<IgnoredAny>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::new(&bare::aws_config().await);
    let request: Value = serde_json::from_slice(&std::fs::read(std::env::var("BARE_ENTRIES")?)?)?;
    let entries: Vec<_> = request["Entries"].as_array().ok_or("Entries is missing")?.iter().map(entry).collect();
    let handle = async |event: LambdaEvent<Batch>| {
        for _ in event.payload.records.chunks(entries.len()) {
            client.put_events().set_entries(Some(entries.clone())).send().await?;
        }
        Ok::<_, Error>(json!({"batchItemFailures": []}))
    };
    lambda_runtime::run(service_fn(handle)).await
}

fn entry(entry: &Value) -> PutEventsRequestEntry {
    let text = |name: &str| entry[name].as_str().map(str::to_owned);
    let resources = entry["Resources"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    PutEventsRequestEntry::builder()
        .set_time(entry["Time"].as_f64().map(DateTime::from_secs_f64))
        .set_source(text("Source"))
        .set_resources(Some(resources.collect()))
        .set_detail_type(text("DetailType"))
        .set_detail(text("Detail"))
        .set_event_bus_name(text("EventBusName"))
        .set_trace_header(text("TraceHeader"))
        .build()
}
