//! Creates a project.

use std::path::Path;

use crate::error::ScaffoldError;
use crate::files::{own_files, release_files};
use crate::generated::generated_files;
use crate::names::{ItemName, ProjectName};
use crate::originals::{ORIGINALS, Originals};
use crate::parameters::Parameters;
use crate::source::DaybookSource;
use crate::write::create_folder;

/// Creates the folder of a project with one aggregate, or a folder from which `cargo lambda new --template` creates projects. It
/// appears as a whole.
pub fn create_project(
    folder: &Path,
    project: &ProjectName,
    aggregate: &ItemName,
    source: &DaybookSource,
) -> Result<(), ScaffoldError> {
    let mut files = release_files(&Parameters::new(project, source));
    let originals = Originals::new(&files).encode().map_err(ScaffoldError::of_file("write", Path::new(ORIGINALS)))?;
    let manifest =
        files.iter().find(|(path, _)| path == "Cargo.toml").map(|(_, text)| text.clone()).unwrap_or_default();
    files.extend(generated_files(&manifest, false, false));
    files.extend(own_files(project, aggregate, source));
    if project.is_of_lambda_template() {
        files.push(("CargoLambda.toml".to_owned(), include_str!("../template/CargoLambda.toml").to_owned()));
    }
    let mut files: Vec<_> = files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
    files.push((ORIGINALS.to_owned(), originals));
    create_folder(folder, &files)
}
