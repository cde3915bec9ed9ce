//! The files of a project that `daybook new` and `daybook add` write.
//!
//! Invariant: either all files of a command are written, or none. A file that exists is never changed, except the two files
//! with the registrations, which get further lines.
//!
//! In reading order:
//! - `names`: the names of a project and of what it contains. `suite`: where the project gets Daybook from.
//! - `files`: the texts of the files. Texts that the workspace of Daybook has too are its own files.
//! - `write`: a new folder, or further files in a project.

mod error;
mod files;
mod names;
mod suite;
mod write;

pub(crate) use error::ScaffoldError;
pub(crate) use files::{aggregate_files, consumer_files, project_files, projection_files};
pub(crate) use names::{ItemName, ProjectName};
pub(crate) use suite::Suite;
pub(crate) use write::{Added, Registration, add_files, create_folder};
