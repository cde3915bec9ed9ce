//! `DescribeEventBus`: whether an event bus exists.

use serde::Deserialize;
use serde_json::json;

use crate::messaging::bus::{Bus, event_bus_name};
use crate::messaging::faults::CallFault;
use crate::messaging::protocol::{self, CallError, CallResponse};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeEventBusRequest {
    /// A name or an ARN.
    #[serde(default = "default_bus")]
    name: String,
}

fn default_bus() -> String {
    "default".to_owned()
}

pub(crate) async fn describe_event_bus(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = CallFault::next(&mut bus.state().faults.describe_event_bus);
    fault.delay().await;
    let DescribeEventBusRequest { name } = protocol::read(body)?;
    fault.fail_before()?;
    let name = event_bus_name(&name);
    if !bus.state().has_event_bus(name) {
        let message = format!("Event bus {name} does not exist.");
        return Err(CallError::bad_request("ResourceNotFoundException", &message));
    }
    let arn = format!("arn:aws:events:us-east-1:000000000000:event-bus/{name}");
    fault.respond(json!({ "Arn": arn, "Name": name }))
}
