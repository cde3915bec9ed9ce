//! The checks of stored events.

use std::collections::BTreeSet;
use std::fs;

use daybook_decider::{Json, Model, personal};
use serde_json::Value;

use crate::files::{Golden, GoldenFiles, Today};
use crate::shape;

/// What to do after a change of an event that is not stored anywhere.
const IF_NEVER_STORED: &str = "If no release has ever stored it in this form, change its entry in the file";

/// What to do after an optional field was added to an event.
const IF_OPTIONAL: &str = "A new field that earlier releases can ignore needs no new version if it is an `Option` with \
                           `#[serde(default, skip_serializing_if = \"Option::is_none\")]`: add it to the shapes of the version in \
                           the file, with `?` after its name, and add an entry with a value";

/// What to do after a change of how an earlier form is read.
const CHANGED_READING: &str =
    "correct the upcast. If the form that is written today has changed, change `reads` of the entry.";

/// JSON with personal values as callers see them: no file contains how they are marked.
pub(crate) fn shown(json: &Json) -> Value {
    serde_json::from_str(&personal::shown(json.text())).unwrap()
}

impl GoldenFiles {
    /// Checks that every golden event can be read and folded.
    pub fn golden_events_of_every_version_can_be_read(&self) {
        for model in self.registry.iter() {
            let events: Vec<_> =
                self.golden(model).iter().zip(1..).map(|(event, seq_num)| event.recorded(seq_num)).collect();
            let folded = model.fold(model.before_first_event(), &events);
            let folded =
                folded.unwrap_or_else(|error| panic!("{}: {error}. {IF_NEVER_STORED}", self.file(model).display()));
            assert_eq!(folded.version(), events.len() as u64);
        }
    }

    /// Checks that each golden event is read as its entry lists.
    pub fn golden_event_is_read_as_its_entry_lists(&self) {
        for model in self.registry.iter() {
            for event in self.golden(model) {
                let (name, version) = (&event.name, event.version);
                let read = model.read(&event.recorded(1)).unwrap().into_iter();
                let read: Vec<_> = read.map(|(name, data)| (name, shown(&data))).collect();
                let is_todays = written(model, name) == Some(version);
                assert_eq!(
                    event.reads.is_none(),
                    is_todays,
                    "{name} {version} needs `reads` if, and only if, it is not the form that is written today"
                );
                let itself = || vec![Today { r#type: name.clone(), data: event.data.clone() }];
                let expected = event.reads.clone().unwrap_or_else(itself);
                let expected: Vec<_> = expected.into_iter().map(|today| (today.r#type, today.data)).collect();
                assert!(
                    read == expected,
                    "{name} version {version} is read as something other than its entry in {file} lists: {what_to_do}\n  \
                     {file}: {}\n  this code: {}",
                    text(&expected),
                    text(&read),
                    file = self.file(model).display(),
                    what_to_do = if is_todays { changed_data() } else { CHANGED_READING.to_owned() },
                );
            }
        }
    }

    /// Checks that the code writes each version of an event in the shape of its entries.
    pub fn shape_of_a_written_version_equals_its_golden_shape(&self) {
        for model in self.pinned() {
            let goldens = self.golden(model);
            let file = self.file(model);
            for (name, shape) in shapes(model) {
                let version = written(model, &name).unwrap();
                let of_today: Vec<_> =
                    goldens.iter().filter(|golden| golden.name == name && golden.version == version).collect();
                assert!(!of_today.is_empty(), "{} needs {name} version {version}, of shape {shape}", file.display());
                for golden in of_today {
                    assert!(
                        golden.shape == shape,
                        "{name} version {version} has another shape than it was once stored in: {}\n  {file}: {}\n  \
                         this code: {shape}",
                        changed_data(),
                        golden.shape,
                        file = file.display()
                    );
                }
            }
        }
    }

    /// Checks that a file has an entry for each declared version of each event, and no other entry.
    pub fn declared_forms_and_golden_entries_are_the_same(&self) {
        for model in self.pinned() {
            let stored = model.stored_events().into_iter();
            let declared: BTreeSet<_> =
                stored.flat_map(|(name, latest)| (1..=latest).map(move |version| (name.to_owned(), version))).collect();
            let pinned: BTreeSet<_> =
                self.golden(model).into_iter().map(|golden| (golden.name, golden.version)).collect();
            let missing: Vec<_> = declared.difference(&pinned).collect();
            assert!(missing.is_empty(), "{} lacks {missing:?}", self.file(model).display());
            let undeclared: Vec<_> = pinned.difference(&declared).collect();
            assert!(undeclared.is_empty(), "{} does not declare {undeclared:?}", model.type_name());
        }
    }

    /// Checks that the example of an entry has the shape of the entry.
    pub fn golden_example_fits_its_shape(&self) {
        for model in self.registry.iter() {
            for Golden { name, version, shape, data, .. } in self.golden(model) {
                let misfits = shape::misfits(&data, &shape);
                assert!(misfits.is_empty(), "{name} version {version}: {misfits:?}");
            }
        }
    }

    /// Checks that two entries of one form agree, so that a change of one of them is detected.
    pub fn golden_entries_of_one_form_have_one_shape(&self) {
        for model in self.registry.iter() {
            let goldens = self.golden(model);
            for one in &goldens {
                let same = |other: &&Golden| (&other.name, other.version) == (&one.name, one.version);
                assert!(
                    goldens.iter().filter(same).all(|other| other.shape == one.shape),
                    "{} {}",
                    one.name,
                    one.version
                );
            }
        }
    }

    /// Checks that an event without one of its members cannot be read.
    pub fn data_of_another_form_is_unreadable(&self) {
        for model in self.registry.iter() {
            for event in self.golden(model) {
                let Value::Object(members) = &event.shape else { continue };
                // A retired event is read as no event, whatever its data.
                if event.reads.as_ref().is_some_and(Vec::is_empty) {
                    continue;
                }
                for lost in members.keys().filter(|name| !name.ends_with('?')) {
                    let mut torn = event.data.clone();
                    torn.as_object_mut().unwrap().remove(lost);
                    let error = model.read(&Golden { data: torn, ..event.clone() }.recorded(1)).unwrap_err();
                    assert!(
                        error.to_string().contains(&format!("{} version {}", event.name, event.version)),
                        "{error}"
                    );
                    assert!(error.reason.contains(lost.as_str()), "{error}");
                }
            }
        }
    }

    /// Checks that each file belongs to a registered type.
    pub fn golden_file_belongs_to_a_registered_type(&self) {
        let registered: Vec<_> = self.registry.iter().map(|model| self.file(model)).collect();
        for entry in fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            let file = if path.is_dir() { path.with_extension("json") } else { path.clone() };
            assert!(registered.contains(&file), "{}", path.display());
        }
    }
}

/// What to do after a change of the data of an event that is written today.
fn changed_data() -> String {
    format!("give the event a new version. {IF_NEVER_STORED}. {IF_OPTIONAL}. See docs/evolving-events.md of Daybook.")
}

/// Events in one line, each as its name and its data.
fn text(events: &[(String, Value)]) -> String {
    let texts: Vec<_> = events.iter().map(|(name, data)| format!("{name} {data}")).collect();
    if texts.is_empty() { "no event".to_owned() } else { texts.join(", ") }
}

/// The version of the event `name` that is written today; `None` if no event of that name is written.
fn written(model: &dyn Model, name: &str) -> Option<u32> {
    model.events().iter().find(|event| event.name == name).map(|event| event.version)
}

/// The name of each event, with the shape of its data as today's code writes it.
fn shapes(model: &dyn Model) -> Vec<(String, Value)> {
    let schema = Value::from(model.schemas().event.clone());
    let variants = schema["oneOf"].as_array().unwrap();
    let name = |variant: &Value| variant["properties"]["type"]["const"].as_str().unwrap().to_owned();
    variants.iter().map(|variant| (name(variant), shape::of(&variant["properties"]["data"], &schema))).collect()
}
