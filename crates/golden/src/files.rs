//! The golden files of a registry, and their entries.

use std::fs;
use std::path::PathBuf;

use daybook_decider::{Json, Meta, Model, RecordedEvent, Registry};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use ulid::Ulid;

/// The registered aggregates, and the folder with their golden files.
pub struct GoldenFiles {
    pub(crate) registry: Registry,
    pub(crate) folder: PathBuf,
}

impl GoldenFiles {
    /// The files in this folder. An aggregate that was never deployed needs none.
    pub fn new(registry: Registry, folder: impl Into<PathBuf>) -> Self {
        Self { registry, folder: folder.into() }
    }

    /// The file of a type.
    pub(crate) fn file(&self, model: &dyn Model) -> PathBuf {
        self.folder.join(format!("{}.json", model.type_name()))
    }

    /// The aggregates that have a file.
    pub(crate) fn pinned(&self) -> impl Iterator<Item = &dyn Model> {
        self.registry.iter().filter(|model| self.file(*model).exists())
    }

    /// The golden events of a type; none without a file.
    pub(crate) fn golden(&self, model: &dyn Model) -> Vec<Golden> {
        let path = self.file(model);
        if !path.exists() {
            return Vec::new();
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// An event in a form that was stored once.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) shape: Value,
    pub(crate) data: Value,
    /// The events that it is read as today. `None` for a form that is written today: it is read as itself.
    pub(crate) reads: Option<Vec<Today>>,
}

/// An event in the form that is written today.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Today {
    pub(crate) r#type: String,
    pub(crate) data: Value,
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
            together: Vec::new(),
        }
    }
}

impl GoldenFiles {
    /// Runs all checks of the events and of the states.
    pub fn check(&self) {
        self.golden_events_of_every_version_can_be_read();
        self.golden_event_is_read_as_its_entry_lists();
        self.shape_of_a_written_version_equals_its_golden_shape();
        self.declared_forms_and_golden_entries_are_the_same();
        self.golden_example_fits_its_shape();
        self.golden_entries_of_one_form_have_one_shape();
        self.data_of_another_form_is_unreadable();
        self.golden_file_belongs_to_a_registered_type();
        self.states_of_the_golden_events_are_those_of_their_state_version();
    }
}
