//! Claims: which aggregate has a unique value, and corrections where that is not what the code returns for the states of
//! the aggregates.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::{Claim, Folded, Model};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, text};
use daybook_table::{AggregateKey, attributes, keys};
use futures_util::future::try_join_all;

use crate::handle::{Admin, PrimaryKey, panicked};

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

    /// Claims as they are stored.
    pub async fn stored_claims(&self, claims: &[Claim]) -> Result<Vec<Claim>, StoreError> {
        try_join_all(claims.iter().map(|claim| self.store.sealing().stored_claim(claim))).await
    }
}

/// The key of the row of a claim, as it is stored.
pub(crate) fn row_key(claim: &Claim) -> PrimaryKey {
    (keys::claim_pk(claim), keys::CLAIM.to_owned())
}

/// The aggregate in the row of a claim.
pub(crate) fn holder(row: &Item) -> AggregateKey {
    AggregateKey::new(text(row, attributes::AGGREGATE_TYPE), text(row, attributes::AGGREGATE_ID))
}
