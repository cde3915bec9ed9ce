//! The result of a check.

use serde::Serialize;

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum CheckResult {
    /// AWS behaves as the code relies on.
    AsExpected { seen: String },
    /// It does not.
    Differs { expected: String, seen: String },
    /// A call failed, or what should be seen did not happen.
    NotChecked { reason: String },
    /// The local stack has no such behaviour.
    NotModelled { reason: String },
}

impl CheckResult {
    /// As expected if both are equal.
    pub(super) fn compare(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        let (expected, seen) = (expected.into(), seen.into());
        if expected == seen { Self::AsExpected { seen } } else { Self::Differs { expected, seen } }
    }

    pub(super) fn differs(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::Differs { expected: expected.into(), seen: seen.into() }
    }
}
