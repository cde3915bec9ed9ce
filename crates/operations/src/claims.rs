//! Corrects who has the claims of a type: after claims were introduced, or `Aggregate::claims` was changed.

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};

use daybook_admin::AdminCalls;
pub use daybook_admin::UpdatedClaims;
use daybook_decider::{Claim, Model};
use daybook_event_store::{EventStore, StoreError};
use daybook_function_runtime::with_causes;
use daybook_table::keys;
use serde::Serialize;
use serde_json::json;

use crate::error::OperatorError;
use crate::listing::ListedAggregate;
use crate::pacing::Pacer;
use crate::selection::Selection;
use crate::stack::{SETTINGS_TO_FIND, Stack};
use crate::walk::{WalkOptions, Walked};

#[derive(Clone, Debug)]
pub struct ClaimOptions {
    pub aggregate_type: String,
    /// Whether claims are written; otherwise they are only compared.
    pub writes: bool,
    /// Maximum aggregates and claims per second.
    pub rate: NonZeroU32,
    pub concurrency: NonZeroUsize,
}

/// The corrections of an aggregate, or why its state cannot be read.
pub type ClaimResult = Result<UpdatedClaims, String>;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimCounts {
    pub dry_run: bool,
    pub taken: u64,
    pub released: u64,
    pub elsewhere: u64,
    pub failed: u64,
}

/// Releases the claims of aggregates of the type whose states do not have them any more, which it finds by a scan of the table.
/// Then takes those that states have. Reports each change, and each claim that two aggregates should have.
pub async fn rebuild_claims(
    stack: &Stack,
    options: &ClaimOptions,
    mut report: impl FnMut(&str, &ClaimResult) -> io::Result<()>,
) -> Result<Walked<ClaimCounts>, OperatorError> {
    let ClaimOptions { aggregate_type, writes, rate, concurrency } = options.clone();
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let selection = Selection { types: vec![aggregate_type.clone()], ..Selection::default() };
    let walk = WalkOptions { selection, rate, concurrency, checkpoint: None };
    let mut counts = ClaimCounts { dry_run: !writes, ..ClaimCounts::default() };
    for releases in [true, false] {
        let pacer = Pacer::new(rate, stack.interrupt.clone());
        let visit = async |listed: &ListedAggregate, model: Option<&dyn Model>| {
            let updated = match (keys::claim_of_pk(&listed.name), &listed.key, model) {
                _ if let Some(row) = &listed.unreadable => return Some(Ok(Err(row.reason.clone()))),
                (Some(claim), ..) if releases => {
                    pacer.turn().await?;
                    release(stack, &store, options, claim).await
                }
                (None, Some(key), Some(model)) if !releases => {
                    pacer.turn().await?;
                    store.admin().take_claims(model, key, writes).await
                }
                _ => Ok(UpdatedClaims::default()),
            };
            Some(readable(updated))
        };
        let command = ("claims rebuild", json!({}));
        let walked = walk.walk((stack, &store), command, releases, visit, |(), listed, result| {
            counts.add(&result);
            report(&listed.name, &result)
        });
        if walked.await?.how_to_go_on.is_some() {
            return Ok(Walked { counts, how_to_go_on: Some("run it again".to_owned()) });
        }
    }
    Ok(Walked { counts, how_to_go_on: None })
}

/// Releases a claim if an aggregate of the type has it and its state does not.
async fn release(
    stack: &Stack,
    store: &EventStore,
    options: &ClaimOptions,
    claim: Claim,
) -> Result<UpdatedClaims, StoreError> {
    let holder = store.claim(&claim).await?.map(|row| row.holder());
    let holder = holder.filter(|holder| holder.aggregate_type == options.aggregate_type);
    let model = stack.registry.get(&options.aggregate_type);
    let Some((model, holder)) = model.zip(holder) else { return Ok(UpdatedClaims::default()) };
    store.admin().release_claims(model, &holder, &[claim], options.writes).await
}

fn readable(updated: Result<UpdatedClaims, StoreError>) -> Result<ClaimResult, StoreError> {
    match updated {
        Err(error @ (StoreError::Corrupt { .. } | StoreError::Newer { .. } | StoreError::Panicked { .. })) => {
            Ok(Err(with_causes(&error)))
        }
        other => other.map(Ok),
    }
}

impl ClaimCounts {
    fn add(&mut self, result: &ClaimResult) {
        match result {
            Ok(UpdatedClaims { taken, released, elsewhere }) => {
                self.taken += taken.len() as u64;
                self.released += released.len() as u64;
                self.elsewhere += elsewhere.len() as u64;
            }
            Err(_) => self.failed += 1,
        }
    }
}
