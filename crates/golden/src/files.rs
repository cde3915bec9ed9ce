//! The golden files of a registry.

use std::fs;
use std::path::PathBuf;

use daybook_decider::{Model, Registry};

use crate::entry::Golden;

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
