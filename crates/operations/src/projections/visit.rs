//! One batch of aggregates: sends those that the view does not show completely to the projector, and waits until the view
//! shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_event_store::EventStore;
use daybook_table::AggregateKey;
use daybook_view_store::{View, ViewStore, part_of};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use crate::error::OperatorError;
use crate::pacing::{COMPARED_PER_SENT, Interrupt, Pacer};
use crate::projections::views_error;
use crate::queues::StackQueue;
use crate::selection::ListedAggregate;

/// The pause before the first read of a position. It doubles with each further read.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Visitor<'a> {
    pub(super) view: &'a View,
    /// The number of parts of each row of the view.
    pub(super) part_count: u32,
    pub(super) store: &'a EventStore,
    pub(super) views: &'a ViewStore,
    pub(super) queue: &'a StackQueue,
    pub(super) pacer: Pacer,
    pub(super) interrupt: Interrupt,
    /// One permit for each batch on which the projector may work.
    pub(super) in_work: Semaphore,
    pub(super) send_again_after: Duration,
}

pub(super) struct Visited {
    pub(super) aggregates: Vec<ListedAggregate>,
    pub(super) sent: u64,
    pub(super) messages: u64,
    pub(super) suspended: Vec<(AggregateKey, String)>,
    pub(super) without_metadata: Vec<AggregateKey>,
}

impl Visitor<'_> {
    /// Makes the projector project those aggregates that the view does not show completely, and waits until it shows them.
    /// Returns `None` after Ctrl-C.
    pub(super) async fn visit(&self, aggregates: Vec<ListedAggregate>) -> Result<Option<Visited>, OperatorError> {
        let keys: BTreeSet<_> = aggregates.iter().filter_map(|listed| listed.key.clone()).collect();
        let Some(mut permit) = self.permit().await else { return Ok(None) };
        if self.pacer.turns(keys.len().div_ceil(COMPARED_PER_SENT)).await.is_none() {
            return Ok(None);
        }
        let mut to_reach = self.store.admin().versions(&keys).await.map_err(OperatorError::store(STOPPED))?;
        let without_metadata = keys.iter().filter(|key| !to_reach.contains_key(*key)).cloned().collect();
        let mut visited = Visited { aggregates, sent: 0, messages: 0, suspended: Vec::new(), without_metadata };
        self.take_reached(&mut to_reach, &mut visited).await?;
        while !to_reach.is_empty() {
            if self.pacer.turns(to_reach.len()).await.is_none() {
                return Ok(None);
            }
            visited.messages += self.queue.send_changed(&to_reach).await?;
            visited.sent += to_reach.len() as u64;
            if self.wait_until_shown(&mut to_reach, &mut visited).await?.is_none() {
                return Ok(None);
            }
            if !to_reach.is_empty() {
                // A message that nobody works on must not delay the other batches.
                drop(permit);
                let Some(next) = self.permit().await else { return Ok(None) };
                permit = next;
                self.take_reached(&mut to_reach, &mut visited).await?;
            }
        }
        Ok(Some(visited))
    }

    /// Waits until the projector may work on another batch; returns `None` after Ctrl-C.
    async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.interrupt.run_until_cancelled(self.in_work.acquire()).await?.ok()
    }

    /// Waits until the view shows the aggregates, or until they must be sent again; returns `None` after Ctrl-C.
    async fn wait_until_shown(
        &self,
        to_reach: &mut BTreeMap<AggregateKey, u64>,
        visited: &mut Visited,
    ) -> Result<Option<()>, OperatorError> {
        let (until, mut pause) = (Instant::now() + self.send_again_after, FIRST_PAUSE);
        while Instant::now() < until {
            // The aggregate that the projector folds last shows whether it is worth reading the positions of all.
            let last = to_reach.keys().max_by_key(|key| (part_of(key, self.part_count), *key));
            let Some(last) = last.cloned() else { break };
            if self.interrupt.run_until_cancelled(sleep(pause)).await.is_none() {
                return Ok(None);
            }
            pause = LONGEST_PAUSE.min(pause * 2);
            let mut probe = BTreeMap::from([(last.clone(), to_reach[&last])]);
            self.take_reached(&mut probe, visited).await?;
            if probe.is_empty() {
                to_reach.remove(&last);
                self.take_reached(to_reach, visited).await?;
                pause = FIRST_PAUSE;
            }
        }
        Ok(Some(()))
    }

    /// Takes out the aggregates whose event of that number the view shows, and those that are suspended.
    async fn take_reached(
        &self,
        to_reach: &mut BTreeMap<AggregateKey, u64>,
        visited: &mut Visited,
    ) -> Result<(), OperatorError> {
        if to_reach.is_empty() {
            return Ok(());
        }
        let keys = to_reach.keys().cloned().collect();
        let mut positions = self.views.positions(self.view, &keys).await.map_err(views_error(STOPPED))?;
        to_reach.retain(|key, last| match positions.remove(key) {
            Some(position) if position.suspended.is_some() => {
                visited.suspended.push((key.clone(), position.suspended.unwrap_or_default()));
                false
            }
            Some(position) => position.seq_num < *last,
            None => true,
        });
        Ok(())
    }
}

pub(super) const STOPPED: &str = "stopped early, run it again to go on";
