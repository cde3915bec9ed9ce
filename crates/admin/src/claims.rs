//! Claims: which aggregate has a unique value, and corrections where that is not what the code returns for the states of
//! the aggregates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_decider::{AggregatePanic, Claim, ClaimChanges, Folded, Model, Registry};
use daybook_event_store::internal::{Backoff, ImportOptions, Item, NewEvents, is_valid_checksum};
use daybook_event_store::{AppendError, StoreError};
use daybook_table::{AggregateKey, ClaimItem, keys};
use tokio::time::Instant;

use crate::handle::{Admin, RowKey};
use crate::verify::{Discrepancy, Finding, Verified};

/// The time for which a correction is repeated while others write to the aggregate.
const PATIENCE: Duration = Duration::from_secs(30);

/// The corrected claims of an aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdatedClaims {
    /// The claims that it has now, or would have.
    pub taken: Vec<Claim>,
    /// The claims that it had, or would not have any more.
    pub released: Vec<Claim>,
    /// The claims that it should have, and another aggregate has.
    pub elsewhere: Vec<(Claim, AggregateKey)>,
}

impl Admin<'_> {
    /// The aggregates that have these claims, strongly consistent.
    async fn holders(&self, claims: &[Claim]) -> Result<BTreeMap<Claim, AggregateKey>, StoreError> {
        let rows: BTreeSet<_> = claims.iter().map(|claim| (keys::claim_pk(claim), keys::CLAIM.to_owned())).collect();
        let rows = self.items("read claims", rows, None).await?;
        let holder = |((pk, _), row): (RowKey, Item)| -> Result<Option<(Claim, AggregateKey)>, StoreError> {
            let corrupt = |error: serde_dynamo::Error| StoreError::Corrupt { item: pk.clone(), source: error.into() };
            let row: ClaimItem = serde_dynamo::from_item(row).map_err(corrupt)?;
            Ok(keys::claim_of_pk(&pk).map(|claim| (claim, row.holder())))
        };
        rows.into_iter().filter_map(|row| holder(row).transpose()).collect()
    }

    /// The claims of this state that the aggregate does not have, each with the aggregate that has it.
    pub(crate) async fn missing_claims(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
    ) -> Result<Vec<(Claim, Option<AggregateKey>)>, StoreError> {
        let claims = claims(model, key, folded)?;
        let mut holders = if claims.is_empty() { BTreeMap::new() } else { self.holders(&claims).await? };
        let holders = claims.into_iter().map(|claim| {
            let holder = holders.remove(&claim);
            (claim, holder)
        });
        Ok(holders.filter(|(_, holder)| holder.as_ref() != Some(key)).collect())
    }

    /// Takes the claims of an aggregate that nobody has. With `writes` unset, it only reports them. It is safe beside writers:
    /// the transaction is conditional on the version of the aggregate, and on the holders of the claims.
    pub async fn take_claims(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        writes: bool,
    ) -> Result<UpdatedClaims, StoreError> {
        self.update_claims(model, key, writes, async |folded: &Folded| {
            let mut updated = UpdatedClaims::default();
            for (claim, holder) in self.missing_claims(model, key, folded).await? {
                match holder {
                    Some(holder) => updated.elsewhere.push((claim, holder)),
                    None => updated.taken.push(claim),
                }
            }
            Ok(updated)
        })
        .await
    }

    /// Releases those of these claims that an aggregate has and should not have; otherwise like
    /// [`take_claims`](Self::take_claims).
    pub async fn release_claims(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        stale: &[Claim],
        writes: bool,
    ) -> Result<UpdatedClaims, StoreError> {
        self.update_claims(model, key, writes, async |folded: &Folded| {
            let (claimed, holders) = (claims(model, key, folded)?, self.holders(stale).await?);
            let held = holders.into_iter().filter(|(claim, holder)| holder == key && !claimed.contains(claim));
            Ok(UpdatedClaims { released: held.map(|(claim, _)| claim).collect(), ..UpdatedClaims::default() })
        })
        .await
    }

    /// Writes the changes of the claims of an aggregate, or returns those that would be written. It begins again if another writer
    /// was faster, also without writing: states and rows that were read at different versions may differ.
    async fn update_claims(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        writes: bool,
        updates: impl AsyncFn(&Folded) -> Result<UpdatedClaims, StoreError>,
    ) -> Result<UpdatedClaims, StoreError> {
        let mut backoff = Backoff::until(Instant::now() + PATIENCE);
        loop {
            let folded = self.store.load(model, key).await?.folded;
            let updated = updates(&folded).await?;
            if updated == UpdatedClaims::default() {
                return Ok(updated);
            }
            let UpdatedClaims { taken, released, .. } = updated.clone();
            let changes = ClaimChanges { taken, released };
            let result = if !writes || changes == ClaimChanges::default() {
                let actual = self.version_in_metadata(key).await?.unwrap_or(0);
                if actual == folded.version() { Ok(()) } else { Err(AppendError::Conflict { actual }) }
            } else {
                let new = NewEvents { events: &[], messages: &[], claims: &changes, after: &folded };
                let options = ImportOptions { publish: false, now: self.store.now() };
                self.store.import(model, key, folded.version(), new, options, Instant::now() + PATIENCE).await
            };
            match result {
                Ok(()) => return Ok(updated),
                Err(AppendError::Store(error)) => return Err(error),
                // Another writer was faster, or the outcome is unknown: the rows decide.
                Err(_) if backoff.wait().await => {}
                Err(error) => return Err(StoreError::Unavailable { doing: "correct claims", source: error.into() }),
            }
        }
    }

    /// Checks the row of a claim, and that the aggregate that has it has it in its state.
    pub async fn verify_claim(&self, registry: &Registry, claim: &Claim) -> Result<Verified, StoreError> {
        let mut verified = Verified { rows: 1, ..Verified::default() };
        let key = (keys::claim_pk(claim), keys::CLAIM.to_owned());
        let Some(row) = self.items("read a claim", [key.clone()].into(), None).await?.remove(&key) else {
            return Ok(verified);
        };
        let is_unchanged = is_valid_checksum(&row);
        let (aggregate, discrepancy) = match serde_dynamo::from_item::<_, ClaimItem>(row).map(|row| row.holder()) {
            Err(error) => (AggregateKey::new("", ""), Some(Discrepancy::Unreadable { reason: error.to_string() })),
            Ok(holder) => {
                let stale = match registry.get(&holder.aggregate_type) {
                    Some(model) => self.release_claims(model, &holder, std::slice::from_ref(claim), false).await,
                    None => Ok(UpdatedClaims { released: vec![claim.clone()], ..UpdatedClaims::default() }),
                };
                let discrepancy = match stale {
                    Err(StoreError::Unavailable { doing, source }) => {
                        return Err(StoreError::Unavailable { doing, source });
                    }
                    Err(error) => Some(Discrepancy::Unreadable { reason: error.to_string() }),
                    Ok(_) if !is_unchanged => Some(Discrepancy::Changed),
                    Ok(updated) if updated.released.is_empty() => None,
                    Ok(_) => Some(Discrepancy::ClaimStale { holder: holder.to_string() }),
                };
                (holder, discrepancy)
            }
        };
        let finding = |discrepancy| Finding { aggregate, item: keys::CLAIM.to_owned(), discrepancy };
        verified.findings.extend(discrepancy.map(finding));
        Ok(verified)
    }
}

fn claims(model: &dyn Model, key: &AggregateKey, folded: &Folded) -> Result<Vec<Claim>, StoreError> {
    let panicked = |panic: AggregatePanic| StoreError::Panicked { item: key.to_string(), source: Box::new(panic) };
    model.claims(folded).map_err(panicked)
}
