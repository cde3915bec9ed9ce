//! An aggregate type in the document: the schemas of its state, events and messages, and examples. The type executes a sample
//! of each command, so the examples show what the code does.

use std::borrow::Cow;
use std::collections::BTreeSet;

use daybook_decider::{
    Addressed, AggregateKey, Caller, CommandError, CommandRequest, Decided, DecisionInput, Decisions, Folded, Involved,
    Json, Meta, Model, Need, RecordedEvent, Registry, joint, samples,
};
use daybook_table::keys;
use schemars::Schema;
use serde_json::{Value, json};

use super::schemas::{
    ID, ID_CHARACTERS, NOW, Schemas, Variant, json_of, named, one_of_tagged, replace, ulid, upper_camel, variants,
    written_schema,
};
use crate::response::{EventJson, MessageJson, WriteResponse};

pub(crate) struct AggregateType<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) model: &'a dyn Model,
    /// The type's name in the form with which the names of its schemas begin.
    pub(crate) name: String,
    pub(crate) description: Value,
    /// Its commands, each with the schema of its data.
    variants: Vec<Variant>,
    samples: Vec<Value>,
    /// The schema of a command, and those of the state, an event and a message.
    pub(crate) command: Value,
    pub(crate) state: Value,
    pub(crate) event: Value,
    pub(crate) message: Value,
    pub(crate) created: Option<ExampleOutcome>,
}

pub(crate) struct ExampleWrite {
    pub(crate) request: Value,
    pub(crate) outcome: ExampleOutcome,
}

pub(crate) struct ExampleOutcome {
    pub(crate) response: Value,
    pub(crate) events: Vec<RecordedEvent>,
    pub(crate) after: Folded,
}

impl<'a> AggregateType<'a> {
    pub(crate) fn new(registry: &'a Registry, model: &'a dyn Model, schemas: &mut Schemas) -> Self {
        let name = upper_camel(model.type_name());
        let raw = model.schemas().clone();
        let mut command = schemas.adopt(&name, raw.command.into());
        let resolved = |variant: Variant| Variant { data: schemas.resolve(&variant.data), ..variant };
        let variants = variants(&command, "command").into_iter().map(resolved).collect();
        for variant in command["oneOf"].as_array_mut().into_iter().flatten() {
            let_empty_data_be_left_out(variant, schemas);
        }
        let state = schemas.adopt(&name, raw.state.into());
        let description = state["description"].clone();
        let (mut state, command) = (schemas.add(&name, state), schemas.add(&format!("{name}Command"), command));
        if let Some(part) = raw.part {
            let part = schemas.adopt(&name, part.into());
            state = json!({"anyOf": [state, schemas.add(&format!("{name}Part"), part)]});
        }
        let event = event_schema(&name, model, raw.event, schemas);
        let message = message_schema(&name, raw.message, schemas);
        let samples = samples(model);
        let create = samples.iter().find(|sample| sample["command"] == model.commands().create);
        let created = create.and_then(|create| carry_out(registry, model, &model.before_first_event(), &[create]));
        Self { registry, model, name, description, variants, samples, command, state, event, message, created }
    }

    /// The description of a command; `None` if there is no such command.
    pub(crate) fn description_of(&self, command: &str) -> Option<&str> {
        self.variants.iter().find(|variant| variant.name == command).map(|variant| variant.description.as_str())
    }

    /// The schemas of its commands in a request to several aggregates.
    pub(crate) fn addressed_commands(&self, schemas: &mut Schemas) -> Vec<Value> {
        let name = self.model.type_name();
        let aggregate = json!({
            "type": "string",
            "description": "The aggregate.",
            "pattern": format!("^{name}/{ID_CHARACTERS}$"),
            "not": {"enum": [format!("{name}/."), format!("{name}/..")]},
        });
        let claim = json!({
            "type": "string",
            "description": "Instead of `aggregate`: a claim of the aggregate, `name:value`.",
            "pattern": "^[a-z0-9-]{1,128}:.",
        });
        let if_match = json!({
            "type": "integer",
            "description": "The version that the aggregate must have before the request; 0 if it must not exist.",
            "minimum": 0,
            "maximum": keys::MAX_SEQ_NUM,
        });
        let aggregate = schemas.add(&format!("{}Aggregate", self.name), aggregate);
        let (claim, if_match) = (schemas.add("AggregateClaim", claim), schemas.add("ExpectedVersion", if_match));
        let command = |variant: &Variant| {
            let mut required = vec!["command"];
            required.extend(variant.data["required"].as_array().filter(|fields| !fields.is_empty()).map(|_| "data"));
            json!({
                "type": "object",
                "description": variant.description,
                "properties": {
                    "aggregate": aggregate,
                    "claim": claim,
                    "command": {"const": variant.name, "type": "string"},
                    "data": variant.data,
                    "ifMatch": if_match,
                },
                "required": required,
                "oneOf": [{"required": ["aggregate"]}, {"required": ["claim"]}],
                "additionalProperties": false,
            })
        };
        self.variants.iter().map(command).collect()
    }

    pub(crate) fn data_of(&self, command: &str) -> Value {
        let variant = self.variants.iter().find(|variant| variant.name == command);
        variant.map_or_else(|| json!({"type": "object"}), |variant| variant.data.clone())
    }

    pub(crate) fn sample_of(&self, command: &str) -> Value {
        self.samples.iter().find(|sample| sample["command"] == command).cloned().unwrap_or_default()
    }

    /// A command, after the creation.
    pub(crate) fn write(&self, command: &str) -> Option<ExampleWrite> {
        let request = self.sample_of(command);
        Some(ExampleWrite { outcome: self.after_creation(&[&request])?, request })
    }

    /// One command after the creation, preferably one without an endpoint of its own.
    pub(crate) fn one(&self) -> Option<ExampleWrite> {
        let names = self.model.commands();
        let has_endpoint =
            |sample: &&&Value| [names.update, names.delete].iter().flatten().any(|name| sample["command"] == **name);
        let others: Vec<_> = self.others().collect();
        let mut first = others.iter().filter(|sample| !has_endpoint(sample)).chain(others.iter().filter(has_endpoint));
        first.find_map(|sample| self.write(sample["command"].as_str()?))
    }

    /// As many different commands after the creation as can be executed one after the other.
    pub(crate) fn several(&self) -> Option<ExampleWrite> {
        let mut several = Vec::new();
        for sample in self.others() {
            several.push(sample);
            if self.after_creation(&several).is_none() {
                several.pop();
            }
        }
        Some(ExampleWrite { outcome: self.after_creation(&several)?, request: json!(several) })
    }

    /// An example that the creation leads to, in the form of the document.
    pub(crate) fn of_creation(&self, example: impl Fn(&ExampleOutcome) -> Option<Value>) -> Value {
        named([("one", self.created.as_ref().and_then(example))])
    }

    fn others(&self) -> impl Iterator<Item = &Value> {
        self.samples.iter().filter(|sample| sample["command"] != self.model.commands().create)
    }

    fn after_creation(&self, commands: &[&Value]) -> Option<ExampleOutcome> {
        carry_out(self.registry, self.model, &self.created.as_ref()?.after, commands)
    }
}

pub(crate) fn events_json(events: &[RecordedEvent]) -> Vec<EventJson<'_>> {
    events.iter().map(|event| EventJson::of(event, true)).collect()
}

/// What the type decides on commands of the form of [`samples`], from a caller without a name, or from another aggregate with a
/// request of `sent_by`; `None` if they cannot be decided.
pub fn execute(
    registry: &Registry,
    model: &dyn Model,
    before: &Folded,
    commands: &[&Value],
    sent_by: Option<&Caller>,
) -> Option<Decided> {
    let commands = commands.iter().map(|command| command_request(command)).collect::<Option<Vec<_>>>()?;
    let key = AggregateKey::new(model.type_name(), ID);
    let request = Addressed::new(&key, &commands);
    Some(decide(registry, before, &[request], &mut Involved::default(), sent_by)?.own)
}

pub(crate) fn command_request(sample: &Value) -> Option<CommandRequest> {
    Some(CommandRequest { command: sample["command"].as_str()?.to_owned(), data: Json::of(&sample["data"]).ok()? })
}

/// Decides the commands. The other aggregates that the decision involves are as the samples of their create commands leave them.
pub(crate) fn decide(
    registry: &Registry,
    before: &Folded,
    requests: &[Addressed<'_>],
    involved: &mut Involved,
    sent_by: Option<&Caller>,
) -> Option<Decisions> {
    loop {
        // The random half of a ULID: the same at every run, and different for each version.
        let seed = ulid((1 + u128::from(before.version())) << 64);
        let meta = Meta { correlation_id: Some(ulid(0).to_string()), ..Meta::default() };
        let input = DecisionInput::new(NOW, seed, meta, sent_by.cloned().unwrap_or_default(), 1);
        let input = DecisionInput { involved: involved.clone(), is_sent: sent_by.is_some(), ..input };
        let needs = match joint::decide(registry, before, requests, &input) {
            Err(error) => match (error.error, error.aggregate) {
                (CommandError::Needs(needs), _) => needs,
                // The decision creates it.
                (CommandError::Exists { .. }, Some(key)) if involved.aggregates.get(&*key)?.version() > 0 => {
                    let before = registry.get(&key.aggregate_type)?.before_first_event();
                    involved.aggregates.insert(*key, before);
                    continue;
                }
                _ => return None,
            },
            decided => return decided.ok(),
        };
        for need in needs {
            match need {
                Need::Holder(claim) => drop(involved.holders.insert(claim, None)),
                Need::Aggregate(key) => {
                    let model = registry.get(&key.aggregate_type)?;
                    // It does not exist for those that its own creation involves.
                    involved.aggregates.insert(key.clone(), model.before_first_event());
                    let is_create = |sample: &Value| sample["command"] == model.commands().create;
                    let create = samples(model).into_iter().find(is_create);
                    let create = [command_request(&create?)?];
                    let request = Addressed::new(&key, &create);
                    let created = decide(registry, &model.before_first_event(), &[request], involved, sent_by);
                    if let Some(created) = created {
                        involved.aggregates.insert(key, created.own.after);
                    }
                }
            }
        }
    }
}

/// The outcome of commands; `None` if the rules reject them or no event is appended.
fn carry_out(registry: &Registry, model: &dyn Model, before: &Folded, commands: &[&Value]) -> Option<ExampleOutcome> {
    let decided = execute(registry, model, before, commands, None)?;
    if decided.rejection.is_some() || decided.events.is_empty() {
        return None;
    }
    let response = json_of(&write_json(&decided))?;
    Some(ExampleOutcome { response, events: decided.events, after: decided.after })
}

pub(crate) fn write_json(decided: &Decided) -> WriteResponse<'_> {
    WriteResponse {
        id: ID,
        version: decided.after.version(),
        state: Some(Cow::Borrowed(&decided.state)),
        events: Some(events_json(&decided.events)),
        messages: Some(decided.messages.iter().map(Into::into).collect()),
    }
}

/// Adds the events in their stored form: one schema for each, and one for any of them.
fn event_schema(type_name: &str, model: &dyn Model, raw: Schema, schemas: &mut Schemas) -> Value {
    let schema = schemas.adopt(type_name, raw.into());
    let envelope = schemas.adopt("", written_schema::<EventJson<'_>>());
    let described = |name: &str, description: &str, newest: u32| {
        let mut event = envelope.clone();
        event["description"] = description.into();
        event["properties"]["eventType"]["const"] = name.into();
        event["properties"]["eventVersion"] = versions(newest);
        event
    };
    let mut each = Vec::new();
    for variant in variants(&schema, "type") {
        let known = model.events().iter().find(|event| event.name == variant.name);
        let newest = known.map_or(1, |event| event.readable);
        let mut event = described(&variant.name, &variant.description, newest);
        let data = &mut event["properties"]["data"];
        replace(data, &variant.data);
        if newest > 1 {
            // Events are returned as they were stored, so an event may have the form of another version.
            *data = json!({"anyOf": [variant.data, {"description": "The form of another version."}]});
        }
        each.push((variant.name.clone(), schemas.add(&variant.name, event)));
    }
    let written: BTreeSet<_> = each.iter().map(|(name, _)| name.clone()).collect();
    for (name, newest) in model.stored_events().into_iter().filter(|(name, _)| !written.contains(*name)) {
        let event = described(name, "This release does not write this event; streams may contain it.", newest);
        each.push((name.to_owned(), schemas.add(name, event)));
    }
    schemas.add(&format!("{type_name}Event"), one_of_tagged("eventType", &each))
}

/// Adds the messages as writes return them: one schema for each, and one for any of them.
fn message_schema(type_name: &str, raw: Schema, schemas: &mut Schemas) -> Value {
    let schema = schemas.adopt(type_name, raw.into());
    let envelope = schemas.adopt("", written_schema::<MessageJson<'_>>());
    let mut each = Vec::new();
    for variant in variants(&schema, "type") {
        let mut message = envelope.clone();
        message["description"] = variant.description.into();
        message["properties"]["messageType"]["const"] = variant.name.clone().into();
        replace(&mut message["properties"]["data"], &variant.data);
        let name = format!("{}{}Message", variant.name[..1].to_uppercase(), &variant.name[1..]);
        each.push((variant.name, schemas.add(&name, message)));
    }
    schemas.add(&format!("{type_name}Message"), one_of_tagged("messageType", &each))
}

/// Makes `data` of a command optional if `{}` is valid.
fn let_empty_data_be_left_out(variant: &mut Value, schemas: &Schemas) {
    let data = schemas.resolve(&variant["properties"]["data"]);
    let needed = data["required"].as_array().is_some_and(|fields| !fields.is_empty());
    if let Some(required) = variant["required"].as_array_mut().filter(|_| !needed) {
        required.retain(|name| name != "data");
    }
}

/// The versions of an event that streams may contain.
fn versions(newest: u32) -> Value {
    match newest {
        1 => json!({"type": "integer", "const": 1}),
        _ => json!({"type": "integer", "minimum": 1, "maximum": newest}),
    }
}
