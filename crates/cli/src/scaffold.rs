//! The files of a project that `daybook new` and `daybook add` write.
//!
//! Invariant: either all files of a command are written, or none. A file that exists is never changed. The two files
//! with the registrations of aggregates and projections are an exception: they get further lines.
//!
//! In reading order:
//! - `names`: the names of a project and of what it contains. `source`: where the project gets the crates of Daybook
//!   from.
//! - `files`: the texts of the files. A text that the workspace of Daybook uses too is a link to its file there.
//! - `write`: creates the folder of a project, or adds files to a project.

mod error;
mod files;
mod names;
mod source;
mod write;

pub(crate) use error::ScaffoldError;
pub(crate) use files::{aggregate_files, consumer_files, project_files, projection_files};
pub(crate) use names::{ItemName, ProjectName};
pub(crate) use source::DaybookSource;
pub(crate) use write::{Added, Registration, add_files, create_folder};
