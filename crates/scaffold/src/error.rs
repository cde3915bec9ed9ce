//! Why no files were written.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Why `daybook new`, `daybook add` or `daybook upgrade` failed.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// A name cannot be used.
    #[error("the name {name:?} cannot be used: {reason}")]
    Name {
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The binary does not know a release that a project can depend on.
    #[error(
        "this `daybook` was built from sources, not from a release of crates.io; add --path DIR, the folder with the sources, \
         or --git URL"
    )]
    NoRelease,
    /// The folder of a new project has content.
    #[error("{} exists and is not an empty folder; choose another name, or remove it", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A file that would be generated has a text of the user.
    #[error(
        "{path} would be replaced, but you have written or edited it: move your text to deploy/own.yaml or to another file, or run \
         `daybook upgrade`, which keeps it beside the generated file"
    )]
    Edited { path: String },
    /// The folder of `--path` does not contain the sources of Daybook.
    #[error("{} does not contain the sources of Daybook: it has no crates/daybook/Cargo.toml", path.display())]
    NoSources {
        /// The folder.
        path: PathBuf,
    },
    /// The current folder is not in a project.
    #[error(
        "neither this folder nor one above it contains {manifest}; run this command in the folder of a project that \
         `daybook new` has created"
    )]
    NoProject {
        /// The file that a project has.
        manifest: &'static str,
    },
    /// A projection or a consumer cannot follow an aggregate that is not registered.
    #[error(
        "no aggregate {name:?} is registered; check --of, or add it first. Run this with `cargo run --` in the folder of the \
         project, because an installed `daybook` does not know your aggregates"
    )]
    NoAggregate {
        /// The name of the aggregate.
        name: String,
    },
    /// The aggregates cannot be registered.
    #[error(transparent)]
    Registration(Box<dyn Error + Send + Sync>),
    /// A file exists whose content differs from the text to write.
    #[error("{} exists with other content; nothing was changed", path.display())]
    Different {
        /// The file.
        path: PathBuf,
    },
    /// The project does not contain the files of the release that created it.
    #[error(
        "{} does not exist, so it is not known which files you have changed; nothing was changed. Pass --from FOLDER, where \
         FOLDER contains the project as it was created, for example its first commit, or a project of the same name that the \
         release which created yours writes with `daybook new`", path.display()
    )]
    NoOriginals {
        /// The file that contains them.
        path: PathBuf,
    },
    /// The originals lack the texts from which the name of the project and its dependency are read.
    #[error(
        "{} does not contain an unchanged project: Cargo.toml or samconfig.toml is not as `daybook new` writes it; nothing was \
         changed", folder.display()
    )]
    NotUnchanged { folder: PathBuf },
    /// The project depends on another release than this binary is of.
    #[error(
        "Cargo.lock has Daybook {locked}, but this `daybook` is of release {}; nothing was changed. Change the version in \
         Cargo.toml if you want another one, and run this with `cargo run -- upgrade`", env!("CARGO_PKG_VERSION")
    )]
    OtherRelease {
        /// The release that the project depends on.
        locked: String,
    },
    /// A file is not text.
    #[error("{} is not UTF-8; nothing was changed", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A file has changed since it was compared.
    #[error("{} was changed during the upgrade; nothing was changed by it, run it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file with the registrations lacks the line before which a registration is added.
    #[error("{} has no line {anchor:?} before which to register; nothing was changed: add {line:?} yourself", path.display())]
    NoRegistration {
        /// The file.
        path: PathBuf,
        /// The missing line.
        anchor: &'static str,
        /// The line to add.
        line: String,
    },
    /// A file or folder cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

impl ScaffoldError {
    /// Turns an error of standard output into this error.
    pub fn of_output(source: io::Error) -> Self {
        Self::File { doing: "write", path: "standard output".into(), source }
    }

    /// Turns an error of a file or folder into this error.
    pub(crate) fn of_file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}
