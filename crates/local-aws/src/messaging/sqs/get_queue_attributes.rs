//! `GetQueueAttributes`: the ARN and the number of messages. Unlike SQS's counts, it is exact.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::messaging::bus::Bus;
use crate::messaging::protocol::{self, CallError, CallResponse};
use crate::messaging::sqs::queues::name_of;

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
