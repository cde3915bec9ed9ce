//! Corrections of rows that follow from the state of an aggregate, its claims and its deadlines, where they are not what the code
//! returns for the state. The row of a claim contains the aggregate that has the unique value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_decider::{AggregatePanic, Claim, ClaimChanges, DeadlineChanges, DeclaredDeadline, Due, Folded, Model};
use daybook_event_store::internal::{Backoff, ImportWrite, Item, NewEvents, text};
use daybook_event_store::{AppendError, StoreError};
use daybook_table::{AggregateKey, attributes, keys};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::handle::{Admin, panicked};
use crate::rows::PrimaryKey;

/// The time for which a correction is repeated while others write to the aggregate.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub enum Derived<'a> {
    /// Takes the claims that nobody has, and releases those of these suspects, as they are stored, that the aggregate has and its
    /// state does not have.
    Claims(&'a [Claim]),
    /// Sets the deadlines and dispatches of the state, and drops all others. New dispatches are sent if `sends`.
    Deadlines { sends: bool },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    pub claims: CorrectedClaims,
    pub deadlines: DeadlineChanges,
}

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
    /// Corrects rows of an aggregate, or with `writes` unset returns what it would correct. It is safe beside writers: the
    /// transaction is conditional on the version of the aggregate and the holders of the claims, and repeated with what is read
    /// again.
    pub async fn correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        rows: Derived<'_>,
        writes: bool,
    ) -> Result<Corrected, StoreError> {
        let mut backoff = Backoff::until(Instant::now() + PATIENCE);
        loop {
            let folded = self.store.load(model, key).await?.folded;
            let mut corrected = Corrected::default();
            match rows {
                Derived::Claims(of) => corrected.claims = self.claims_to_correct(model, key, &folded, of).await?,
                Derived::Deadlines { .. } => {
                    corrected.deadlines = self.deadlines_to_correct(model, key, &folded).await?;
                }
            }
            if corrected == Corrected::default() {
                return Ok(corrected);
            }
            let CorrectedClaims { taken, released, .. } = corrected.claims.clone();
            let (claims, deadlines) = (&ClaimChanges { taken, released }, &corrected.deadlines);
            let result = if !writes || (*claims == ClaimChanges::default() && deadlines.is_empty()) {
                let actual = self.version_in_metadata(key).await?.unwrap_or(0);
                if actual == folded.version() { Ok(()) } else { Err(AppendError::Conflict { actual }) }
            } else {
                let new = NewEvents { events: &[], messages: &[], claims, deadlines, forgets: false, after: &folded };
                let publish = matches!(rows, Derived::Deadlines { sends: true });
                let options = ImportWrite { publish, now: self.store.now() };
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
                Err(error) => return Err(StoreError::Unavailable { doing: "correct rows", source: error.into() }),
            }
        }
    }

    async fn deadlines_to_correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
    ) -> Result<DeadlineChanges, StoreError> {
        let found = self.store.deadlines_of(key).await?;
        let readable = found.items.iter().map(|stored| (stored.item.name().to_owned(), Some(stored.due)));
        let unreadable = found.unreadable.iter().map(|row| (keys::deadline_name(&row.sk).to_owned(), None));
        let rows = readable.chain(unreadable).collect();
        deadline_changes(model, folded, rows).map_err(|panic| panicked(key, panic))
    }

    /// The corrections of an aggregate with this state: takes the claims that nobody has, and releases those of `suspects`, as
    /// they are stored, that it has and its state does not have.
    pub(crate) async fn claims_to_correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
        suspects: &[Claim],
    ) -> Result<CorrectedClaims, StoreError> {
        let claims = model.claims(folded).map_err(|panic| panicked(key, panic))?;
        let claims = self.stored_claims(&claims).await?;
        let rows: BTreeSet<_> = claims.iter().chain(suspects).map(claim_key).collect();
        let rows = self.items("read claims", rows, None).await?.into_iter();
        let holders = rows.filter_map(|((pk, _), row)| Some((keys::claim_of_pk(&pk)?, claim_holder(&row))));
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

    pub async fn stored_claims(&self, claims: &[Claim]) -> Result<Vec<Claim>, StoreError> {
        try_join_all(claims.iter().map(|claim| self.store.sealing().stored_claim(claim))).await
    }
}

pub(crate) fn claim_key(claim: &Claim) -> PrimaryKey {
    (keys::claim_pk(claim), keys::CLAIM.to_owned())
}

pub(crate) fn claim_holder(row: &Item) -> AggregateKey {
    AggregateKey::new(text(row, attributes::AGGREGATE_TYPE), text(row, attributes::AGGREGATE_ID))
}

/// The deadlines and dispatches to set, and the names to drop, given the times of the rows: `None` for a row that cannot be read.
pub(crate) fn deadline_changes(
    model: &dyn Model,
    folded: &Folded,
    mut rows: BTreeMap<String, Option<Timestamp>>,
) -> Result<DeadlineChanges, AggregatePanic> {
    let declared = model.deadlines(folded)?.into_iter().filter_map(DeclaredDeadline::into_row);
    let set = declared.filter(|(name, declared)| match rows.remove(name) {
        // The row of a dispatch has the time at which it was set.
        Some(Some(due)) => matches!(declared, Due::At(declared) if *declared != due),
        Some(None) | None => true,
    });
    Ok(DeadlineChanges { set: set.collect(), dropped: rows.into_keys().collect() })
}
