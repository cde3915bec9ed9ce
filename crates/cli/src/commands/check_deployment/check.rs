//! A check, and the lines that describe it and its result.

use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use serde_json::json;

use super::aws_calls::CallError;
use super::deployment::Deployment;
use super::result::CheckResult;
use crate::operator::output_line;

/// A check of one assumption about AWS.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Check {
    #[serde(rename = "check")]
    pub(super) name: &'static str,
    /// The assumption, and what depends on it.
    pub(super) relies_on: &'static str,
    /// Where AWS documents it.
    pub(super) documented: &'static str,
    /// The IAM actions of its calls, besides those of the deletion of rows.
    pub(super) permissions: &'static [&'static str],
    #[serde(skip)]
    pub(super) run: for<'a> fn(&'a mut Deployment) -> LocalBoxFuture<'a, Result<CheckResult, CallError>>,
}

impl Check {
    /// The line of a run that checks nothing.
    pub(super) fn plan_line(&self, as_json: bool) -> String {
        let Self { name, relies_on, documented, permissions, .. } = self;
        let text =
            format!("would-check {name}: {relies_on}; documented: {documented}; needs {}", permissions.join(", "));
        output_line(as_json, json!(self), text)
    }

    pub(super) fn result_line(&self, result: &CheckResult, as_json: bool) -> String {
        let Self { name, relies_on, documented, .. } = self;
        let mut json = json!(result);
        (json["check"], json["reliesOn"], json["documented"]) = (json!(name), json!(relies_on), json!(documented));
        let text = match result {
            CheckResult::AsExpected { seen } => format!("as-expected {name}: {seen}"),
            CheckResult::Differs { expected, seen } => format!(
                "differs {name}: expected {expected}; seen {seen}; the code relies on: {relies_on}; documented: {documented}"
            ),
            CheckResult::NotChecked { reason } => format!("not-checked {name}: {reason}"),
            CheckResult::NotModelled { reason } => format!("not-modelled {name}: {reason}"),
        };
        output_line(as_json, json, text)
    }
}
