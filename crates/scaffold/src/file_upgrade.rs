//! What an upgrade does with a file of a project.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use crate::error::ScaffoldError;
use crate::merge::{FileChange, difference, line_counts};
use crate::project_file::{read, text, write, write_text};

/// A file that the release or the user has changed.
#[derive(Debug)]
pub struct FileUpgrade {
    pub(crate) path: String,
    pub(crate) change: FileChange,
    /// The content of the file when it was compared; none if it does not exist.
    pub(crate) found: Option<Vec<u8>>,
    /// What Daybook and the user have changed: numbers of lines.
    pub(crate) counts: String,
}

impl FileUpgrade {
    pub(crate) fn of(
        project: &Path,
        path: &str,
        original: Option<&str>,
        release: Option<&str>,
    ) -> Result<Option<Self>, ScaffoldError> {
        let file = project.join(path);
        let found = read(&file)?;
        let yours = found.as_deref().map(|found| text(&file, found)).transpose()?;
        let change = FileChange::of(original, yours.as_deref(), release);
        let counts = |changed: Option<&str>| line_counts(original.unwrap_or_default(), changed.unwrap_or_default());
        let counts = format!("Daybook {}, you {}", counts(release), counts(yours.as_deref()));
        Ok(change.map(|change| Self { path: path.to_owned(), change, found, counts }))
    }

    pub fn difference(&self) -> String {
        let Some(new) = self.change.text() else { return String::new() };
        let found = self.found.as_deref().and_then(|found| text(Path::new(&self.path), found).ok()).unwrap_or_default();
        difference(&self.path, &found, new)
    }

    pub(crate) fn apply(&self, project: &Path) -> Result<(), ScaffoldError> {
        let path = &project.join(&self.path);
        if self.change == FileChange::Removed {
            return fs::remove_file(path).map_err(ScaffoldError::of_file("remove", path));
        }
        if let (FileChange::Replaced { kept, .. }, Some(found)) = (&self.change, &self.found) {
            write(&project.join(kept), found)?;
        }
        match self.change.text() {
            Some(new) => write_text(path, new, self.found.as_deref()),
            None => Ok(()),
        }
    }
}

impl Display for FileUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, change, counts, .. } = self;
        write!(f, "{path}: {change} ({counts})")
    }
}
