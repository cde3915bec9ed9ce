//! The files of a project that `daybook new`, `daybook add` and `daybook upgrade` write, and how they are written.
//!
//! Invariant: no line of the user is lost. `new` and `add` write all files of a command or none. They change no file that exists,
//! except the two files with the registrations of aggregates and projections, which get further lines. `upgrade` changes a file
//! that a user may edit only by a three-way merge. It replaces a generated file, and keeps the text of one that was edited.
//!
//! In reading order:
//! - `names`: the names of a project and of what it contains. `source`: where the project gets the crates of Daybook
//!   from, and what the files of the release contain of both.
//! - `files`: the texts of the files. A text that the workspace of Daybook uses too is a link to its file there.
//! - `project_file`: reads and writes the files of a project, and the files of the release as they were written into it.
//!   `merge`: what an upgrade does with one file. `generated`: the files that it replaces. `upgrade`: all files.
//! - `write`: creates the folder of a project, or adds files to one.

mod error;
mod files;
mod generated;
mod merge;
mod names;
mod project_file;
mod source;
mod upgrade;
mod write;

pub use error::ScaffoldError;
pub use files::{aggregate_files, consumer_files, process_files, projection_files};
pub use generated::{check_generated, generate, own_pipeline, own_resources};
pub use merge::FileUpgrade;
pub use names::{ItemName, ProjectName};
pub use project_file::find_project;
pub use source::DaybookSource;
pub use upgrade::Upgrade;
pub use write::{Registration, add_files, create_project};
