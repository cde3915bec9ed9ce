//! A check.

use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use super::aws_calls::CallError;
use super::deployment::Deployment;
use super::result::CheckResult;

/// A check of one assumption about AWS.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    #[serde(rename = "check")]
    pub name: &'static str,
    /// The assumption, and what depends on it.
    pub relies_on: &'static str,
    /// Where AWS documents it.
    pub documented: &'static str,
    /// The IAM actions of its calls, besides those of the deletion of rows.
    pub permissions: &'static [&'static str],
    #[serde(skip)]
    pub(super) run: for<'a> fn(&'a mut Deployment) -> LocalBoxFuture<'a, Result<CheckResult, CallError>>,
}
