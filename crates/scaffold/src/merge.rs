//! What an upgrade does with one file: the original, the user's file and the file of the release.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use diffy::{ConflictStyle, DiffOptions, IncompleteHunkStyle, Line, MergeOptions};

use crate::error::ScaffoldError;
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

    /// What the upgrade changes in the file, as in the output of `git diff`.
    pub fn difference(&self) -> String {
        let Self { path, found, .. } = self;
        let Some(new) = self.change.text() else { return String::new() };
        let found = found.as_deref().and_then(|found| text(Path::new(path), found).ok()).unwrap_or_default();
        let mut options = DiffOptions::new();
        options.set_original_filename(format!("a/{path}")).set_modified_filename(format!("b/{path}"));
        options.create_patch(&found, new).to_string()
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

/// The beginning of a line that a merge puts before a conflict. Git and editors know the form.
const MARKER: &str = "<<<<<<< ";

#[derive(Debug, PartialEq)]
pub(crate) enum FileChange {
    Created(String),
    Updated(String),
    Merged(String),
    Conflict(String),
    Replaced { text: String, kept: String },
    Removed,
    Kept,
    StaysDeleted,
    Yours,
    Unresolved,
}

impl FileChange {
    /// Compares the three forms of a file; none if nobody has changed it, or both have in the same way.
    pub(crate) fn of(original: Option<&str>, yours: Option<&str>, release: Option<&str>) -> Option<Self> {
        if yours.is_some_and(|yours| yours.lines().any(|line| line.starts_with(MARKER))) {
            return Some(Self::Unresolved);
        }
        if yours == release {
            return None;
        }
        if original == release {
            // A file that the user has deleted is not worth a line each time.
            return yours.map(|_| Self::Yours);
        }
        Some(match (original, yours, release) {
            (Some(original), Some(yours), release) if original == yours => {
                release.map_or(Self::Removed, |release| Self::Updated(release.to_owned()))
            }
            (original, Some(yours), Some(release)) => merge(original.unwrap_or_default(), yours, release),
            (_, Some(_), None) => Self::Kept,
            (None, None, Some(release)) => Self::Created(release.to_owned()),
            (_, None, _) => Self::StaysDeleted,
        })
    }

    /// The new text of the file; none if it does not get one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Created(text) | Self::Updated(text) | Self::Merged(text) | Self::Conflict(text) => Some(text),
            Self::Replaced { text, .. } => Some(text),
            Self::Removed | Self::Kept | Self::StaysDeleted | Self::Yours | Self::Unresolved => None,
        }
    }

    pub(crate) fn needs_user(&self) -> bool {
        matches!(self, Self::Conflict(_) | Self::Unresolved | Self::Replaced { .. })
    }
}

impl Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created(_) => "a new file of Daybook",
            Self::Updated(_) => "changed by Daybook",
            Self::Merged(_) => "changed by Daybook and by you, in different places",
            Self::Conflict(_) => {
                "changed by Daybook and by you in the same place: edit it at the lines with <<<<<<<, where `ours` are your lines \
                 and `theirs` those of Daybook"
            }
            Self::Replaced { kept, .. } => {
                return write!(
                    f,
                    "generated by Daybook, but edited by you: replaced. Your text is in {kept}; what you need of it belongs in \
                     deploy/own.yaml, which `daybook add resources` creates"
                );
            }
            Self::Removed => "no longer part of Daybook, and not changed by you: removed",
            Self::Kept => "no longer part of Daybook, but changed by you: delete it if you do not need it",
            Self::StaysDeleted => "changed by Daybook, but deleted by you: it stays deleted",
            Self::Yours => "changed by you only",
            Self::Unresolved => "has conflicts of an earlier upgrade: edit it at the lines with <<<<<<<",
        })
    }
}

fn merge(original: &str, yours: &str, release: &str) -> FileChange {
    let mut options = MergeOptions::new();
    options.set_conflict_style(ConflictStyle::Diff3).set_incomplete_hunk_style(IncompleteHunkStyle::Git);
    match options.merge(original, yours, release) {
        Ok(text) => FileChange::Merged(text),
        Err(text) => FileChange::Conflict(text),
    }
}

/// The numbers of lines that a change adds and removes: `+3 -1`.
pub(crate) fn line_counts(from: &str, to: &str) -> String {
    let patch = diffy::create_patch(from, to);
    let (mut added, mut removed) = (0, 0);
    for line in patch.hunks().iter().flat_map(|hunk| hunk.lines()) {
        match line {
            Line::Insert(_) => added += 1,
            Line::Delete(_) => removed += 1,
            Line::Context(_) => {}
        }
    }
    format!("+{added} -{removed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINAL: [&str; 5] = ["a", "b", "c", "d", "e"];

    /// All texts that one change of a line makes of the original, with the line that is gone, if one is.
    fn changed(new: &'static str) -> Vec<(String, Option<&'static str>)> {
        let mut changed = Vec::new();
        for at in 0..=ORIGINAL.len() {
            for removed in 0..=usize::from(at < ORIGINAL.len()) {
                for added in [&[][..], &[new]] {
                    let lines = [&ORIGINAL[..at], added, &ORIGINAL[at + removed..]].concat();
                    let gone = (removed == 1).then(|| ORIGINAL[at]);
                    changed.push((lines.iter().map(|line| format!("{line}\n")).collect(), gone));
                }
            }
        }
        changed
    }

    #[test]
    fn merge_of_any_two_changes_loses_no_line_of_either() {
        let original: String = ORIGINAL.map(|line| format!("{line}\n")).concat();
        let (mut merged, mut conflicts) = (0, 0);
        for (yours, your_gone) in changed("yours") {
            for (release, release_gone) in changed("release") {
                let result = FileChange::of(Some(&original), Some(&yours), Some(&release));
                let text = match &result {
                    None | Some(FileChange::Yours) => &yours,
                    Some(FileChange::Updated(text) | FileChange::Merged(text) | FileChange::Conflict(text)) => text,
                    Some(other) => panic!("{other:?}"),
                };
                // An upgrade that was interrupted after this file compares the result again.
                let again = FileChange::of(Some(&original), Some(text), Some(&release));
                let again = again.as_ref().and_then(FileChange::text).unwrap_or(text);
                assert_eq!(again, text, "{yours:?} {release:?}");
                for line in yours.lines().chain(release.lines()).filter(|line| !ORIGINAL.contains(line)) {
                    assert!(text.lines().any(|found| found == line), "{yours:?} {release:?} {text:?}");
                }
                match result {
                    Some(FileChange::Conflict(_)) => conflicts += 1,
                    _ => {
                        merged += 1;
                        let gone = [your_gone, release_gone];
                        let kept: Vec<_> = ORIGINAL.into_iter().filter(|line| !gone.contains(&Some(*line))).collect();
                        let found: Vec<_> = text.lines().filter(|line| ORIGINAL.contains(line)).collect();
                        assert_eq!(found, kept, "{yours:?} {release:?}");
                    }
                }
            }
        }
        assert!(merged > 200 && conflicts > 20, "{merged} {conflicts}");
    }
}
