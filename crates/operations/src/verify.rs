//! Checks that the rows of aggregates are those that appends and snapshots write.

use std::io;

use daybook_admin::{AdminCalls, Discrepancy, Finding, Verified};
use daybook_decider::Model;
use daybook_table::keys;
use jiff::Timestamp;
use serde::Serialize;

use crate::error::OperatorError;
use crate::pacing::Pacer;
use crate::selection::ListedAggregate;
use crate::stack::{SETTINGS_TO_VERIFY, Stack};
use crate::walk::{WalkOptions, Walked};

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyCounts {
    pub aggregates: u64,
    pub events: u64,
    pub messages: u64,
    pub snapshots: u64,
    pub outdated_snapshots: u64,
    pub findings: u64,
    pub aggregates_with_findings: u64,
    /// Differences that another release may have caused.
    pub warnings: u64,
}

#[derive(Debug)]
pub struct VerifyFinding {
    pub item: String,
    pub kind: &'static str,
    pub detail: String,
}

impl VerifyFinding {
    pub(crate) fn new(Finding { item, discrepancy, .. }: &Finding, is_local: bool) -> Self {
        let detail = match discrepancy {
            Discrepancy::MessageMissing { .. } if is_local => {
                format!("{discrepancy}, unless the clock of the local stack was moved")
            }
            _ => discrepancy.to_string(),
        };
        Self { item: item.clone(), kind: discrepancy.code(), detail }
    }
}

/// Verifies the selected aggregates, or with `scan` all rows of the table. Reports findings and warnings with the name of the
/// aggregate.
pub async fn verify(
    stack: &Stack,
    options: &WalkOptions,
    scan: bool,
    mut report: impl FnMut(&str, VerifyFinding) -> io::Result<()>,
) -> Result<Walked<VerifyCounts>, OperatorError> {
    let store = stack.store(SETTINGS_TO_VERIFY).await?;
    let named = !options.selection.aggregates.is_empty();
    let pacer = Pacer::new(options.rate, stack.interrupt.clone());
    let visit = async |aggregate: &ListedAggregate, model: Option<&dyn Model>| {
        pacer.turn().await?;
        Some(match (model, &aggregate.key) {
            (Some(model), Some(key)) => store.admin().verify(model, key, Timestamp::now()).await.map(Some),
            _ if let Some(claim) = keys::claim_of_pk(&aggregate.name) => {
                store.admin().verify_claim(&stack.registry, &claim).await.map(Some)
            }
            // The type is not registered, the rows belong to no aggregate, or a row of the index cannot be read.
            _ => Ok(None),
        })
    };
    let report = |counts: &mut VerifyCounts, aggregate: &ListedAggregate, verified: Option<Verified>| {
        let (findings, warnings) = found(aggregate, verified.as_ref(), named, stack.is_local());
        counts.aggregates += u64::from(keys::claim_of_pk(&aggregate.name).is_none());
        counts.add(verified.as_ref(), findings.len() as u64, warnings.len() as u64);
        findings.into_iter().chain(warnings).try_for_each(|finding| report(&aggregate.name, finding))
    };
    options.walk(stack, &store, scan).await?.run(visit, report).await
}

fn found(
    aggregate: &ListedAggregate,
    verified: Option<&Verified>,
    named: bool,
    is_local: bool,
) -> (Vec<VerifyFinding>, Vec<VerifyFinding>) {
    let one = |item: &str, kind, detail: &str| {
        (vec![VerifyFinding { item: item.to_owned(), kind, detail: detail.to_owned() }], vec![])
    };
    match (&aggregate.unreadable, verified) {
        (Some(row), _) => one(&row.sk, "unreadable", &row.reason),
        (None, None) => one("*", "unregistered", "no aggregate of this type is registered"),
        (None, Some(verified)) if verified.rows == 0 && named => one("*", "missing", "it does not exist"),
        (None, Some(verified)) => {
            let [findings, warnings] = [&verified.findings, &verified.warnings]
                .map(|found| found.iter().map(|finding| VerifyFinding::new(finding, is_local)).collect());
            (findings, warnings)
        }
    }
}

impl VerifyCounts {
    fn add(&mut self, verified: Option<&Verified>, findings: u64, warnings: u64) {
        self.findings += findings;
        self.warnings += warnings;
        self.aggregates_with_findings += u64::from(findings > 0);
        if let Some(verified) = verified {
            self.events += verified.events;
            self.messages += verified.messages;
            self.snapshots += verified.snapshots;
            self.outdated_snapshots += verified.outdated;
        }
    }
}
