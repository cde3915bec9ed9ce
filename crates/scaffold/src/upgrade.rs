//! Merges the changes of this release into the files of a project.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::ScaffoldError;
use crate::files::release_files;
use crate::generated::replacements;
use crate::merge::{FileChange, FileUpgrade};
use crate::project_file::{ORIGINALS, Originals, check_release, read, write};
use crate::source::Parameters;

#[derive(Debug)]
pub struct Upgrade {
    project: PathBuf,
    files: Vec<FileUpgrade>,
    /// The originals after the upgrade, if they are others.
    originals: Option<Originals>,
}

impl Upgrade {
    /// Compares the files of a project with those of this release.
    pub fn plan(project: &Path) -> Result<Self, ScaffoldError> {
        check_release(project)?;
        let originals = Originals::read(project)?;
        let parameters = Parameters::of_files(&originals.files).ok_or_else(|| {
            let error = io::Error::other("it lacks Cargo.toml and samconfig.toml as `daybook new` writes them");
            ScaffoldError::of_file("read", &project.join(ORIGINALS))(error)
        })?;
        let release = Originals::new(&release_files(&parameters));
        let paths: BTreeSet<_> = originals.files.keys().chain(release.files.keys()).collect();
        let mut files = Vec::new();
        for path in paths {
            let of = |files: &Originals| files.files.get(path).cloned();
            files.extend(FileUpgrade::of(project, path, of(&originals).as_deref(), of(&release).as_deref())?);
        }
        files.extend(replacements(project, false)?);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let originals = (originals != release).then_some(release);
        Ok(Self { project: project.to_owned(), files, originals })
    }

    pub fn files(&self) -> &[FileUpgrade] {
        &self.files
    }

    pub fn is_due(&self) -> bool {
        self.originals.is_some() || self.files.iter().any(|file| file.change.text().is_some())
    }

    /// Whether nothing is changed, because a file has conflicts of an earlier upgrade. Its originals must not be replaced before
    /// the user has resolved them, or the changes of this release would be lost.
    pub fn is_blocked(&self) -> bool {
        self.files.iter().any(|file| file.change == FileChange::Unresolved)
    }

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
            file.apply(&self.project)?;
        }
        let Some(originals) = &self.originals else { return Ok(()) };
        let path = self.project.join(ORIGINALS);
        let encoded = originals.encode().map_err(ScaffoldError::of_file("write", &path))?;
        write(&path, &encoded)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::names::{ItemName, ProjectName};
    use crate::source::DaybookSource;
    use crate::write::create_project;

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

        let upgrade = Upgrade::plan(&project).unwrap();
        assert_eq!(upgrade.files().len(), 2);
        fs::write(project.join("template.yaml"), "mine").unwrap();
        let error = upgrade.apply().unwrap_err();
        assert!(error.to_string().contains("template.yaml was changed"), "{error}");
        assert!(!project.join(".gitignore").exists());
        assert_eq!(fs::read_to_string(project.join("template.yaml")).unwrap(), "mine");
    }
}
