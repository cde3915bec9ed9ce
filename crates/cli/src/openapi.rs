//! `daybook openapi`: the API's document, for clients and for the copy in `docs/openapi.json`.

use decider::RegistrationError;

/// The document as it is checked in.
///
/// # Errors
///
/// When the aggregates cannot be registered.
pub fn text() -> Result<String, RegistrationError> {
    Ok(format!("{:#}\n", command_handler::openapi::document(&aggregates::registry()?)))
}

/// Prints it.
///
/// # Errors
///
/// Those of [`text`].
#[expect(clippy::print_stdout, reason = "it is what was asked for")]
pub fn print() -> Result<(), RegistrationError> {
    print!("{}", text()?);
    Ok(())
}
