//! Claims: which aggregate has a unique value, and corrections where that is not what the code returns for the states of
//! the aggregates.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_decider::{AggregatePanic, Claim, ClaimChanges, DeadlineChanges, Folded, Model};
use daybook_event_store::internal::{Backoff, ImportOptions, Item, NewEvents, text};
use daybook_event_store::{AppendError, StoreError};
use daybook_table::{AggregateKey, attributes, keys};
use tokio::time::Instant;

use crate::handle::{Admin, RowKey};

/// The time for which a correction is repeated while others write to the aggregate.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorrectedClaims {
    /// The claims that it has now, or would have.
    pub taken: Vec<Claim>,
    /// The claims that it had, or would not have any more.
    pub released: Vec<Claim>,
    /// The claims that it should have, and another aggregate has.
    pub elsewhere: Vec<(Claim, AggregateKey)>,
}

impl Admin<'_> {
    /// The corrections of an aggregate with this state: takes the claims that nobody has, and releases those of `suspects` that
    /// it has and its state does not have.
    pub(crate) async fn claims_to_correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
        suspects: &[Claim],
    ) -> Result<CorrectedClaims, StoreError> {
        let panicked = |panic: AggregatePanic| StoreError::Panicked { item: key.to_string(), source: Box::new(panic) };
        let claims = model.claims(folded).map_err(panicked)?;
        let rows: BTreeSet<_> = claims.iter().chain(suspects).map(row_key).collect();
        let rows = self.items("read claims", rows, None).await?.into_iter();
        let holders = rows.filter_map(|((pk, _), row)| Some((keys::claim_of_pk(&pk)?, holder(&row))));
        let (mut holders, mut corrected) = (holders.collect::<BTreeMap<_, _>>(), CorrectedClaims::default());
        for claim in claims {
            match holders.remove(&claim) {
                Some(holder) if holder == *key => {}
                Some(holder) => corrected.elsewhere.push((claim, holder)),
                None => corrected.taken.push(claim),
            }
        }
        corrected.released = holders.into_iter().filter(|(_, holder)| holder == key).map(|(claim, _)| claim).collect();
        Ok(corrected)
    }

    /// Corrects the claims of an aggregate, or with `writes` unset returns what it would correct. It is safe beside writers: the
    /// transaction is conditional on the version of the aggregate and the holders of the claims, and repeated with what is read
    /// again.
    pub async fn correct_claims(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        suspects: &[Claim],
        writes: bool,
    ) -> Result<CorrectedClaims, StoreError> {
        let mut backoff = Backoff::until(Instant::now() + PATIENCE);
        loop {
            let folded = self.store.load(model, key).await?.folded;
            let corrected = self.claims_to_correct(model, key, &folded, suspects).await?;
            if corrected == CorrectedClaims::default() {
                return Ok(corrected);
            }
            let CorrectedClaims { taken, released, .. } = corrected.clone();
            let changes = ClaimChanges { taken, released };
            let result = if !writes || changes == ClaimChanges::default() {
                let actual = self.version_in_metadata(key).await?.unwrap_or(0);
                if actual == folded.version() { Ok(()) } else { Err(AppendError::Conflict { actual }) }
            } else {
                let new = NewEvents {
                    events: &[],
                    messages: &[],
                    claims: &changes,
                    deadlines: &DeadlineChanges::default(),
                    after: &folded,
                };
                let options = ImportOptions { publish: false, now: self.store.now() };
                self.store.import(model, key, folded.version(), new, options, Instant::now() + PATIENCE).await
            };
            match result {
                Ok(()) => return Ok(corrected),
                Err(AppendError::Store(error)) => return Err(error),
                // An aggregate has so many claims only if an earlier release had no claims, or another maximum.
                Err(AppendError::TooLarge(error)) => {
                    return Err(StoreError::Corrupt { item: format!("the claims of {key}"), source: error.into() });
                }
                // Another writer was faster, or the outcome is unknown: the rows decide.
                Err(_) if backoff.wait().await => {}
                Err(error) => return Err(StoreError::Unavailable { doing: "correct claims", source: error.into() }),
            }
        }
    }
}

pub(crate) fn row_key(claim: &Claim) -> RowKey {
    (keys::claim_pk(claim), keys::CLAIM.to_owned())
}

/// The aggregate in the row of a claim.
pub(crate) fn holder(row: &Item) -> AggregateKey {
    AggregateKey::new(text(row, attributes::AGGREGATE_TYPE), text(row, attributes::AGGREGATE_ID))
}
