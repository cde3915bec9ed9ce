//! The golden files of a registry, and their entries.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use daybook_decider::{Json, Meta, Model, RecordedEvent, Registry};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use ulid::Ulid;

/// The command that adds what is missing in the files, and changes nothing that they contain.
pub(crate) const WRITE: &str = "GOLDEN=write cargo test -p aggregates golden_files";

/// The command that also writes the files of types again that were never deployed.
const REPLACE: &str = "GOLDEN=replace cargo test -p aggregates golden_files";

/// The registered aggregates, and the folder with their golden files.
pub struct GoldenFiles {
    pub(crate) registry: Registry,
    folder: PathBuf,
    /// Whether to add what is missing.
    writes: bool,
    /// Whether to write the files of a type again if they differ, and nothing shows that a release has stored them.
    replaces: bool,
}

impl GoldenFiles {
    /// The files in this folder.
    pub fn new(registry: Registry, folder: impl Into<PathBuf>) -> Self {
        let asked = |word| std::env::var_os("GOLDEN").is_some_and(|value| value == word);
        let replaces = asked("replace");
        Self { registry, folder: folder.into(), writes: replaces || asked("write"), replaces }
    }

    /// Adds what is missing, as with `GOLDEN=write` in the environment.
    #[must_use]
    pub fn writing(self) -> Self {
        Self { writes: true, ..self }
    }

    /// Adds what is missing and, as with `GOLDEN=replace` in the environment, deletes the files of a type that is not registered any
    /// more, and writes those of one again that differ from the code. Files that contain a later version than 1 of an event or of
    /// the state, or `reads`, stay. A release that stored first versions only cannot be recognized: do not use it then.
    #[must_use]
    pub fn replacing(self) -> Self {
        Self { writes: true, replaces: true, ..self }
    }

    /// Compares the files with the code. Panics with all differences. Those of the states of a type are not among them while its
    /// events differ.
    pub fn check(&self) {
        let mut found = self.foreign_files();
        found.extend(self.unregistered());
        for model in self.registry.iter() {
            let (is_new, before) = (self.is_new(model), found.len());
            self.check_type(model, &mut found);
            if is_new && found.len() > before {
                delete(&self.file(model));
                found.truncate(before);
                self.check_type(model, &mut found);
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n\n"));
    }

    /// Whether neither the code of a type nor its files show that a release has stored it.
    fn is_new(&self, model: &dyn Model) -> bool {
        let (events, stored) = (model.events(), model.stored_events());
        let has_changed = stored.len() > events.len() || stored.iter().any(|(_, version)| *version > 1);
        !has_changed && model.state_version() == 1 && self.has_first_forms(&self.file(model))
    }

    /// Whether the files of a type may be replaced, because they contain nothing but first versions.
    fn has_first_forms(&self, file: &Path) -> bool {
        let entries = fs::read_to_string(file).ok().and_then(|text| serde_json::from_str::<Vec<Golden>>(&text).ok());
        let is_first = |golden: &Golden| golden.version == 1 && golden.reads.is_none();
        let mut states = fs::read_dir(file.with_extension("")).into_iter().flatten();
        self.replaces
            && entries.is_some_and(|entries| entries.iter().all(is_first))
            && states.all(|entry| entry.unwrap().file_name() == "state-1.json")
    }

    /// Checks a type. A panic ends the checks of this type only.
    fn check_type(&self, model: &dyn Model, found: &mut Vec<String>) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.check_parts(model, found))) {
            let printed = |_| format!("{}: the check panicked, as printed above", model.type_name());
            found.push(panic.downcast().map_or_else(printed, |text| *text));
        }
    }

    fn check_parts(&self, model: &dyn Model, found: &mut Vec<String>) {
        if self.writes {
            self.add_entries(model);
        }
        let before = found.len();
        self.check_events(model, found);
        if found.len() == before {
            self.check_states(model, self.writes).unwrap_or_else(|difference| found.push(difference));
        }
    }

    pub(crate) fn file(&self, model: &dyn Model) -> PathBuf {
        self.folder.join(format!("{}.json", model.type_name()))
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

    /// Each file that belongs to no registered type, and is not deleted.
    fn foreign_files(&self) -> Vec<String> {
        let registered: Vec<_> = self.registry.iter().map(|model| self.file(model)).collect();
        let entries = fs::read_dir(&self.folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        let foreign: Vec<_> = entries.filter(|path| !registered.contains(&path.with_extension("json"))).collect();
        let files = foreign.iter().map(|path| path.with_extension("json"));
        files.filter(|file| self.has_first_forms(file)).for_each(|file| delete(&file));
        let left = foreign.iter().filter(|path| path.exists()).map(|path| path.display());
        left.map(|path| {
            format!(
                "{path} belongs to no registered type: register it; if it was never deployed, run `{REPLACE}`; if it belongs to \
                 another registry, give this test one that contains both"
            )
        })
        .collect()
    }

    /// Each aggregate in the folder `src` beside this one that is not registered: no other test would notice it.
    fn unregistered(&self) -> Vec<String> {
        let mut paths = vec![self.folder.with_file_name("src")];
        let mut found = Vec::new();
        while let Some(path) = paths.pop() {
            paths.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
            let source = fs::read_to_string(&path).ok().filter(|_| path.extension() == Some("rs".as_ref()));
            for line in source.unwrap_or_default().lines() {
                let name = line.strip_prefix("#[daybook::aggregate(\"").and_then(|rest| rest.split('"').next());
                if let Some(name) = name.filter(|name| self.registry.get(name).is_none()) {
                    let path = path.display();
                    found.push(format!("{path}: {name} is not registered: add `.with::<…>()?` beside the other types"));
                }
            }
        }
        found
    }
}

fn delete(file: &Path) {
    fs::remove_file(file).unwrap();
    let states = file.with_extension("");
    if states.exists() {
        fs::remove_dir_all(states).unwrap();
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
