//! Errors as text, and counts of failures, also by the version of the function.

use std::error::Error;
use std::io;

use metrics::counter;

/// The failures of a function, of which a metric also counts those of its version, by which a deployment is rolled back.
///
/// All kinds of failures share one metric with this dimension, because CloudWatch bills each value of a dimension as a metric.
/// Versions without failures have no value.
#[derive(Clone, Debug)]
pub struct FailureCounter {
    name: &'static str,
    function_version: Option<String>,
}

impl FailureCounter {
    /// A counter whose metric by version has this name.
    pub fn new(name: &'static str) -> Self {
        Self { name, function_version: None }
    }

    /// Also counts failures under this version of the function, if there is one.
    pub fn set_version(&mut self, function_version: Option<String>) {
        self.function_version = function_version;
    }

    /// Counts a failure of a kind that has a metric of this name, too.
    pub fn count(&self, name: &'static str) {
        counter!(name).increment(1);
        self.count_of_version(1);
    }

    /// Counts failures of any kind.
    pub fn count_of_version(&self, failures: u64) {
        if let Some(version) = self.function_version.as_ref().filter(|_| failures > 0) {
            counter!(self.name, "FunctionVersion" => version.clone()).increment(failures);
        }
    }
}

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

/// The beginning of a text that may be too long to print.
pub fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
