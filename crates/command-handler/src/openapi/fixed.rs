//! The parts of the document that depend on no code, the headers of responses, which are made of them, and sample values.

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value};
use ulid::Ulid;

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

/// The id in all examples.
pub const ID: &str = "123";

/// The time of all examples: 2026-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The time up to which the feeds of the examples are settled: a minute later.
pub(crate) const SETTLED: Timestamp = Timestamp::constant(1_767_225_660, 0);

/// A ULID at the time of the examples: the same at every run.
pub(crate) fn ulid(random: u128) -> Ulid {
    Ulid::from_parts(u64::try_from(NOW.as_millisecond()).unwrap_or_default(), random)
}
