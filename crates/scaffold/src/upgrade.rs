//! Merges the changes of this release into the files of a project.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::ScaffoldError;
use crate::files::release_files;
use crate::merge::{FileChange, difference, line_counts};
use crate::originals::{ORIGINALS, Originals};
use crate::parameters::Parameters;
use crate::project_file::{read, text, write, write_text};

/// What an upgrade of a project changes.
#[derive(Debug)]
pub struct Upgrade {
    project: PathBuf,
    files: Vec<FileUpgrade>,
    /// The originals after the upgrade, if they are others.
    originals: Option<Originals>,
}

/// A file that the release or the user has changed.
#[derive(Debug)]
pub struct FileUpgrade {
    path: String,
    change: FileChange,
    /// The content of the file when it was compared; none if it does not exist.
    found: Option<Vec<u8>>,
    /// What Daybook and the user have changed: numbers of lines.
    counts: String,
}

impl Upgrade {
    /// Compares the files of a project with those of this release. Its originals are those of the project, or those in the folder
    /// `from`, which contains an unchanged project.
    pub fn plan(project: &Path, from: Option<&Path>) -> Result<Self, ScaffoldError> {
        check_release(project)?;
        let originals = match from {
            Some(unchanged) => Originals::of_unchanged(unchanged)?,
            None => Originals::read(project)?,
        };
        let parameters = Parameters::of_files(&originals.files);
        let parameters =
            parameters.ok_or_else(|| ScaffoldError::NotUnchanged { folder: from.unwrap_or(project).to_owned() })?;
        let release = Originals::new(&release_files(&parameters));
        let paths: BTreeSet<_> = originals.files.keys().chain(release.files.keys()).collect();
        let mut files = Vec::new();
        for path in paths {
            files.extend(FileUpgrade::of(project, path, &originals.files, &release.files)?);
        }
        let originals = (from.is_some() || originals != release).then_some(release);
        Ok(Self { project: project.to_owned(), files, originals })
    }

    /// The changed files, in the order of their paths.
    pub fn files(&self) -> &[FileUpgrade] {
        &self.files
    }

    /// Whether the project does not have all changes of the release yet.
    pub fn is_due(&self) -> bool {
        self.originals.is_some()
    }

    /// Whether nothing is changed, because a file has conflicts of an earlier upgrade. Its originals must not be replaced before
    /// the user has resolved them, or the changes of this release would be lost.
    pub fn is_blocked(&self) -> bool {
        self.files.iter().any(|file| file.change == FileChange::Unresolved)
    }

    /// Whether the user has to edit a file.
    pub fn needs_user(&self) -> bool {
        self.files.iter().any(|file| file.change.needs_user())
    }

    /// Changes the files, and at last the originals: an upgrade that is interrupted continues when it is run again.
    pub fn apply(&self) -> Result<(), ScaffoldError> {
        if self.is_blocked() {
            return Ok(());
        }
        for file in &self.files {
            let path = self.project.join(&file.path);
            if read(&path)? != file.found {
                return Err(ScaffoldError::Changed { path });
            }
        }
        for file in &self.files {
            file.apply(&self.project.join(&file.path))?;
        }
        let Some(originals) = &self.originals else { return Ok(()) };
        let path = self.project.join(ORIGINALS);
        let encoded = originals.encode().map_err(ScaffoldError::of_file("write", &path))?;
        write(&path, &encoded)
    }
}

impl FileUpgrade {
    fn of(
        project: &Path,
        path: &str,
        originals: &BTreeMap<String, String>,
        release: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, ScaffoldError> {
        let file = project.join(path);
        let found = read(&file)?;
        let yours = found.as_deref().map(|found| text(&file, found)).transpose()?;
        let (original, release) = (originals.get(path).map(String::as_str), release.get(path).map(String::as_str));
        let change = FileChange::of(original, yours.as_deref(), release);
        let counts = |changed: Option<&str>| line_counts(original.unwrap_or_default(), changed.unwrap_or_default());
        let counts = format!("Daybook {}, you {}", counts(release), counts(yours.as_deref()));
        Ok(change.map(|change| Self { path: path.to_owned(), change, found, counts }))
    }

    /// What the upgrade changes in the file.
    pub fn difference(&self) -> String {
        let Some(new) = self.change.text() else { return String::new() };
        let found = self.found.as_deref().and_then(|found| text(Path::new(&self.path), found).ok()).unwrap_or_default();
        difference(&self.path, &found, new)
    }

    fn apply(&self, path: &Path) -> Result<(), ScaffoldError> {
        if self.change == FileChange::Removed {
            return fs::remove_file(path).map_err(ScaffoldError::of_file("remove", path));
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

/// Checks that the project depends on the release of this binary.
fn check_release(project: &Path) -> Result<(), ScaffoldError> {
    // Without the file, nothing was built yet, and the next build takes the version in `Cargo.toml`.
    let lock = fs::read_to_string(project.join("Cargo.lock")).unwrap_or_default();
    let mut lines = lock.lines().skip_while(|line| *line != "name = \"daybook-cli\"");
    let locked = lines.nth(1).and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    match locked {
        Some(locked) if locked != env!("CARGO_PKG_VERSION") => {
            Err(ScaffoldError::OtherRelease { locked: locked.to_owned() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::create_project;
    use crate::names::{ItemName, ProjectName};
    use crate::source::DaybookSource;

    #[test]
    fn file_that_is_changed_during_an_upgrade_stops_it() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("shop");
        let (name, aggregate) = (ProjectName::new("shop").unwrap(), ItemName::new("item").unwrap());
        create_project(&project, &name, &aggregate, &DaybookSource::Release).unwrap();
        for path in [".gitignore", "template.yaml"] {
            fs::remove_file(project.join(path)).unwrap();
        }
        let mut originals = Originals::read(&project).unwrap();
        originals.files.retain(|path, _| path != ".gitignore" && path != "template.yaml");
        fs::write(project.join(ORIGINALS), originals.encode().unwrap()).unwrap();

        let upgrade = Upgrade::plan(&project, None).unwrap();
        assert_eq!(upgrade.files().len(), 2);
        fs::write(project.join("template.yaml"), "mine").unwrap();
        let error = upgrade.apply().unwrap_err();
        assert!(error.to_string().contains("template.yaml was changed"), "{error}");
        assert!(!project.join(".gitignore").exists());
        assert_eq!(fs::read_to_string(project.join("template.yaml")).unwrap(), "mine");
    }
}
