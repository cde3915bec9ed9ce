//! The other aggregates of a transaction: their states, and the places in the queues of those that it writes to.
//!
//! Places are taken in the order of the keys, that of the request's own aggregate included, and a place is held only together
//! with all before it. So requests never wait for each other in a circle.

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_decider::{AggregateKey, Claim, Involved, Need};
use daybook_table::{ClaimItem, keys};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::decide::Decide;
use super::decision::ReadyDecision;
use crate::append::read_claim;
use crate::error::StoreError;
use crate::item::row_key;
use crate::load::{LoadOptions, LoadPolicy};
use crate::store::{EventStore, EventStream};
use crate::turns::Place;

/// What a transaction on `order/7` knows of `customer/ann`, which its decision reads or sends a command to, and its place in the
/// queue of that aggregate.
#[derive(Debug, Default)]
pub(super) struct Others<'a> {
    /// Their states, and the holders of claims, that the next decision gets.
    pub(super) known: Involved,
    /// Whether all states are those of the table, and not of the cache.
    pub(super) is_read: bool,
    /// The aggregates whose cached state is outdated.
    outdated: BTreeSet<AggregateKey>,
    /// The aggregates that exist, although the last decision has created them. The next one needs to know them.
    pub(super) existing: Vec<Need>,
    written: BTreeSet<AggregateKey>,
    /// The places that it has: in the queues of the first ones of `written`, in the order of keys.
    places: Vec<Place<'a>>,
}

impl<'a> Others<'a> {
    /// Whether the decision writes to an aggregate in whose queue it has no place. The places are left then: all are taken
    /// again, in their order. An aggregate that is created needs none, and has perhaps another id in each decision.
    pub(super) fn lacks_place(&mut self, decision: &ReadyDecision) -> bool {
        let others = decision.outcome.others.iter().map(|(key, _)| key);
        let written = others.filter(|key| self.known.aggregates.contains_key(key));
        let written: BTreeSet<_> = written.cloned().collect();
        if written.is_subset(&self.written) {
            return false;
        }
        self.written.extend(written);
        self.places.clear();
        true
    }

    /// Waits for the turns in the queues of aggregates before or after the request's own one. Returns whether they came before
    /// the deadline.
    pub(super) async fn turns(
        &mut self,
        store: &'a EventStore,
        is_included: impl Fn(&AggregateKey) -> bool,
        deadline: Instant,
    ) -> bool {
        for key in self.written.iter().skip(self.places.len()).filter(|key| is_included(key)) {
            let place = store.turns.enter(key);
            if !place.turn_alone(deadline).await {
                return false;
            }
            self.places.push(place);
            // Requests before it in the queue may have changed the aggregate.
            if let Some(known) = self.known.aggregates.get_mut(key)
                && let Some(newer) = store.cached(key).filter(|cached| cached.version() > known.version())
            {
                (*known, self.is_read) = (newer.folded, false);
            }
        }
        true
    }

    pub(super) fn leave(&mut self) {
        self.places.clear();
    }

    /// Reads what a decision needs. A cached state serves too, because the append checks it.
    pub(super) async fn read<D: Decide>(
        &mut self,
        stream: EventStream<'a>,
        commands: &D,
        policy: LoadPolicy,
        needs: Vec<Need>,
    ) -> Result<(), StoreError> {
        let mut aggregates = Vec::new();
        let mut claims = Vec::new();
        for need in needs {
            match need {
                Need::Aggregate(key) => aggregates.push(key),
                Need::Holder(claim) => claims.push(claim),
            }
        }
        let holders = claims.into_iter().map(async |claim| {
            let row = stream.store.claim(&claim).await?;
            Ok::<_, StoreError>((claim, row.map(|row| row.holder())))
        });
        for (claim, holder) in try_join_all(holders).await? {
            let is_new = |key: &&AggregateKey| *key != stream.key && !self.known.aggregates.contains_key(*key);
            aggregates.extend(holder.as_ref().filter(is_new).cloned());
            self.known.holders.insert(claim, holder);
        }
        let uses_cache = policy == LoadPolicy::Incremental && !self.is_read;
        let outdated = &self.outdated;
        let read = aggregates.into_iter().map(async |key| {
            let cached = stream.store.cached(&key);
            let folded = match cached {
                Some(cached) if uses_cache && !outdated.contains(&key) => cached.folded,
                cached => {
                    let model = commands.model(&key.aggregate_type);
                    let model = model.ok_or_else(|| stream.corrupt(format!("no type of {key} is registered")))?;
                    let options = LoadOptions { policy, ..LoadOptions::default() };
                    let folded = stream.store.load_with(model, &key, options).await?.folded;
                    if let Some(cached) = cached {
                        stream.store.contention.found(&key, folded.version().saturating_sub(cached.version()));
                    }
                    folded
                }
            };
            Ok::<_, StoreError>((key, folded))
        });
        self.known.aggregates.extend(try_join_all(read).await?);
        Ok(())
    }

    /// Whether the decision was made with another holder of a claim than this one, or with none.
    pub(super) fn has_other_holder(&self, claim: &Claim, holder: &AggregateKey) -> bool {
        self.known.holders.get(claim).is_some_and(|known| known.as_ref() != Some(holder))
    }

    /// Records lost races: what was raced is read again. All else is forgotten too, because the next decision may involve
    /// others.
    pub(super) fn raced(&mut self, store: &EventStore, raced: &[Need]) {
        let known = std::mem::take(&mut self.known);
        for need in raced {
            if let Need::Aggregate(key) = need {
                if !known.aggregates.contains_key(key) {
                    self.existing.push(need.clone());
                }
                store.contention.lost(key);
                self.outdated.insert(key.clone());
            }
        }
    }

    /// Forgets all states: they are read again.
    pub(super) fn forget(&mut self) {
        (self.is_read, self.known) = (true, Involved::default());
    }

    /// The longest pause because of races with other processes; the states are read again after it.
    pub(super) fn pause(&mut self, store: &EventStore) -> Option<Duration> {
        let pause_of = |key: &AggregateKey| Some((key.clone(), store.contention.pause(key)?));
        let pauses: Vec<_> = self.written.union(&self.outdated).filter_map(pause_of).collect();
        let longest = pauses.iter().map(|(_, pause)| *pause).max();
        for (key, _) in pauses {
            self.known.aggregates.remove(&key);
            self.outdated.insert(key);
        }
        longest
    }
}

impl EventStore {
    /// The row of a claim, with a strongly consistent read.
    pub async fn claim(&self, claim: &Claim) -> Result<Option<ClaimItem>, StoreError> {
        let stored = self.sealing.stored_claim(claim).await?;
        let key = row_key(keys::claim_pk(&stored), keys::CLAIM.to_owned());
        let get = self.client.get_item().table_name(&self.settings.table_name).set_key(Some(key));
        let output = get.consistent_read(true).send().await;
        let output = output.map_err(|error| StoreError::of_call("read a claim", error))?;
        output.item.map(|row| read_claim(claim, row)).transpose()
    }
}
