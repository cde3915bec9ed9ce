//! Events as they were once stored, in `golden/<type>.json`: what is in the table must stay readable, and a stored form
//! cannot change without a new version.
//!
//! An entry is an event's name, its version, the shape that the version has, and an example. To change a stored form,
//! raise the version in `EVENTS`, write the upcast, and add an entry; the entries that are there stay as they are. An
//! aggregate that has never been deployed can do without a file.

use std::fs;
use std::path::PathBuf;

use decider::{Folded, Json, Meta, Model, RecordedEvent, UnreadableEvent};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use ulid::Ulid;

use crate::shape;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    name: String,
    version: u32,
    shape: Value,
    data: Value,
}

fn file(model: &dyn Model) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{}.json", model.type_name()))
}

fn golden(model: &dyn Model) -> Vec<Golden> {
    let path = file(model);
    if !path.exists() {
        return Vec::new();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn fold(model: &dyn Model, events: &[Golden]) -> Result<Folded, UnreadableEvent> {
    let events: Vec<_> = (1..)
        .zip(events)
        .map(|(seq_num, event)| RecordedEvent {
            seq_num,
            event_id: Ulid::from_parts(0, seq_num.into()),
            event_type: event.name.clone(),
            event_version: event.version,
            data: Json::of(&event.data).unwrap(),
            meta: Meta::default(),
            occurred_at: Timestamp::UNIX_EPOCH,
            message_seq: 0,
        })
        .collect();
    model.fold(model.before_first_event(), &events)
}

/// The shape of each event's data as today's code writes it, by the event's name.
fn shapes(model: &dyn Model) -> Vec<(String, Value)> {
    let schema = Value::from(model.schemas().event);
    let variants = schema["oneOf"].as_array().unwrap();
    let name = |variant: &Value| variant["properties"]["type"]["const"].as_str().unwrap().to_owned();
    variants.iter().map(|variant| (name(variant), shape::of(&variant["properties"]["data"], &schema))).collect()
}

#[test]
fn every_event_that_was_ever_stored_can_be_read() {
    for model in aggregates::registry().unwrap().iter() {
        let events = golden(model);
        let folded = fold(model, &events).unwrap_or_else(|error| panic!("{}: {error}", model.type_name()));
        assert_eq!(folded.version(), events.len() as u64);
    }
}

#[test]
fn a_stored_form_changes_only_with_its_version() {
    for model in aggregates::registry().unwrap().iter().filter(|model| file(*model).exists()) {
        let goldens = golden(model);
        let file = file(model);
        for (name, shape) in shapes(model) {
            let version = model.events().iter().find(|event| event.name == name).unwrap().version;
            let of_today: Vec<_> =
                goldens.iter().filter(|golden| golden.name == name && golden.version == version).collect();
            assert!(!of_today.is_empty(), "{} needs {name} version {version}, of shape {shape}", file.display());
            for golden in of_today {
                assert_eq!(
                    golden.shape, shape,
                    "{name} version {version} has another shape than it was once stored in: give it a new version"
                );
            }
        }
    }
}

#[test]
fn every_example_is_of_its_shape() {
    for model in aggregates::registry().unwrap().iter() {
        for Golden { name, version, shape, data } in golden(model) {
            let misfits = shape::misfits(&data, &shape);
            assert!(misfits.is_empty(), "{name} version {version}: {misfits:?}");
        }
    }
}

#[test]
fn every_golden_file_is_of_a_registered_type() {
    let registry = aggregates::registry().unwrap();
    let registered: Vec<_> = registry.iter().map(file).collect();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).unwrap() {
        let path = entry.unwrap().path();
        assert!(registered.contains(&path), "{}", path.display());
    }
}
