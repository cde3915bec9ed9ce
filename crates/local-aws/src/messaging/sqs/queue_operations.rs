//! `CreateQueue`, `DeleteQueue` and `GetQueueAttributes`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::messaging::sqs::queues::name_of;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueAttributesRequest {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

pub(crate) fn get_queue_attributes(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let GetQueueAttributesRequest { queue_url, attribute_names } = json_protocol::read(body)?;
    bus.state().queues.check(&queue_url)?;
    let (visible, hidden) = bus.state().queues.counts(&queue_url);
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{}", name_of(&queue_url));
    let known = [
        ("QueueArn", arn),
        ("ApproximateNumberOfMessages", visible.to_string()),
        ("ApproximateNumberOfMessagesNotVisible", hidden.to_string()),
        ("ApproximateNumberOfMessagesDelayed", "0".to_owned()),
    ];
    let is_requested = |name: &str| attribute_names.iter().any(|requested| requested == name || requested == "All");
    let attributes = known.into_iter().filter(|(name, _)| is_requested(name));
    let attributes: Value = attributes.collect();
    Ok(CallResponse::Json(json!({ "Attributes": attributes })))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateQueueRequest {
    queue_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteQueueRequest {
    queue_url: String,
}

pub(crate) fn create_queue(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let CreateQueueRequest { queue_name } = json_protocol::read(body)?;
    bus.state().queues.create(&queue_name);
    Ok(CallResponse::Json(json!({ "QueueUrl": format!("http://localhost/000000000000/{queue_name}") })))
}

pub(crate) fn delete_queue(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let DeleteQueueRequest { queue_url } = json_protocol::read(body)?;
    let mut state = bus.state();
    state.queues.check(&queue_url)?;
    state.queues.remove(&queue_url);
    Ok(CallResponse::Json(json!({})))
}
