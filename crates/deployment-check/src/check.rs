//! A check, and its result.

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use crate::aws_calls::CallError;
use crate::deployment::Deployment;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    #[serde(rename = "check")]
    pub name: &'static str,
    /// The assumption, and what depends on it.
    pub relies_on: &'static str,
    pub documented: &'static str,
    /// The IAM actions of its calls, besides those of the deletion of rows.
    pub permissions: &'static [&'static str],
    #[serde(skip)]
    pub(super) run: for<'a> fn(&'a mut Deployment) -> LocalBoxFuture<'a, Result<CheckResult, CallError>>,
}

/// What a check has found. It is not checked if a call failed, or if what should be seen did not happen; not modelled if the local
/// stack has no such behaviour.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum CheckResult {
    AsExpected { seen: String },
    Differs { expected: String, seen: String },
    NotChecked { detail: String },
    NotModelled { detail: String },
}

impl CheckResult {
    pub(super) fn compare(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        let (expected, seen) = (expected.into(), seen.into());
        if expected == seen { Self::AsExpected { seen } } else { Self::Differs { expected, seen } }
    }

    pub(super) fn not_checked(error: &CallError, is_local: bool) -> Self {
        Self::not_seen(error.to_string(), is_local && error.is_unknown_operation())
    }

    pub(super) fn not_seen(detail: String, is_model: bool) -> Self {
        if is_model { Self::NotModelled { detail } } else { Self::NotChecked { detail } }
    }
}
