//! `daybook openapi`: the API's document, for clients and for the copy in `docs/openapi.json`.

use std::io::{self, Write};

use daybook_decider::RegistrationError;

use crate::operator::{Exit, OperateError};

/// The document as it is checked in.
///
/// # Errors
///
/// When the aggregates cannot be registered.
pub fn text() -> Result<String, RegistrationError> {
    Ok(format!("{:#}\n", daybook_command_handler::openapi::document(&aggregates::registry()?)))
}

/// Prints it.
///
/// # Errors
///
/// Those of [`text`], and of the output.
pub fn print() -> Result<Exit, OperateError> {
    Ok(Exit::of_output(io::stdout().write_all(text()?.as_bytes()))?)
}
