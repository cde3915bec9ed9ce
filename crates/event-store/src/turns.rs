//! Turns: the requests of one process that write to the same aggregate decide one after the other, in the order of
//! their arrival. Without turns, their appends would make each other's conditions fail. Requests for other aggregates
//! do not wait.
//!
//! If no other request waits, the request with the turn appends its decision alone, and keeps the turn until the end.
//! If others wait, its decision begins a group instead, and the turn passes to the next request. That request decides
//! on the state after the last decision of the group, and joins the group. The group is closed when no request waits
//! any more, when it is full, or when the next decision takes too long. Its members then append it in one transaction.
//!
//! Every member waits for the transaction itself. If a member is cancelled, or its time is over, the transaction still
//! continues for the others.
//!
//! `queue`: the order of the requests of one aggregate, and the decisions that one transaction appends.

mod queue;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_table::AggregateKey;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use self::queue::Queue;
pub(crate) use self::queue::{Group, GroupAppend, Turn};
use crate::append::{AppendBatch, AppendError};
use crate::cache::Loaded;

/// Maximum time that a member of a group waits for further requests to join. A decision takes less than a millisecond,
/// unless nobody polls the request.
const DECISION_TIME: Duration = Duration::from_millis(50);

/// A queue for each aggregate with a request that has its turn or waits for it.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queues: Mutex<HashMap<AggregateKey, Queue>>,
    /// The number of requests so far, from which each request gets its number. No number is used twice: a request may
    /// leave after its queue was removed and another one was created.
    arrivals: AtomicU64,
}

/// The place of a request in the queue of its aggregate. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    turns: &'a Turns,
    key: AggregateKey,
    /// The number of the request, by arrival.
    number: u64,
    wake: Arc<Notify>,
}

impl Turns {
    pub(crate) fn enter(&self, key: &AggregateKey) -> Place<'_> {
        let wake = Arc::default();
        let number = self.with(key, |queue| {
            let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
            queue.enter(number, &wake);
            number
        });
        Place { turns: self, key: key.clone(), number, wake }
    }

    /// Changes the queue of an aggregate, and removes it if it is empty afterwards.
    fn with<T>(&self, key: &AggregateKey, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queues = self.lock();
        let queue = match queues.get_mut(key) {
            Some(queue) => queue,
            None => queues.entry(key.clone()).or_default(),
        };
        let result = change(queue);
        if queue.is_empty() {
            queues.remove(key);
        }
        result
    }

    /// A panic while the lock was held cannot have left the map half-changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<AggregateKey, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits for the turn; `None` when the turn does not come before the deadline.
    pub(crate) async fn turn(&self, deadline: Instant) -> Option<Turn> {
        let turn = || self.with(|queue| queue.turn(self.number));
        loop {
            if let Some(turn) = turn() {
                return Some(turn);
            }
            if timeout_at(deadline, self.wake.notified()).await.is_err() {
                return turn();
            }
        }
    }

    /// Waits for a turn on the stored state. A group that is open is closed first. Returns whether the turn came before the
    /// deadline.
    pub(crate) async fn turn_alone(&self, deadline: Instant) -> bool {
        loop {
            match self.turn(deadline).await {
                None => return false,
                Some(Turn::First) => return true,
                Some(Turn::After(..)) => self.decline_group(),
            }
        }
    }

    /// Whether other requests wait for their turn.
    pub(crate) fn has_waiting(&self) -> bool {
        self.with(|queue| queue.has_waiting())
    }

    /// Begins a group with the first decision. The turn passes to the next request.
    pub(crate) fn begin_group(&self, group: &Arc<Group>, batch: AppendBatch, after: Loaded) {
        self.with(|queue| queue.begin_group(group, batch, after));
    }

    /// Joins the group with a decision; `None` stands for a decision that appends nothing. The turn passes to the next
    /// request. Returns the index of the decision's response among those that are stored; `None` if the request could
    /// not join.
    pub(crate) fn join(&self, group: &Arc<Group>, decision: Option<(AppendBatch, Loaded)>) -> Option<usize> {
        self.with(|queue| queue.join(self.number, group, decision))
    }

    /// Closes the group without a decision of this request. The request waits for its next turn.
    pub(crate) fn decline_group(&self) {
        self.with(|queue| queue.decline_group(self.number));
    }

    /// Waits until the group is closed and its append has started.
    pub(crate) async fn wait_for_append<'g>(&self, group: &'g Arc<Group>) -> &'g GroupAppend {
        loop {
            if let Some(append) = group.append() {
                return append;
            }
            if timeout(DECISION_TIME, self.wake.notified()).await.is_err() {
                self.with(|queue| queue.close_group(group));
            }
        }
    }

    /// Closes the group for the other members and leaves the queue, because the time of this member is over.
    pub(crate) fn abandon(&self, group: &Arc<Group>) {
        self.with(|queue| {
            queue.close_group(group);
            queue.leave(self.number);
        });
    }

    /// Removes the group from the queue when the outcome of its append is known. If it is stored, the first member that
    /// knows it caches the state after the last decision, before the next request gets its turn.
    pub(crate) fn end_group(
        &self,
        group: &Arc<Group>,
        stored: &Result<(), Arc<AppendError>>,
        cache: impl FnOnce(&Loaded),
    ) {
        self.with(|queue| queue.end_group(group, stored, cache));
    }

    /// Leaves the queue. If the request has joined a group, the other members append it.
    pub(crate) fn leave(&self) {
        self.with(|queue| queue.leave(self.number));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        self.turns.with(&self.key, change)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
