//! Creates a project.

use std::path::Path;

use super::error::ScaffoldError;
use super::files::{File, own_files, release_files};
use super::names::{ItemName, ProjectName};
use super::originals::{ORIGINALS, Originals};
use super::parameters::Parameters;
use super::source::DaybookSource;
use super::write::create_folder;

/// Creates the folder of a project with one aggregate. It appears as a whole.
///
/// # Errors
///
/// When the folder exists and is not empty, or cannot be written.
pub(crate) fn create_project(
    folder: &Path,
    project: &ProjectName,
    aggregate: &ItemName,
    source: &DaybookSource,
) -> Result<(), ScaffoldError> {
    create(folder, project, aggregate, source, &[])
}

/// Creates a folder from which `cargo lambda new --template` creates projects. Their originals contain the placeholder, as if the
/// user had changed it to the name.
///
/// # Errors
///
/// As for a project.
pub(crate) fn create_lambda_template(
    folder: &Path,
    aggregate: &ItemName,
    source: &DaybookSource,
) -> Result<(), ScaffoldError> {
    let settings = include_str!("../../template/CargoLambda.toml");
    let more = [("CargoLambda.toml".to_owned(), settings.to_owned())];
    create(folder, &ProjectName::of_lambda_template(), aggregate, source, &more)
}

fn create(
    folder: &Path,
    project: &ProjectName,
    aggregate: &ItemName,
    source: &DaybookSource,
    more: &[File],
) -> Result<(), ScaffoldError> {
    let mut files = release_files(&Parameters::new(project, source));
    let originals = Originals::new(&files).encode().map_err(ScaffoldError::of_file("write", Path::new(ORIGINALS)))?;
    files.extend(own_files(project, aggregate, source));
    files.extend_from_slice(more);
    let mut files: Vec<_> = files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
    files.push((ORIGINALS.to_owned(), originals));
    create_folder(folder, &files)
}
