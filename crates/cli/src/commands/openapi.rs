//! `daybook openapi`: prints the OpenAPI document of the API, for clients and for the copy in `docs/openapi.json`.

use std::io::{self, Write};

use daybook_local_stack::Project;

use crate::operator::{Exit, OperatorError};

/// The text of the document, as in `docs/openapi.json`.
pub fn text(project: Project) -> Result<String, OperatorError> {
    let projections = (project.projections)()?;
    Ok(format!("{:#}\n", daybook_command_handler::openapi::document(&(project.aggregates)()?, &projections)))
}

/// Prints the document.
pub fn print(project: Project) -> Result<Exit, OperatorError> {
    Ok(Exit::of_output(io::stdout().write_all(text(project)?.as_bytes()))?)
}
