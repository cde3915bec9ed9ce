//! The claims: an aggregate has those of its state, and no others.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::slice::from_ref;

use daybook_decider::personal::{self, Form};
use daybook_decider::{Claim, Folded, Json, Model, Registry};
use daybook_event_store::StoreError;
use daybook_event_store::internal::is_valid_checksum;
use daybook_table::{AggregateKey, keys};

use super::finding::{Discrepancy, Finding, Report, Verified};
use crate::claims::{CorrectedClaims, holder, row_key};
use crate::correct::Derived;
use crate::handle::Admin;

impl Admin<'_> {
    pub(super) async fn verify_claims(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
        report: &mut Report<'_>,
    ) -> Result<(), StoreError> {
        let CorrectedClaims { taken, elsewhere, .. } = match self.claims_to_correct(model, key, folded, &[]).await {
            Err(StoreError::Panicked { source, .. }) => {
                report.add(keys::METADATA, Discrepancy::Unreadable { reason: source.to_string() });
                return Ok(());
            }
            correct => correct?,
        };
        let nobody = taken.into_iter().map(|claim| (claim, "no aggregate".to_owned()));
        for (claim, holder) in nobody.chain(elsewhere.into_iter().map(|(claim, of)| (claim, of.to_string()))) {
            report.add(keys::claim_pk(&claim), Discrepancy::ClaimMissing { holder });
        }
        let (state, mut values) = (model.state(folded), BTreeSet::new());
        let replaced = personal::replace(state.as_ref().map_or("", Json::text), |Form { value, .. }| {
            let text = value.and_then(|value| serde_json::from_str::<String>(value.get()).ok());
            values.extend(text.map(|text| text.to_lowercase()));
            Ok::<_, Infallible>(String::new())
        });
        if replaced.is_ok_and(|replaced| replaced.is_some()) {
            let mut claims = model.claims(folded).unwrap_or_default();
            claims.retain(|claim| !claim.is_plain() && values.contains(&claim.value().to_lowercase()));
            claims.iter().for_each(|claim| report.warn(keys::claim_pk(claim), Discrepancy::PlainClaim));
        }
        Ok(())
    }

    /// Checks the row of a claim, and that the state of its holder has the claim.
    pub async fn verify_claim(&self, registry: &Registry, claim: &Claim) -> Result<Verified, StoreError> {
        let mut verified = Verified { rows: 1, ..Verified::default() };
        let row = self.items("read a claim", [row_key(claim)].into(), None).await?.remove(&row_key(claim));
        let Some(row) = row else { return Ok(verified) };
        let aggregate = holder(&row);
        let stale = match registry.get(&aggregate.aggregate_type) {
            Some(model) => {
                let corrected = self.correct(model, &aggregate, Derived::Claims(from_ref(claim)), false).await;
                corrected.map(|corrected| corrected.claims.released)
            }
            None => Ok(vec![claim.clone()]),
        };
        let discrepancy = match stale {
            _ if !is_valid_checksum(&row) => Discrepancy::Changed,
            Ok(stale) if stale.is_empty() => return Ok(verified),
            Ok(_) => Discrepancy::ClaimStale { holder: aggregate.to_string() },
            Err(error @ StoreError::Unavailable { .. }) => return Err(error),
            Err(error) => Discrepancy::Unreadable { reason: error.to_string() },
        };
        verified.findings.push(Finding { aggregate, item: keys::CLAIM.to_owned(), discrepancy });
        Ok(verified)
    }
}
