//! Examples: each type executes a sample of its commands, so the examples show what the code does.

use daybook_decider::record::timestamp;
use daybook_decider::{Caller, CommandRequest, DecisionInput, Folded, Json, Meta, Model, RecordedEvent};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::sample::{ID, NOW, SETTLED, sample, ulid};
use crate::endpoints::endpoint::{RequestBody, Success};
use crate::endpoints::events_of_aggregate::EventPage;
use crate::endpoints::events_of_type::{FeedEventJson, FeedPage};
use crate::endpoints::get::StateResponse;
use crate::endpoints::list::{AggregatePage, ListedAggregate};
use crate::response::{EventJson, WriteResponse};

/// The examples of a type.
pub(super) struct Examples<'a> {
    model: &'a dyn Model,
    /// The create command.
    create: Value,
    created: Option<ExampleOutcome>,
    update: Option<ExampleWrite>,
    deletion: Option<ExampleWrite>,
    /// One command, after the creation.
    one: Option<ExampleWrite>,
    /// As many different commands as can be executed one after the other.
    several: Option<ExampleWrite>,
}

/// Commands and their outcome.
struct ExampleWrite {
    request: Value,
    outcome: ExampleOutcome,
}

struct ExampleOutcome {
    response: Value,
    events: Vec<RecordedEvent>,
    after: Folded,
}

impl<'a> Examples<'a> {
    pub(super) fn of(model: &'a dyn Model) -> Self {
        let samples = samples(model);
        let names = model.commands();
        let sample = |name: &str| samples.iter().find(|sample| sample["command"] == name).cloned();
        let create = sample(names.create).unwrap_or_default();
        let created = carry_out(model, &model.before_first_event(), std::slice::from_ref(&create));
        let after = |commands: &[Value]| carry_out(model, &created.as_ref()?.after, commands);
        let write =
            |command: Value| Some(ExampleWrite { outcome: after(std::slice::from_ref(&command))?, request: command });

        let is_named =
            |sample: &&Value| [names.update, names.delete].iter().flatten().any(|name| sample["command"] == *name);
        let others = || samples.iter().filter(|sample| sample["command"] != names.create);
        let first = others().filter(|sample| !is_named(sample)).chain(others().filter(is_named));
        let one = first.cloned().find_map(write);
        let mut several = Vec::new();
        for sample in others() {
            several.push(sample.clone());
            if after(&several).is_none() {
                several.pop();
            }
        }
        let several = after(&several).map(|outcome| ExampleWrite { request: several.into(), outcome });
        let update = names.update.and_then(sample).and_then(write);
        let deletion = names.delete.and_then(sample).and_then(write);
        Self { model, create, created, update, deletion, one, several }
    }

    /// The bodies of requests.
    pub(super) fn requests(&self, body: RequestBody) -> Value {
        let request = |write: &Option<ExampleWrite>| write.as_ref().map(|write| write.request.clone());
        match body {
            RequestBody::CreateData => {
                let mut body = self.create["data"].clone();
                body["id"] = ID.into();
                named([("one", Some(body))])
            }
            RequestBody::UpdateData => named([("one", request(&self.update).map(|mut update| update["data"].take()))]),
            RequestBody::Commands => named([
                ("one", request(&self.one)),
                ("several", request(&self.several)),
                ("creation", Some(json!([self.create]))),
            ]),
        }
    }

    /// The responses to writes. A write without a body is the deletion.
    pub(super) fn writes(&self, body: Option<RequestBody>, success: Success) -> Value {
        let created = || self.created.as_ref().map(|created| created.response.clone());
        let response = |write: &Option<ExampleWrite>| write.as_ref().map(|write| write.outcome.response.clone());
        match body {
            Some(RequestBody::CreateData) => named([("one", created())]),
            Some(RequestBody::UpdateData) => named([("one", response(&self.update))]),
            Some(RequestBody::Commands) if success == Success::Created => named([("creation", created())]),
            Some(RequestBody::Commands) => named([("one", response(&self.one)), ("several", response(&self.several))]),
            None => named([("one", response(&self.deletion))]),
        }
    }

    /// The state after the creation.
    pub(super) fn state(&self) -> Value {
        self.of_creation(|ExampleOutcome { after, .. }| {
            let state = self.model.state(after).ok()?;
            json_of(&StateResponse { id: ID, version: after.version(), state: &state })
        })
    }

    /// The events of the creation.
    pub(super) fn events(&self) -> Value {
        self.of_creation(|created| {
            let events = events_json(&created.events);
            json_of(&EventPage { id: ID, events, cursor: created.after.version(), unreadable: Vec::new() })
        })
    }

    pub(super) fn list(&self) -> Value {
        self.of_creation(|created| {
            let created = created.events.first()?;
            json_of(&AggregatePage {
                aggregates: vec![ListedAggregate { id: ID, created_at: timestamp(created.occurred_at) }],
                cursor: created.event_id.to_string(),
                settled_up_to: timestamp(SETTLED),
                unreadable: Vec::new(),
            })
        })
    }

    /// A page of the feed of the event that opens a stream.
    pub(super) fn feed(&self) -> Value {
        self.of_creation(|created| {
            let created = created.events.first()?;
            let event = FeedEventJson {
                aggregate_type: self.model.type_name(),
                aggregate_id: ID,
                event: EventJson::of(created, true),
            };
            json_of(&FeedPage {
                events: vec![event],
                cursor: created.event_id.to_string(),
                settled_up_to: timestamp(SETTLED),
                unreadable: Vec::new(),
            })
        })
    }

    /// The events of the creation, as they are stored.
    pub(super) fn creation(&self) -> &[RecordedEvent] {
        self.created.as_ref().map_or(&[], |created| &created.events)
    }

    fn of_creation(&self, example: impl Fn(&ExampleOutcome) -> Option<Value>) -> Value {
        named([("one", self.created.as_ref().and_then(example))])
    }
}

/// The examples that exist, in the form of the document.
pub(super) fn named<const N: usize>(examples: [(&str, Option<Value>); N]) -> Value {
    let there = examples.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!({"value": value?}))));
    there.collect::<Map<_, _>>().into()
}

fn events_json(events: &[RecordedEvent]) -> Vec<EventJson<'_>> {
    events.iter().map(|event| EventJson::of(event, true)).collect()
}

pub(super) fn json_of(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

/// The outcome of commands; `None` if the rules reject them or no event is appended.
fn carry_out(model: &dyn Model, before: &Folded, commands: &[Value]) -> Option<ExampleOutcome> {
    let request = |command: &Value| {
        Some(CommandRequest {
            command: command["command"].as_str()?.to_owned(),
            data: Json::of(&command["data"]).ok()?,
        })
    };
    let commands: Vec<_> = commands.iter().map(request).collect::<Option<_>>()?;
    // The random half of a ULID: the same at every run, and different before and after the creation.
    let seed = ulid((1 + u128::from(before.version())) << 64);
    let meta = Meta { correlation_id: Some(ulid(0).to_string()), ..Meta::default() };
    let input = DecisionInput { now: NOW, seed, meta, epoch: 1, caller: Caller::anonymous() };
    let decided = model.decide(before, ID, &commands, &input).ok()?;
    if decided.rejection.is_some() || decided.events.is_empty() {
        return None;
    }
    let response = json_of(&WriteResponse {
        id: ID,
        version: decided.after.version(),
        state: Some(&decided.state),
        events: Some(events_json(&decided.events)),
        messages: Some(decided.messages.iter().map(Into::into).collect()),
    })?;
    Some(ExampleOutcome { response, events: decided.events, after: decided.after })
}

/// A sample of each command.
fn samples(model: &dyn Model) -> Vec<Value> {
    let schema = Value::from(model.schemas().command.clone());
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let of = |variant: &Value| {
        let members = &variant["properties"];
        let data = members.get("data").map_or_else(|| json!({}), |data| sample(data, &schema));
        json!({"command": members["command"]["const"], "data": data})
    };
    variants.map(of).collect()
}
