//! What the files of the release contain of the project.

use std::collections::BTreeMap;

use crate::names::ProjectName;
use crate::source::DaybookSource;

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
