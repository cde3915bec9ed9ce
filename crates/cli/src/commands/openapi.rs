//! `daybook openapi`: prints the OpenAPI document of the API, for clients and for the copy in `docs/openapi.json`.

use std::io::{self, Write};

use crate::operator::{Exit, OperatorError};
use crate::project::Project;

/// The text of the document, as in `docs/openapi.json`.
///
/// # Errors
///
/// When the aggregates or the projections cannot be registered.
pub fn text(project: Project) -> Result<String, OperatorError> {
    let projections = (project.projections)()?;
    Ok(format!("{:#}\n", daybook_command_handler::openapi::document(&(project.aggregates)()?, &projections)))
}

/// Prints the document.
///
/// # Errors
///
/// When the aggregates or the projections cannot be registered, or standard output cannot be written.
pub fn print(project: Project) -> Result<Exit, OperatorError> {
    Ok(Exit::of_output(io::stdout().write_all(text(project)?.as_bytes()))?)
}
