//! `daybook openapi`: prints the OpenAPI document of the API, for clients and for the copy in `docs/openapi.json`.

use std::io::{self, Write};

use crate::operator::{Exit, OperatorError};

/// The text of the document, as in `docs/openapi.json`.
///
/// # Errors
///
/// When the aggregates or the projections cannot be registered.
pub fn text() -> Result<String, OperatorError> {
    let projections = projections::projections()?;
    Ok(format!("{:#}\n", daybook_command_handler::openapi::document(&aggregates::registry()?, &projections)))
}

/// Prints the document.
///
/// # Errors
///
/// When the aggregates or the projections cannot be registered, or standard output cannot be written.
pub fn print() -> Result<Exit, OperatorError> {
    Ok(Exit::of_output(io::stdout().write_all(text()?.as_bytes()))?)
}
