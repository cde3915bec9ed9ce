//! Where a project gets the crates of Daybook from.

use std::path::{Path, PathBuf};

use super::error::ScaffoldError;

/// The source of the crates of Daybook.
#[derive(Clone, Debug)]
pub(crate) enum DaybookSource {
    /// The release of this binary, from crates.io.
    Release,
    /// The sources in a folder.
    Path(PathBuf),
    /// A git repository.
    Git(String),
}

impl DaybookSource {
    /// The sources in a folder.
    ///
    /// # Errors
    ///
    /// When the folder does not contain the sources of Daybook.
    pub(crate) fn of_path(path: &Path) -> Result<Self, ScaffoldError> {
        if !path.join("crates/daybook/Cargo.toml").is_file() {
            return Err(ScaffoldError::NoSources { path: path.to_owned() });
        }
        let absolute = path.canonicalize().map_err(ScaffoldError::of_file("find", path))?;
        Ok(Self::Path(absolute))
    }

    /// The members of the dependency, in `Cargo.toml`, on the crate in this folder of Daybook's `crates`.
    pub(super) fn dependency(&self, folder: &str) -> String {
        match self {
            Self::Release => format!("version = {:?}", env!("CARGO_PKG_VERSION")),
            Self::Path(path) => format!("path = {:?}", path.join("crates").join(folder)),
            Self::Git(url) => format!("git = {url:?}"),
        }
    }

    /// Where the documents of Daybook are, as the subject of a sentence.
    pub(super) fn documents(&self) -> String {
        match self {
            Self::Release => "The files in `docs` of Daybook's repository".to_owned(),
            Self::Path(path) => format!("The files in `{}`", path.join("docs").display()),
            Self::Git(url) => format!("The files in `docs` of {url}"),
        }
    }
}
