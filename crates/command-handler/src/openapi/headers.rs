//! The headers of responses.

use serde_json::{Map, Value};

use super::fixed::fixed;

/// The headers of a response, each with whether it is always present, and with the response's own examples. Every
/// response has a correlation id.
pub(super) fn headers(headers: &[(&str, bool)], example: impl Fn(&str) -> Option<String>) -> Value {
    let mut described = fixed("headers");
    let headers = headers.iter().chain(&[("X-Correlation-Id", true)]).map(|&(name, required)| {
        let mut header = described.get_mut(name).expect("fixed.json describes each header").take();
        header["required"] = required.into();
        if let Some(example) = example(name) {
            header["example"] = example.into();
        }
        // Both kinds of `ETag` have this name in a response.
        (name.strip_prefix("Row-").unwrap_or(name).to_owned(), header)
    });
    headers.collect::<Map<_, _>>().into()
}
