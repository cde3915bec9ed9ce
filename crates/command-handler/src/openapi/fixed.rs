//! The parts of the document that depend on no code.

use std::sync::LazyLock;

use serde_json::Value;

pub(super) fn fixed(part: &str) -> Value {
    static PARTS: LazyLock<Value> = LazyLock::new(|| {
        serde_json::from_str(include_str!("fixed.json")).expect("the test of the document reads the file")
    });
    PARTS[part].clone()
}
