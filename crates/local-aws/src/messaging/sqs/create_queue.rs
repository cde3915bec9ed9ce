//! `CreateQueue` and `DeleteQueue`. Attributes, such as a policy, are accepted and have no effect.

use serde::Deserialize;
use serde_json::json;

use crate::messaging::bus::Bus;
use crate::messaging::protocol::{self, CallError, CallResponse};

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
    let CreateQueueRequest { queue_name } = protocol::read(body)?;
    bus.state().queues.create(&queue_name);
    Ok(CallResponse::Json(json!({ "QueueUrl": format!("http://localhost/000000000000/{queue_name}") })))
}

pub(crate) fn delete_queue(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let DeleteQueueRequest { queue_url } = protocol::read(body)?;
    let mut state = bus.state();
    state.queues.check(&queue_url)?;
    state.queues.remove(&queue_url);
    Ok(CallResponse::Json(json!({})))
}
