//! `DescribeEventBus`, and `PutRule`, `PutTargets`, `RemoveTargets` and `DeleteRule`: rules that send events to queues.

use daybook_event_pattern::EventPattern;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::{Bus, event_bus_name};
use crate::messaging::faults::CallFault;

/// The members that these operations use. `Rule` and `Name` are the name of the rule.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RuleRequest {
    #[serde(alias = "Rule")]
    name: String,
    #[serde(default = "default_bus")]
    event_bus_name: String,
    #[serde(default)]
    event_pattern: String,
    #[serde(default)]
    targets: Vec<Target>,
    #[serde(default)]
    ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Target {
    id: String,
    arn: String,
}

fn default_bus() -> String {
    "default".to_owned()
}

pub(crate) fn put_rule(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, event_pattern, .. } = json_protocol::read(body)?;
    let bus_name = event_bus_name(&bus_name);
    let mut state = bus.state();
    if !state.has_event_bus(bus_name) {
        let message = format!("Event bus {bus_name} does not exist.");
        return Err(CallError::bad_request("ResourceNotFoundException", &message));
    }
    let pattern = serde_json::from_str::<Value>(&event_pattern).map_err(|error| error.to_string());
    let pattern = pattern.and_then(|pattern| EventPattern::new(&pattern).map_err(|error| error.to_string()));
    let pattern = pattern.map_err(|reason| {
        let message = format!("Event pattern is not valid. Reason: {reason}");
        CallError::bad_request("InvalidEventPatternException", &message)
    })?;
    state.rules.put(bus_name, &name, pattern);
    let arn = format!("arn:aws:events:us-east-1:000000000000:rule/{bus_name}/{name}");
    Ok(CallResponse::Json(json!({ "RuleArn": arn })))
}

pub(crate) fn put_targets(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, targets, .. } = json_protocol::read(body)?;
    let mut state = bus.state();
    let rule = state.rules.get(event_bus_name(&bus_name), &name).ok_or_else(|| missing(&name, &bus_name))?;
    rule.targets.extend(targets.into_iter().map(|target| (target.id, target.arn)));
    Ok(CallResponse::Json(json!({ "FailedEntryCount": 0, "FailedEntries": [] })))
}

pub(crate) fn remove_targets(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, ids, .. } = json_protocol::read(body)?;
    let mut state = bus.state();
    let rule = state.rules.get(event_bus_name(&bus_name), &name).ok_or_else(|| missing(&name, &bus_name))?;
    rule.targets.retain(|id, _| !ids.contains(id));
    Ok(CallResponse::Json(json!({ "FailedEntryCount": 0, "FailedEntries": [] })))
}

/// Deletes a rule. A rule that does not exist is no error.
pub(crate) fn delete_rule(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, .. } = json_protocol::read(body)?;
    let (mut state, bus_name) = (bus.state(), event_bus_name(&bus_name));
    if state.rules.get(bus_name, &name).is_some_and(|rule| !rule.targets.is_empty()) {
        let message = "Rule can't be deleted since it has targets.";
        return Err(CallError::bad_request("ValidationException", message));
    }
    state.rules.remove(bus_name, &name);
    Ok(CallResponse::Json(json!({})))
}

fn missing(rule: &str, bus: &str) -> CallError {
    let message = format!("Rule {rule} does not exist on EventBus {bus}.");
    CallError::bad_request("ResourceNotFoundException", &message)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DescribeEventBusRequest {
    /// A name or an ARN.
    #[serde(default = "default_bus")]
    name: String,
}

pub(crate) async fn describe_event_bus(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = CallFault::next(&mut bus.state().faults.describe_event_bus);
    fault.delay().await;
    let DescribeEventBusRequest { name } = json_protocol::read(body)?;
    fault.fail_before()?;
    let name = event_bus_name(&name);
    if !bus.state().has_event_bus(name) {
        let message = format!("Event bus {name} does not exist.");
        return Err(CallError::bad_request("ResourceNotFoundException", &message));
    }
    let arn = format!("arn:aws:events:us-east-1:000000000000:event-bus/{name}");
    fault.respond(json!({ "Arn": arn, "Name": name }))
}
