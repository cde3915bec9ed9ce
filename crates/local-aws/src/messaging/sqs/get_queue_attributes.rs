//! `GetQueueAttributes`: the number of messages. Unlike SQS's counts, it is exact.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::messaging::bus::Bus;
use crate::messaging::protocol::{self, CallError, CallResponse};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueAttributesRequest {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

pub(crate) fn get_queue_attributes(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let GetQueueAttributesRequest { queue_url, attribute_names } = protocol::read(body)?;
    bus.state().queues.check(&queue_url)?;
    let (visible, hidden) = bus.state().queues.counts(&queue_url);
    let known = [
        ("ApproximateNumberOfMessages", visible),
        ("ApproximateNumberOfMessagesNotVisible", hidden),
        ("ApproximateNumberOfMessagesDelayed", 0),
    ];
    let is_requested = |name: &str| attribute_names.iter().any(|requested| requested == name || requested == "All");
    let attributes = known.into_iter().filter(|(name, _)| is_requested(name));
    let attributes: Value = attributes.map(|(name, count)| (name, count.to_string())).collect();
    Ok(CallResponse::Json(json!({ "Attributes": attributes })))
}
