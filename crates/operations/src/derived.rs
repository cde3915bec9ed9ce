//! Corrects the claims or the deadlines of a type: after they were introduced, or `Aggregate::claims` or `Aggregate::deadlines` was
//! changed.

use std::io;

use daybook_admin::AdminCalls;
pub use daybook_admin::{Corrected, CorrectedClaims, Derived};
use daybook_decider::{Claim, Model};
use daybook_event_store::{EventStore, StoreError};
use daybook_function_runtime::with_causes;
use daybook_table::keys;
use serde::Serialize;

use crate::error::OperatorError;
use crate::pacing::Pacer;
use crate::selection::ListedAggregate;
use crate::stack::{SETTINGS_TO_FIND, Stack};
use crate::walk::{WalkOptions, Walked};

/// The corrections of an aggregate, or why its state cannot be read.
pub type CorrectedResult = Result<Corrected, String>;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CorrectedCounts {
    pub dry_run: bool,
    /// The claims that were taken, or the deadlines that were set.
    pub added: u64,
    /// The claims that were released, or the deadlines that were deleted.
    pub removed: u64,
    /// The claims that another aggregate has.
    pub elsewhere: u64,
    pub failed: u64,
}

/// Corrects the rows of all aggregates of the selected type. Claims that states do not have any more are found by a scan of the
/// table, and released first. Reports each change, and each claim that two aggregates should have. With `writes` unset, it
/// changes nothing.
pub async fn rebuild(
    stack: &Stack,
    options: &WalkOptions,
    rows: Derived<'_>,
    writes: bool,
    mut report: impl FnMut(&str, &CorrectedResult) -> io::Result<()>,
) -> Result<Walked<CorrectedCounts>, OperatorError> {
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let mut counts = CorrectedCounts { dry_run: !writes, ..CorrectedCounts::default() };
    let scans = match rows {
        Derived::Claims(_) => &[true, false][..],
        Derived::Deadlines { .. } => &[false],
    };
    for &scan in scans {
        let pacer = Pacer::new(options.rate, stack.interrupt.clone());
        let visit = async |listed: &ListedAggregate, model: Option<&dyn Model>| {
            let corrected = match (keys::claim_of_pk(&listed.name), &listed.key, model) {
                _ if let Some(row) = &listed.unreadable => return Some(Ok(Err(row.reason.clone()))),
                (Some(claim), ..) if scan => {
                    pacer.turn().await?;
                    release(stack, &store, options, claim, writes).await
                }
                (None, Some(key), Some(model)) if !scan => {
                    pacer.turn().await?;
                    store.admin().correct(model, key, rows, writes).await
                }
                _ => Ok(Corrected::default()),
            };
            Some(match corrected {
                Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => Err(error),
                unreadable_or_corrected => Ok(unreadable_or_corrected.map_err(|error| with_causes(&error))),
            })
        };
        let report = |(): &mut (), listed: &ListedAggregate, result| {
            counts.add(&result);
            report(&listed.name, &result)
        };
        let walk = options.walk(stack, &store, scan).await?;
        if walk.run(visit, report).await?.how_to_go_on.is_some() {
            return Ok(Walked { counts, how_to_go_on: Some("run it again".to_owned()) });
        }
    }
    Ok(Walked { counts, how_to_go_on: None })
}

/// Releases a claim if an aggregate of the type has it and its state does not. What else is to correct is reported later.
async fn release(
    stack: &Stack,
    store: &EventStore,
    options: &WalkOptions,
    claim: Claim,
    writes: bool,
) -> Result<Corrected, StoreError> {
    let holder = store.claim(&claim).await?.map(|row| row.holder());
    let holder = holder.filter(|holder| options.selection.types.contains(&holder.aggregate_type));
    let model = holder.as_ref().and_then(|holder| stack.registry.get(&holder.aggregate_type));
    let (Some(holder), Some(model)) = (holder, model) else { return Ok(Corrected::default()) };
    let mut corrected = store.admin().correct(model, &holder, Derived::Claims(&[claim]), writes).await?;
    corrected.claims.elsewhere.clear();
    if !writes {
        corrected.claims.taken.clear();
    }
    Ok(corrected)
}

impl CorrectedCounts {
    fn add(&mut self, result: &CorrectedResult) {
        match result {
            Ok(Corrected { claims, deadlines }) => {
                self.added += (claims.taken.len() + deadlines.set.len()) as u64;
                self.removed += (claims.released.len() + deadlines.dropped.len()) as u64;
                self.elsewhere += claims.elsewhere.len() as u64;
            }
            Err(_) => self.failed += 1,
        }
    }
}
