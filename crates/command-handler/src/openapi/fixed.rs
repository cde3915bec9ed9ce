//! The parts of the document that depend on no code, and the headers of responses, which are made of them.

use std::sync::LazyLock;

use serde_json::{Map, Value};

pub(super) fn fixed(part: &str) -> Value {
    static PARTS: LazyLock<Value> = LazyLock::new(|| {
        serde_json::from_str(include_str!("fixed.json")).expect("the test of the document reads the file")
    });
    PARTS[part].clone()
}

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
