//! Where a project gets the crates of Daybook from, and what the files of the release contain of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::ScaffoldError;
use crate::names::ProjectName;

#[derive(Clone, Debug)]
pub enum DaybookSource {
    /// The release of this binary, from crates.io.
    Release,
    Path(PathBuf),
    Git(String),
}

impl DaybookSource {
    pub fn release() -> Result<Self, ScaffoldError> {
        if cfg!(daybook_release) { Ok(Self::Release) } else { Err(ScaffoldError::NoRelease) }
    }

    pub fn of_path(path: &Path) -> Result<Self, ScaffoldError> {
        if !path.join("crates/daybook/Cargo.toml").is_file() {
            return Err(ScaffoldError::NoSources { path: path.to_owned() });
        }
        let absolute = path.canonicalize().map_err(ScaffoldError::of_file("find", path))?;
        Ok(Self::Path(absolute))
    }

    /// The members of the dependency, in `Cargo.toml`, on the crate in this folder of Daybook's `crates`.
    pub(crate) fn dependency(&self, folder: &str) -> String {
        match self {
            Self::Release => format!("version = {:?}", env!("CARGO_PKG_VERSION")),
            Self::Path(path) => format!("path = {}", quoted(&path.join("crates").join(folder).to_string_lossy())),
            Self::Git(url) => format!("git = {}", quoted(url)),
        }
    }

    /// Where the documents of Daybook are, as the subject of a sentence.
    pub(crate) fn documents(&self) -> String {
        match documents(if let Self::Git(url) = self { url } else { env!("CARGO_PKG_REPOSITORY") }) {
            Some(url) => format!("[Daybook's documents]({url})"),
            None => "The files in `docs` of Daybook's repository".to_owned(),
        }
    }
}

/// Where the documents of this release are in a repository, if it has an address.
pub(crate) fn documents(repository: &str) -> Option<String> {
    let url = repository.trim_end_matches('/').trim_end_matches(".git");
    (!url.is_empty()).then(|| format!("{url}/blob/v{}/docs/", env!("CARGO_PKG_VERSION")))
}

/// A text as a string of TOML, whose escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The texts that stand for `{{project}}`, `{{daybook}}` and `{{daybook_cli}}` in the files of the release.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameters {
    project: String,
    daybook: String,
    daybook_cli: String,
}

impl Parameters {
    pub(crate) fn new(project: &ProjectName, source: &DaybookSource) -> Self {
        let (daybook, daybook_cli) = (source.dependency("daybook"), source.dependency("cli"));
        Self { project: project.as_str().to_owned(), daybook, daybook_cli }
    }

    /// The parameters that files of a release were written with; none if these files do not contain them.
    pub(crate) fn of_files(files: &BTreeMap<String, String>) -> Option<Self> {
        let between = |file: &str, before: &str, after: &str| {
            let text = files.get(file)?.split_once(before)?.1;
            Some(text.split_once(after)?.0.to_owned())
        };
        Some(Self {
            project: between("samconfig.toml", "stack_name = \"", "-dev\"")?,
            daybook: between("Cargo.toml", "daybook = { package = \"daybook-suite\", ", " }")?,
            daybook_cli: between("Cargo.toml", "daybook-cli = { ", " }")?,
        })
    }

    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{{rust_version}}", env!("CARGO_PKG_RUST_VERSION"))
            .replace("{{project}}", &self.project)
            .replace("{{daybook}}", &self.daybook)
            .replace("{{daybook_cli}}", &self.daybook_cli)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependency_names_the_source_as_a_string_of_toml() {
        let release = format!("version = {:?}", env!("CARGO_PKG_VERSION"));
        assert_eq!(DaybookSource::Release.dependency("daybook"), release);
        // A letter of two characters, as macOS writes it in names of files.
        let path = DaybookSource::Path("/caf\u{65}\u{301} \"1\"".into());
        assert_eq!(path.dependency("cli"), "path = \"/caf\u{65}\u{301} \\\"1\\\"/crates/cli\"");
        let git = DaybookSource::Git("https://example.com/d".to_owned());
        assert_eq!(git.dependency("daybook"), "git = \"https://example.com/d\"");
    }

    #[test]
    fn binary_that_was_built_from_sources_has_no_release() {
        assert!(matches!(DaybookSource::release(), Err(ScaffoldError::NoRelease)));
    }
}
