//! The files of a project that `daybook new`, `daybook add` and `daybook upgrade` write.
//!
//! Invariant: no line of the user is lost. `new` and `add` write all files of a command or none, and change no file that exists,
//! except the two files with the registrations, which get further lines. `upgrade` changes a file only by a three-way merge.
//!
//! In reading order:
//! - `names`: the names of a project and of what it contains. `suite`: where the project gets Daybook from. `parameters`: what
//!   the files of the release contain of both.
//! - `files`: the texts of the files. Texts that the workspace of Daybook has too are its own files.
//! - `write`: a new folder, or further files in a project. `originals`: the files of the release as they were written into the
//!   project. `create`: a new project with them.
//! - `merge`: what an upgrade does with one file. `upgrade`: with all files.

mod create;
mod error;
mod files;
mod merge;
mod names;
mod originals;
mod parameters;
mod suite;
mod upgrade;
mod write;

pub(crate) use create::{create_lambda_template, create_project};
pub(crate) use error::ScaffoldError;
pub(crate) use files::{aggregate_files, consumer_files, projection_files};
pub(crate) use names::{ItemName, ProjectName};
pub(crate) use suite::Suite;
pub(crate) use upgrade::Upgrade;
pub(crate) use write::{Added, Registration, add_files};
