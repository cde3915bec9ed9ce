//! `DescribeEventBus`, and `PutRule`, `PutTargets`, `RemoveTargets` and `DeleteRule`: rules that send events to queues. Events on
//! their way to the queues of the rules that they match.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_event_pattern::EventPattern;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::{Bus, Delivered, EventRule, State, event_bus_name};
use crate::messaging::faults::DeliveryFault;
use crate::messaging::sqs::queues::{QueueMessage, TargetOutcome, dead_letter_queue_of, name_of};
use crate::state::DataFileError;

/// How often an event is sent to a target before it goes to the dead-letter queue. EventBridge's default is 185 times
/// within 24 hours.
const ATTEMPTS: u32 = 3;

/// The pause after the first failed attempt; each further pause is longer by the same time.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTarget<'a> {
    /// The name of the queue. Its dead-letter queue has the same name with `-dlq`.
    pub queue: &'a str,
    pub max_receives: u32,
}

impl Bus {
    /// Creates a rule of an event bus whose target is a queue, and the queue with its dead-letter queue unless they
    /// exist.
    pub fn create_rule(&self, event_bus: &str, name: &str, pattern: EventPattern, target: &QueueTarget<'_>) {
        let dead_letter_queue = dead_letter_queue_of(target.queue);
        self.create_work_queue(target.queue);
        self.create_work_queue(&dead_letter_queue);
        let mut state = self.state();
        state.queues.set_redrive(target.queue, target.max_receives, &arn(&dead_letter_queue));
        state.put_rule(event_bus, name, pattern).targets.insert("queue".to_owned(), arn(target.queue));
    }
}

fn key(bus: &str, name: &str) -> (String, String) {
    (event_bus_name(bus).to_owned(), name.to_owned())
}

fn arn(queue: &str) -> String {
    format!("arn:aws:sqs:us-east-1:000000000000:{queue}")
}

impl State {
    /// Creates a rule, or replaces its pattern.
    fn put_rule(&mut self, bus: &str, name: &str, pattern: EventPattern) -> &mut EventRule {
        let new = || EventRule { pattern: pattern.clone(), targets: BTreeMap::new() };
        let rule = self.rules.entry(key(bus, name)).or_insert_with(new);
        rule.pattern = pattern;
        rule
    }

    fn rule(&mut self, bus: &str, name: &str) -> Result<&mut EventRule, CallError> {
        self.rules.get_mut(&key(bus, name)).ok_or_else(|| {
            let message = format!("Rule {name} does not exist on EventBus {bus}.");
            CallError::bad_request("ResourceNotFoundException", &message)
        })
    }

    pub(crate) fn send_to_targets(&mut self, entry: &Delivered) -> Result<(), DataFileError> {
        let bus = event_bus_name(&entry.event_bus_name);
        let event = json!({
            "version": "0", "id": entry.event_id, "detail-type": entry.detail_type, "source": entry.source,
            "account": "000000000000", "time": entry.time, "region": "us-east-1", "resources": entry.resources,
            "detail": serde_json::from_str::<Value>(&entry.detail).unwrap_or_default(),
        });
        let body = event.to_string();
        let of_bus = self.rules.iter().filter(|((of, _), _)| of == bus);
        let matching = of_bus.filter(|(_, rule)| rule.pattern.matches(&event));
        let queues: Vec<_> = matching.flat_map(|(_, rule)| rule.targets.values().cloned()).collect();
        queues.into_iter().try_for_each(|queue| self.send_to_target(queue, &entry.event_id, &body))
    }

    /// Sends an event to one queue. Failed attempts delay the message by the time that they take.
    fn send_to_target(&mut self, mut queue_url: String, event_id: &str, body: &str) -> Result<(), DataFileError> {
        let (mut delay, mut copies, mut is_dead_letter) = (Duration::ZERO, 1, false);
        let queue = name_of(&queue_url).to_owned();
        for attempt in 1..=ATTEMPTS {
            let Some(fault) = DeliveryFault::next(&mut self.faults.deliveries, body) else { break };
            delay += Duration::from_millis(fault.delay_ms);
            copies += u32::from(fault.duplicate);
            if !fault.fail {
                break;
            }
            if attempt == ATTEMPTS {
                queue_url = dead_letter_queue_of(&queue_url);
                is_dead_letter = true;
            } else {
                delay += PAUSE * attempt;
            }
        }
        for _ in 0..copies {
            let (message_id, attributes) = (self.new_id(), BTreeMap::new());
            let now = self.queues.clock.milliseconds();
            self.queues.records.add(event_id, &message_id, &queue, now);
            if is_dead_letter {
                self.queues.records.end(&message_id, TargetOutcome::DeadLettered, now);
            }
            let message = QueueMessage { message_id, queue_url: queue_url.clone(), body: body.to_owned(), attributes };
            self.send(message, delay)?;
        }
        Ok(())
    }
}

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
    state.put_rule(bus_name, &name, pattern);
    let arn = format!("arn:aws:events:us-east-1:000000000000:rule/{bus_name}/{name}");
    Ok(CallResponse::Json(json!({ "RuleArn": arn })))
}

pub(crate) fn put_targets(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, targets, .. } = json_protocol::read(body)?;
    let mut state = bus.state();
    state.rule(&bus_name, &name)?.targets.extend(targets.into_iter().map(|target| (target.id, target.arn)));
    Ok(CallResponse::Json(json!({ "FailedEntryCount": 0, "FailedEntries": [] })))
}

pub(crate) fn remove_targets(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, ids, .. } = json_protocol::read(body)?;
    let mut state = bus.state();
    state.rule(&bus_name, &name)?.targets.retain(|id, _| !ids.contains(id));
    Ok(CallResponse::Json(json!({ "FailedEntryCount": 0, "FailedEntries": [] })))
}

/// Deletes a rule. A rule that does not exist is no error.
pub(crate) fn delete_rule(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let RuleRequest { name, event_bus_name: bus_name, .. } = json_protocol::read(body)?;
    let mut state = bus.state();
    if state.rule(&bus_name, &name).is_ok_and(|rule| !rule.targets.is_empty()) {
        let message = "Rule can't be deleted since it has targets.";
        return Err(CallError::bad_request("ValidationException", message));
    }
    state.rules.remove(&key(&bus_name, &name));
    Ok(CallResponse::Json(json!({})))
}

pub(crate) async fn describe_event_bus(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.describe_event_bus).await?;
    let request: Value = json_protocol::read(body)?;
    let name = event_bus_name(request["Name"].as_str().unwrap_or("default"));
    if !bus.state().has_event_bus(name) {
        let message = format!("Event bus {name} does not exist.");
        return Err(CallError::bad_request("ResourceNotFoundException", &message));
    }
    let arn = format!("arn:aws:events:us-east-1:000000000000:event-bus/{name}");
    fault.respond(json!({ "Arn": arn, "Name": name }))
}
