//! Corrects who has the claims of a type: after claims were introduced, or `Aggregate::claims` was changed.

use std::io;

use daybook_admin::AdminCalls;
pub use daybook_admin::CorrectedClaims;
use daybook_decider::{Claim, Model};
use daybook_event_store::{EventStore, StoreError};
use daybook_function_runtime::with_causes;
use daybook_table::keys;
use serde::Serialize;
use serde_json::json;

use crate::error::OperatorError;
use crate::listing::ListedAggregate;
use crate::pacing::Pacer;
use crate::stack::{SETTINGS_TO_FIND, Stack};
use crate::walk::{WalkOptions, Walked};

/// The corrections of an aggregate, or why its state cannot be read.
pub type ClaimResult = Result<CorrectedClaims, String>;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimCounts {
    pub dry_run: bool,
    pub taken: u64,
    pub released: u64,
    pub elsewhere: u64,
    pub failed: u64,
}

/// Releases the claims of aggregates of the selected type whose states do not have them any more, which it finds by a scan of the
/// table. Then takes those that states have. Reports each change, and each claim that two aggregates should have. With `writes`
/// unset, it changes nothing.
pub async fn rebuild_claims(
    stack: &Stack,
    options: &WalkOptions,
    writes: bool,
    mut report: impl FnMut(&str, &ClaimResult) -> io::Result<()>,
) -> Result<Walked<ClaimCounts>, OperatorError> {
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let mut counts = ClaimCounts { dry_run: !writes, ..ClaimCounts::default() };
    for scan in [true, false] {
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
                    store.admin().correct_claims(model, key, &[], writes).await
                }
                _ => Ok(CorrectedClaims::default()),
            };
            Some(match corrected {
                Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => Err(error),
                unreadable_or_corrected => Ok(unreadable_or_corrected.map_err(|error| with_causes(&error))),
            })
        };
        let walked = options.walk((stack, &store), ("claims rebuild", json!({})), scan, visit, |(), listed, result| {
            counts.add(&result);
            report(&listed.name, &result)
        });
        if walked.await?.how_to_go_on.is_some() {
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
) -> Result<CorrectedClaims, StoreError> {
    let holder = store.claim(&claim).await?.map(|row| row.holder());
    let holder = holder.filter(|holder| options.selection.types.contains(&holder.aggregate_type));
    let Some((holder, model)) =
        holder.and_then(|holder| Some((holder.clone(), stack.registry.get(&holder.aggregate_type)?)))
    else {
        return Ok(CorrectedClaims::default());
    };
    let mut corrected = store.admin().correct_claims(model, &holder, &[claim], writes).await?;
    corrected.elsewhere.clear();
    if !writes {
        corrected.taken.clear();
    }
    Ok(corrected)
}

impl ClaimCounts {
    fn add(&mut self, result: &ClaimResult) {
        match result {
            Ok(CorrectedClaims { taken, released, elsewhere }) => {
                self.taken += taken.len() as u64;
                self.released += released.len() as u64;
                self.elsewhere += elsewhere.len() as u64;
            }
            Err(_) => self.failed += 1,
        }
    }
}
