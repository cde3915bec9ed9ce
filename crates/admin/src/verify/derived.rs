//! Rows that follow from the state: an aggregate has the claims and the deadlines that its state declares, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::slice::from_ref;

use daybook_decider::personal::{self, Form};
use daybook_decider::record::timestamp;
use daybook_decider::{Claim, DeadlineChanges, Folded, Json, Model, Registry};
use daybook_event_store::internal::{Item, is_valid_checksum};
use daybook_event_store::{StoreError, StoredDeadline};
use daybook_table::{AggregateKey, DeadlineState, attributes, keys};

use super::events::Events;
use super::finding::{Discrepancy, Finding, Report, Verified};
use crate::correct::{CorrectedClaims, Derived, claim_holder, claim_key, deadline_changes};
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
        let row = self.items("read a claim", [claim_key(claim)].into(), None).await?.into_values().next();
        let Some(row) = row else { return Ok(verified) };
        let aggregate = claim_holder(&row);
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

/// The rows of deadlines and dispatches so far, by name; `None` for one that cannot be read.
#[derive(Default)]
pub(super) struct Deadlines(BTreeMap<String, Option<StoredDeadline>>);

impl Deadlines {
    pub(super) fn row(&mut self, sk: String, row: Item, shards: u32, report: &mut Report<'_>) {
        let name = keys::deadline_name(&sk).to_owned();
        let stored = match StoredDeadline::read(row) {
            Ok(stored) => stored,
            Err(error) => {
                self.0.insert(name, None);
                return report.add(sk, Discrepancy::Unreadable { reason: error.to_string() });
            }
        };
        let expected = keys::deadline_gsi1sk(stored.due);
        if stored.item.gsi1sk != expected {
            report.add(sk.clone(), Discrepancy::differs(attributes::GSI1SK, &stored.item.gsi1sk, expected));
        }
        let partitions = keys::deadline_gsi1pks(shards);
        let is_pending = stored.item.state() == DeadlineState::Pending;
        if is_pending && !partitions.contains(&stored.item.gsi1pk) {
            // Nobody would find it when it is due.
            let expected = partitions.join(" or ");
            report.add(sk, Discrepancy::differs(attributes::GSI1PK, &stored.item.gsi1pk, expected));
        }
        self.0.insert(name, Some(stored));
    }

    /// Compares the rows with the events that set them, and with the state, if it is known.
    pub(super) fn compare(&self, model: &dyn Model, events: &Events<'_>, report: &mut Report<'_>) {
        for stored in self.0.values().flatten() {
            let set_by = stored.item.seq_num;
            let expected = events.fact(set_by).map(|event| event.event_id.to_string());
            if let Some(expected) = expected.filter(|expected| *expected != stored.item.event_id) {
                report.add(&*stored.item.sk, Discrepancy::differs("eventId", &stored.item.event_id, expected));
            } else if !(1..=events.last()).contains(&set_by) {
                let expected = format!("1 to {}, the last event", events.last());
                report.add(&*stored.item.sk, Discrepancy::differs("seqNum", set_by, expected));
            }
        }
        let Some(folded) = events.folded() else { return };
        let due = |stored: &Option<StoredDeadline>| stored.as_ref().map(|stored| stored.due);
        let rows = self.0.iter().map(|(name, stored)| (name.clone(), due(stored))).collect();
        let DeadlineChanges { set, dropped } = match deadline_changes(model, folded, rows) {
            Ok(changes) => changes,
            Err(panic) => return report.add(keys::METADATA, Discrepancy::Unreadable { reason: panic.to_string() }),
        };
        for (name, expected) in set {
            let expected = expected.to_string();
            let discrepancy = match self.0.get(&name).map(due) {
                None => Discrepancy::DeadlineMissing { due: expected },
                Some(Some(found)) => Discrepancy::differs("due", timestamp(found), expected),
                // It is reported.
                Some(None) => continue,
            };
            report.add(keys::deadline_sk(&name), discrepancy);
        }
        for name in dropped {
            report.add(keys::deadline_sk(&name), Discrepancy::DeadlineStale);
        }
    }
}
