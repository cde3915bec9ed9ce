//! Errors as text.

use std::error::Error;
use std::io;

/// The description of the TLS error that an error was caused by, such as a certificate that is not trusted; `None` if
/// it has another cause.
pub fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    let mut causes = std::iter::successors(Some(error), |&error| match error.downcast_ref::<io::Error>() {
        // Its source is the source of the error that it contains, so the contained error would be left out.
        Some(io) => io.get_ref().map(|contained| contained as &(dyn Error + 'static)),
        None => error.source(),
    });
    causes.find_map(|cause| cause.downcast_ref::<rustls::Error>()).map(rustls::Error::to_string)
}

/// An error with its causes in one line, for logs and terminals.
pub fn with_causes(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |&cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

pub fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
