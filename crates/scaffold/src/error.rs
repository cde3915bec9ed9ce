//! Why no files were written.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    #[error("the name {name:?} cannot be used: {reason}")]
    Name { name: String, reason: String },
    #[error(
        "this `daybook` was built from sources, not from a release of crates.io; add --path DIR, the folder with the sources, \
         or --git URL"
    )]
    NoRelease,
    #[error("{} exists and is not an empty folder; choose another name, or remove it", path.display())]
    Exists { path: PathBuf },
    #[error(
        "{path} would be replaced, but you have written or edited it: move your text to deploy/own.yaml or to another file, or run \
         `daybook upgrade`, which keeps it beside the generated file"
    )]
    Edited { path: String },
    #[error("{} does not contain the sources of Daybook: it has no crates/daybook/Cargo.toml", path.display())]
    NoSources { path: PathBuf },
    #[error(
        "neither this folder nor one above it contains {manifest}; run this command in the folder of a project that \
         `daybook new` has created"
    )]
    NoProject { manifest: &'static str },
    #[error(
        "no aggregate {name:?} is registered; check --of, or add it first. Run this with `cargo run --` in the folder of the \
         project, because an installed `daybook` does not know your aggregates"
    )]
    NoAggregate { name: String },
    /// Of a projection or a consumer.
    #[error(
        "--of takes one aggregate here, which the example follows: add others to its code, those of a consumer also to \
         `aggregateType` in its template and to `--rule`"
    )]
    SeveralAggregates,
    #[error(transparent)]
    Registration(Box<dyn Error + Send + Sync>),
    #[error("{} exists with other content; nothing was changed", path.display())]
    Different { path: PathBuf },
    /// The project does not contain the files of the release as they were written into it.
    #[error(
        "{} does not exist, so it is not known which files you have changed; nothing was changed. Copy it from an earlier commit, \
         or from a project of the same name that the release which created yours writes with `daybook new`", path.display()
    )]
    NoOriginals { path: PathBuf },
    #[error(
        "Cargo.lock has Daybook {locked}, but this `daybook` is of release {}; nothing was changed. Change the version in \
         Cargo.toml if you want another one, and run this with `cargo run -- upgrade`", env!("CARGO_PKG_VERSION")
    )]
    OtherRelease { locked: String },
    #[error("{} is not UTF-8; nothing was changed", path.display())]
    NotText { path: PathBuf },
    #[error("{} was changed during the upgrade; nothing was changed by it, run it again", path.display())]
    Changed { path: PathBuf },
    #[error("{} has no line {anchor:?} before which to register; nothing was changed: add {line:?} yourself", path.display())]
    NoRegistration { path: PathBuf, anchor: &'static str, line: String },
    #[error("cannot {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
}

impl ScaffoldError {
    pub fn of_output(source: io::Error) -> Self {
        Self::File { doing: "write", path: "standard output".into(), source }
    }

    pub(crate) fn of_file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}
