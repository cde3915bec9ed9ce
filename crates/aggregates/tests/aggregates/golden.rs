//! Events as they were once stored, in `golden/<type>.json`: every event in the table must stay readable, and a stored
//! form cannot change without a new version.
//!
//! An entry contains the name of an event, its version, the shape of that version, and an example. If the form is not
//! written any more, the entry also contains the events that it is read as today. To change a stored form, raise the
//! version in `EVENTS`, write the upcast, and add an entry. Existing entries stay forever; only `reads` changes. An
//! aggregate that was never deployed needs no file.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use daybook_decider::{Json, Meta, Model, RecordedEvent};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use ulid::Ulid;

use crate::shape;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) version: u32,
    shape: Value,
    data: Value,
    /// The events that it is read as today. `None` for a form that is written today: it is read as itself.
    reads: Option<Vec<Today>>,
}

/// An event in the form that is written today.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Today {
    r#type: String,
    data: Value,
}

/// The file of a type.
pub(crate) fn file(model: &dyn Model) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(format!("{}.json", model.type_name()))
}

/// The golden events of a type; none without a file.
pub(crate) fn golden(model: &dyn Model) -> Vec<Golden> {
    let path = file(model);
    if !path.exists() {
        return Vec::new();
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The version of the event `name` that is written today; `None` if no event of that name is written.
fn written(model: &dyn Model, name: &str) -> Option<u32> {
    model.events().iter().find(|event| event.name == name).map(|event| event.version)
}

impl Golden {
    pub(crate) fn recorded(&self, seq_num: u64) -> RecordedEvent {
        RecordedEvent {
            seq_num,
            event_id: Ulid::from_parts(0, seq_num.into()),
            event_type: self.name.clone(),
            event_version: self.version,
            data: Json::of(&self.data).unwrap(),
            meta: Meta::default(),
            occurred_at: Timestamp::UNIX_EPOCH,
            message_seq: 0,
            message_epoch: 1,
        }
    }
}

/// The name of each event, with the shape of its data as today's code writes it.
fn shapes(model: &dyn Model) -> Vec<(String, Value)> {
    let schema = Value::from(model.schemas().event.clone());
    let variants = schema["oneOf"].as_array().unwrap();
    let name = |variant: &Value| variant["properties"]["type"]["const"].as_str().unwrap().to_owned();
    variants.iter().map(|variant| (name(variant), shape::of(&variant["properties"]["data"], &schema))).collect()
}

#[test]
fn golden_events_of_every_version_can_be_read() {
    for model in aggregates::registry().unwrap().iter() {
        let events: Vec<_> = golden(model).iter().zip(1..).map(|(event, seq_num)| event.recorded(seq_num)).collect();
        let folded = model.fold(model.before_first_event(), &events);
        let folded = folded.unwrap_or_else(|error| panic!("{}: {error}", model.type_name()));
        assert_eq!(folded.version(), events.len() as u64);
    }
}

#[test]
fn golden_event_is_read_as_its_entry_lists() {
    for model in aggregates::registry().unwrap().iter() {
        for event in golden(model) {
            let (name, version) = (&event.name, event.version);
            let read = model.read(&event.recorded(1)).unwrap().into_iter();
            let read: Vec<_> = read.map(|(name, data)| (name, data.read::<Value>().unwrap())).collect();
            let is_todays = written(model, name) == Some(version);
            assert_eq!(
                event.reads.is_none(),
                is_todays,
                "{name} {version} needs `reads` if, and only if, it is not the form that is written today"
            );
            let itself = || vec![Today { r#type: name.clone(), data: event.data.clone() }];
            let expected = event.reads.clone().unwrap_or_else(itself);
            let expected: Vec<_> = expected.into_iter().map(|today| (today.r#type, today.data)).collect();
            assert_eq!(read, expected, "{name} version {version}");
        }
    }
}

#[test]
fn shape_of_a_written_version_equals_its_golden_shape() {
    for model in aggregates::registry().unwrap().iter().filter(|model| file(*model).exists()) {
        let goldens = golden(model);
        let file = file(model);
        for (name, shape) in shapes(model) {
            let version = written(model, &name).unwrap();
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
fn declared_forms_and_golden_entries_are_the_same() {
    for model in aggregates::registry().unwrap().iter().filter(|model| file(*model).exists()) {
        let stored = model.stored_events().into_iter();
        let declared: BTreeSet<_> =
            stored.flat_map(|(name, latest)| (1..=latest).map(move |version| (name.to_owned(), version))).collect();
        let pinned: BTreeSet<_> = golden(model).into_iter().map(|golden| (golden.name, golden.version)).collect();
        let missing: Vec<_> = declared.difference(&pinned).collect();
        assert!(missing.is_empty(), "{} lacks {missing:?}", file(model).display());
        let undeclared: Vec<_> = pinned.difference(&declared).collect();
        assert!(undeclared.is_empty(), "{} does not declare {undeclared:?}", model.type_name());
    }
}

#[test]
fn golden_example_fits_its_shape() {
    for model in aggregates::registry().unwrap().iter() {
        for Golden { name, version, shape, data, .. } in golden(model) {
            let misfits = shape::misfits(&data, &shape);
            assert!(misfits.is_empty(), "{name} version {version}: {misfits:?}");
        }
    }
}

/// Two entries of one form must agree, so a change of one of them is detected.
#[test]
fn golden_entries_of_one_form_have_one_shape() {
    for model in aggregates::registry().unwrap().iter() {
        let goldens = golden(model);
        for one in &goldens {
            let same = |other: &&Golden| (&other.name, other.version) == (&one.name, one.version);
            assert!(goldens.iter().filter(same).all(|other| other.shape == one.shape), "{} {}", one.name, one.version);
        }
    }
}

#[test]
fn data_of_another_form_is_unreadable() {
    let registry = aggregates::registry().unwrap();
    for model in registry.iter() {
        for event in golden(model) {
            let Value::Object(members) = &event.shape else { continue };
            // A retired event is read as no event, whatever its data.
            if event.reads.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            for lost in members.keys().filter(|name| !name.ends_with('?')) {
                let mut torn = event.data.clone();
                torn.as_object_mut().unwrap().remove(lost);
                let error = model.read(&Golden { data: torn, ..event.clone() }.recorded(1)).unwrap_err();
                assert!(error.to_string().contains(&format!("{} version {}", event.name, event.version)), "{error}");
                assert!(error.reason.contains(lost.as_str()), "{error}");
            }
        }
    }
}

#[test]
fn golden_file_belongs_to_a_registered_type() {
    let registry = aggregates::registry().unwrap();
    let registered: Vec<_> = registry.iter().map(file).collect();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).unwrap() {
        let path = entry.unwrap().path();
        let file = if path.is_dir() { path.with_extension("json") } else { path.clone() };
        assert!(registered.contains(&file), "{}", path.display());
    }
}
