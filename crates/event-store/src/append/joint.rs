//! The items of a decision over several aggregates.
//!
//! Invariant: each aggregate and each claim that the decision has looked at is changed or checked by one item of the
//! transaction. So decisions are serializable.

use std::collections::BTreeMap;

use daybook_decider::{AggregateKey, Claim, Decisions, Involved, Model, Need};

use super::batch::{AppendBatch, FirstEvent};
use super::claims::{ClaimHolders, claim_check};
use super::transaction::{Origin, metadata_item};
use crate::error::StoreError;
use crate::idempotency::ResponseToStore;
use crate::limits::TooLarge;
use crate::store::EventStream;
use crate::subject_keys::Keys;

pub(crate) enum NotBuilt {
    /// It is too large, because of the rows of this aggregate, if it is one of several.
    TooLarge(TooLarge, Option<AggregateKey>),
    /// Two aggregates take the same claim.
    ClaimTaken {
        claim: Claim,
        holder: AggregateKey,
    },
    Store(StoreError),
}

impl From<TooLarge> for NotBuilt {
    fn from(limit: TooLarge) -> Self {
        Self::TooLarge(limit, None)
    }
}

impl From<StoreError> for NotBuilt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl EventStream<'_> {
    pub(crate) fn joint_batch<'m>(
        &self,
        decisions: &Decisions,
        to_store: Option<&ResponseToStore<'_>>,
        involved: &Involved,
        holders: &ClaimHolders,
        keys: &Keys,
        model: impl Fn(&str) -> Option<&'m dyn Model>,
    ) -> Result<AppendBatch, NotBuilt> {
        let own = &decisions.own;
        if decisions.others.is_empty() && involved.is_empty() {
            return Ok(self.batch(own.into(), to_store, Origin::Decision, holders, keys)??);
        }
        let holders = &self.with_moved(decisions, holders)?;
        let too_large = |of: Option<&AggregateKey>| {
            let of = of.cloned();
            move |limit| NotBuilt::TooLarge(limit, of)
        };
        // A request for one aggregate names no other one.
        let of_own = Some(self.key).filter(|_| decisions.named > 0);
        let own = self.batch(own.into(), to_store, Origin::Decision, holders, keys)?;
        let mut batch = own.map_err(too_large(of_own))?;
        for (key, decided) in &decisions.others {
            let model = model(&key.aggregate_type).ok_or_else(|| self.corrupt(format!("no type of {key}")))?;
            let stream = self.store.stream(model, key);
            let part = stream.batch(decided.into(), None, Origin::Decision, holders, keys)?;
            let part = part.map_err(too_large(Some(key)))?;
            batch.add_other(self.store.table_name(), key, decided.version_before(), part);
            batch.check_size().map_err(too_large(Some(key)))?;
        }
        self.add_checks(&mut batch, involved);
        batch.check_size()?;
        Ok(batch)
    }

    /// The checks of what a decision that appends nothing has looked at.
    pub(crate) fn checks(&self, involved: &Involved) -> AppendBatch {
        let mut batch = AppendBatch::default();
        self.add_checks(&mut batch, involved);
        batch
    }

    /// Adds the check of each aggregate and each claim that no item of the batch changes.
    fn add_checks(&self, batch: &mut AppendBatch, involved: &Involved) {
        let table_name = self.store.table_name();
        for (key, folded) in &involved.aggregates {
            if !batch.others.iter().any(|(other, _)| *other == Need::Aggregate(key.clone())) {
                let check = metadata_item(table_name, key, folded.version(), Vec::new(), Vec::new());
                batch.others.push((Need::Aggregate(key.clone()), check));
            }
        }
        for (claim, holder) in &involved.holders {
            if !batch.claims().contains(claim) {
                let stored = self.store.sealing.prepared_claim(claim);
                let check = claim_check(table_name, &stored, holder.as_ref());
                batch.others.push((Need::Holder(claim.clone()), check));
            }
        }
    }

    /// Adds the claims that the aggregates of the decision release and take.
    fn with_moved(&self, decisions: &Decisions, holders: &ClaimHolders) -> Result<ClaimHolders, NotBuilt> {
        let own = std::iter::once((self.key, &decisions.own));
        let all = own.chain(decisions.others.iter().map(|(key, decided)| (key, decided)));
        let (mut released, mut taken) = (BTreeMap::<Claim, Vec<AggregateKey>>::new(), BTreeMap::new());
        for (key, decided) in all {
            for claim in &decided.claims.released {
                released.entry(claim.clone()).or_default().push(key.clone());
            }
            for claim in &decided.claims.taken {
                if let Some(holder) = taken.insert(claim.clone(), key) {
                    return Err(NotBuilt::ClaimTaken { claim: claim.clone(), holder: holder.clone() });
                }
            }
        }
        Ok(ClaimHolders { foreign: holders.foreign.clone(), released, taken: taken.into_keys().collect() })
    }
}

impl AppendBatch {
    /// Adds the items of another aggregate, whose version was `before`.
    fn add_other(&mut self, table_name: &str, key: &AggregateKey, before: u64, part: Self) {
        let metadata = metadata_item(table_name, key, before, part.created, part.changed);
        self.others.push((Need::Aggregate(key.clone()), metadata));
        let first = part.first_event.map(|(number, id)| FirstEvent { of: Some(key.clone()), number, id });
        self.first_event_of_other = self.first_event_of_other.take().or(first);
        self.rows.extend(part.rows);
        self.deadlines.extend(part.deadlines);
        self.claims.extend(part.claims);
        self.bytes += part.bytes;
    }
}
