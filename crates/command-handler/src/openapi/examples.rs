//! Examples: each type carries out a sample of its commands, so what they show is what the code does.

use axum::http::StatusCode;
use daybook_decider::record::timestamp;
use daybook_decider::{CommandRequest, DecisionInput, Folded, Json, Meta, Model, RecordedEvent, Registry};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use ulid::Ulid;

use super::calls::Verb;
use crate::answer::{StateAnswer, WriteAnswer};
use crate::feeds::{AggregateEntry, Aggregates, Events, Feed, FeedEntry};
use crate::problem::Problem;

/// The id in all examples.
pub(super) const ID: &str = "123";

/// 2026-01-01T00:00:00Z: when all examples happen, in seconds since 1970.
const NOW: i64 = 1_767_225_600;

/// The examples of a type.
pub(super) struct Examples<'a> {
    model: &'a dyn Model,
    create: Value,
    created: Option<Done>,
    update: Option<(Value, Done)>,
    delete: Option<Done>,
    /// One command, after the creation.
    one: Option<(Value, Done)>,
    /// As many different ones as follow on each other.
    several: Option<(Value, Done)>,
}

/// What commands came to.
struct Done {
    answer: Value,
    events: Vec<RecordedEvent>,
    after: Folded,
}

impl<'a> Examples<'a> {
    pub(super) fn of(model: &'a dyn Model) -> Self {
        let samples = samples(model);
        let verbs = model.commands();
        let sample = |name: &str| samples.iter().find(|sample| sample["command"] == name).cloned();
        let create = sample(verbs.create).unwrap_or_default();
        let created = carry_out(model, &model.before_first_event(), std::slice::from_ref(&create));
        let after = |commands: &[Value]| carry_out(model, &created.as_ref()?.after, commands);
        let data = |sample: Value| sample["data"].clone();
        let update = verbs.update.and_then(sample).and_then(|sample| Some((data(sample.clone()), after(&[sample])?)));
        let delete = verbs.delete.and_then(sample).and_then(|sample| after(&[sample]));

        let is_verb =
            |sample: &&Value| [verbs.update, verbs.delete].into_iter().flatten().any(|verb| sample["command"] == verb);
        let others = || samples.iter().filter(|sample| sample["command"] != verbs.create);
        let first = others().filter(|sample| !is_verb(sample)).chain(others().filter(is_verb));
        let one = first.cloned().find_map(|sample| Some((sample.clone(), after(&[sample])?)));
        let mut several = Vec::new();
        for sample in others() {
            several.push(sample.clone());
            if after(&several).is_none() {
                several.pop();
            }
        }
        let several = after(&several).map(|done| (several.into(), done));
        Self { model, create, created, update, delete, one, several }
    }

    /// Request bodies.
    pub(super) fn requests(&self, verb: Verb) -> Value {
        match verb {
            Verb::Create => {
                let mut body = self.create["data"].clone();
                body["id"] = ID.into();
                named([("one", Some(body))])
            }
            Verb::Update => named([("one", self.update.as_ref().map(|(body, _)| body.clone()))]),
            Verb::Command => named([
                ("one", self.one.as_ref().map(|(body, _)| body.clone())),
                ("several", self.several.as_ref().map(|(body, _)| body.clone())),
                ("creation", Some(json!([self.create]))),
            ]),
            Verb::List | Verb::Get | Verb::Delete | Verb::Events | Verb::Feed | Verb::Describe => json!({}),
        }
    }

    /// Answers.
    pub(super) fn answers(&self, verb: Verb, status: StatusCode) -> Value {
        let created = || self.created.as_ref().map(|done| done.answer.clone());
        let answer = |done: &Option<(Value, Done)>| done.as_ref().map(|(_, done)| done.answer.clone());
        match verb {
            Verb::Create => named([("one", created())]),
            Verb::Command if status == StatusCode::CREATED => named([("creation", created())]),
            Verb::Command => named([("one", answer(&self.one)), ("several", answer(&self.several))]),
            Verb::Update => named([("one", answer(&self.update))]),
            Verb::Delete => named([("one", self.delete.as_ref().map(|done| done.answer.clone()))]),
            Verb::Get => named([("one", self.state())]),
            Verb::Events => named([("one", self.events())]),
            Verb::List => named([("one", self.list())]),
            Verb::Feed | Verb::Describe => json!({}),
        }
    }

    fn state(&self) -> Option<Value> {
        let after = &self.created.as_ref()?.after;
        let state = self.model.state(after).ok()?;
        json_of(&StateAnswer { id: ID, version: after.version(), state: &state })
    }

    fn events(&self) -> Option<Value> {
        json_of(&Events { id: ID, events: self.created.as_ref()?.events.iter().map(Into::into).collect() })
    }

    fn list(&self) -> Option<Value> {
        let first = self.created.as_ref()?.events.first()?;
        let entry = AggregateEntry { id: ID, created_at: timestamp(first.occurred_at) };
        json_of(&Aggregates { aggregates: vec![entry] })
    }

    /// A page of the feed of the event that opens a stream.
    pub(super) fn feed(&self) -> Value {
        let entry = |event| FeedEntry { aggregate_type: self.model.type_name(), aggregate_id: ID, event };
        let events = self.created.iter().flat_map(|done| done.events.first());
        json_of(&Feed { events: events.map(|event| entry(event.into())).collect() }).unwrap_or_default()
    }
}

/// The examples that there are, as the document has them.
fn named<const N: usize>(examples: [(&str, Option<Value>); N]) -> Value {
    let there = examples.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!({"value": value?}))));
    there.collect::<Map<_, _>>().into()
}

fn json_of(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}

/// A ULID as the clock of the examples makes it: the same at every run.
pub(super) fn ulid(random: u128) -> String {
    Ulid::from_parts(now().1, random).to_string()
}

/// The time of all examples, and in milliseconds since 1970.
fn now() -> (Timestamp, u64) {
    let now = Timestamp::from_second(NOW).unwrap_or_default();
    (now, u64::try_from(now.as_millisecond()).unwrap_or_default())
}

/// What is answered to a command that no type has.
pub(super) fn unknown_command(registry: &Registry) -> Option<Problem> {
    turned_away(registry.iter().last()?, "DoNothing", &json!({}))
}

/// What is answered to a creation with a field that there is not.
pub(super) fn invalid_command(registry: &Registry) -> Option<Problem> {
    let model = registry.iter().last()?;
    turned_away(model, model.commands().create, &json!({"colour": "red"}))
}

/// What is answered to a command that does not reach the rules.
fn turned_away(model: &dyn Model, command: &str, data: &Value) -> Option<Problem> {
    let commands = [CommandRequest { command: command.to_owned(), data: Json::of(data).ok()? }];
    let circumstances = DecisionInput { now: now().0, seed: Ulid::nil(), meta: Meta::default() };
    let error = model.decide(&model.before_first_event(), ID, &commands, &circumstances).err()?;
    Some(Problem::of_command(error, 0))
}

/// What the commands come to; none where the rules refuse them or nothing happens.
fn carry_out(model: &dyn Model, before: &Folded, commands: &[Value]) -> Option<Done> {
    let request = |command: &Value| {
        Some(CommandRequest {
            command: command["command"].as_str()?.to_owned(),
            data: Json::of(&command["data"]).ok()?,
        })
    };
    let commands: Vec<_> = commands.iter().map(request).collect::<Option<_>>()?;
    let (now, millisecond) = now();
    // The random half of a ULID: the same at every run, and different before and after the creation.
    let seed = Ulid::from_parts(millisecond, (1 + u128::from(before.version())) << 64);
    let meta = Meta { correlation_id: Some(ulid(0)), ..Meta::default() };
    let decided = model.decide(before, ID, &commands, &DecisionInput { now, seed, meta }).ok()?;
    if decided.rejection.is_some() || decided.events.is_empty() {
        return None;
    }
    let state = model.state(&decided.after).ok()?;
    let answer = json_of(&WriteAnswer {
        id: ID,
        version: decided.after.version(),
        state: Some(&state),
        events: Some(decided.events.iter().map(Into::into).collect()),
        messages: Some(decided.messages.iter().map(Into::into).collect()),
    })?;
    Some(Done { answer, events: decided.events, after: decided.after })
}

/// A sample of each command.
fn samples(model: &dyn Model) -> Vec<Value> {
    let schema = Value::from(model.schemas().command);
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let of = |variant: &Value| {
        let members = &variant["properties"];
        let data = members.get("data").map_or_else(|| json!({}), |data| sample(data, &schema));
        json!({"command": members["command"]["const"], "data": data})
    };
    variants.map(of).collect()
}

/// A value that fits a schema: the example that it has, or the simplest.
fn sample(schema: &Value, root: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#'));
        return target.map(|target| sample(target, root)).unwrap_or_default();
    }
    for given in [&schema["examples"][0], &schema["const"], &schema["enum"][0]] {
        if !given.is_null() {
            return given.clone();
        }
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if schema[choice][0].is_object() {
            return sample(&schema[choice][0], root);
        }
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let members = required.map(|name| (name.to_owned(), sample(&schema["properties"][name], root)));
            members.collect::<Map<_, _>>().into()
        }
        Some("array") => json!([sample(&schema["items"], root)]),
        Some("string") => json!("text"),
        Some("integer" | "number") => json!(schema["minimum"].as_i64().unwrap_or_default().max(1)),
        Some("boolean") => json!(true),
        _ => Value::Null,
    }
}
