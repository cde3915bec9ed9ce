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
//! `group`: the decisions that one transaction appends; `queue`: the order of the requests.

mod group;
mod queue;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_decider::Folded;
use daybook_table::AggregateKey;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use self::group::{Group, GroupAppend};
use self::queue::Queue;
use crate::append::AppendError;
use crate::append::batch::Batch;
use crate::loaded::Loaded;

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
    key: &'a AggregateKey,
    /// The number of the request, by arrival.
    number: u64,
    wake: Arc<Notify>,
}

/// The turn of a request.
#[derive(Debug)]
pub(crate) enum Turn {
    /// No group is open: the request decides on the stored state.
    First,
    /// Its decision can join this group. The second value is the state after the last decision of the group.
    After(Arc<Group>, Folded),
}

impl Turns {
    /// Enters the queue of an aggregate.
    pub(crate) fn enter<'a>(&'a self, key: &'a AggregateKey) -> Place<'a> {
        let wake = Arc::default();
        let number = self.with(key, |queue| {
            let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
            queue.enter(number, &wake);
            number
        });
        Place { turns: self, key, number, wake }
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

    /// The number of aggregates that have a queue.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }

    /// A panic while the lock was held cannot have left the map half-changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<AggregateKey, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits for the turn; `None` when the turn does not come before the deadline.
    pub(crate) async fn turn(&self, deadline: Instant) -> Option<Turn> {
        let mut is_late = false;
        loop {
            let turn = |queue: &mut Queue| queue.has_turn(self.number).then(|| queue.open_group());
            match self.with(turn) {
                Some(None) => return Some(Turn::First),
                Some(Some((group, after))) => return Some(Turn::After(group, after)),
                None if is_late => return None,
                None => is_late = timeout_at(deadline, self.wake.notified()).await.is_err(),
            }
        }
    }

    /// Whether other requests wait for their turn.
    pub(crate) fn has_waiting(&self) -> bool {
        self.with(|queue| queue.has_waiting())
    }

    /// Begins a group with the first decision. The turn passes to the next request.
    pub(crate) fn begin_group(&self, group: &Arc<Group>, batch: Batch, after: Loaded) {
        self.with(|queue| queue.begin_group(group, batch, after));
    }

    /// Joins the group with a decision; `None` stands for a decision that appends nothing. The turn passes to the next
    /// request. Returns the index of the decision's response among those that are stored; `None` if the request could
    /// not join.
    pub(crate) fn join(&self, group: &Arc<Group>, decision: Option<(Batch, Loaded)>) -> Option<usize> {
        self.with(|queue| queue.join(self.number, group, decision))
    }

    /// Closes the group without a decision of this request. The request waits for its next turn.
    pub(crate) fn decline_group(&self) {
        self.with(|queue| queue.decline_group(self.number));
    }

    /// Waits until the group is closed and its append has started. `call` makes the call if this member is the first.
    pub(crate) async fn wait_for_append<'g, F>(
        &self,
        group: &'g Arc<Group>,
        call: impl Fn(Batch) -> F,
    ) -> &'g GroupAppend
    where
        F: Future<Output = Result<(), AppendError>> + Send + 'static,
    {
        let mut is_late = false;
        loop {
            self.with(|queue| queue.start_append(group, is_late, &call));
            match group.append() {
                Some(append) => return append,
                None => is_late = timeout(DECISION_TIME, self.wake.notified()).await.is_err(),
            }
        }
    }

    /// Starts the append of the group for the other members and leaves the queue, because the time of this member is
    /// over.
    pub(crate) fn abandon<F>(&self, group: &Arc<Group>, call: impl Fn(Batch) -> F)
    where
        F: Future<Output = Result<(), AppendError>> + Send + 'static,
    {
        self.with(|queue| {
            queue.start_append(group, true, call);
            queue.leave(self.number);
        });
    }

    /// Removes the group from the queue when the outcome of its append is known.
    pub(crate) fn end_group(&self, group: &Arc<Group>, stored: &Result<(), Arc<AppendError>>) {
        self.with(|queue| queue.end_group(group, stored));
    }

    /// Leaves the queue. If the request has joined a group, the other members append it.
    pub(crate) fn leave(&self) {
        self.with(|queue| queue.leave(self.number));
    }

    fn with<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        self.turns.with(self.key, change)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> AggregateKey {
        AggregateKey::new("todo", id)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn turns_of_one_aggregate_come_in_the_order_of_arrival() {
        let (turns, hot, order) = (Turns::default(), key("hot"), Mutex::new(Vec::new()));
        let first = turns.enter(&hot);
        assert!(first.turn(later()).await.is_some());
        let request = async |number: usize| {
            let place = turns.enter(&hot);
            assert!(place.turn(later()).await.is_some());
            tokio::task::yield_now().await;
            order.lock().unwrap().push(number);
        };
        let release = async { drop(first) };
        tokio::join!(request(1), request(2), request(3), release, request(4));
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test]
    async fn request_that_leaves_late_does_not_take_the_place_of_another_one() {
        let (turns, hot) = (Turns::default(), key("hot"));
        let first = turns.enter(&hot);
        assert!(first.turn(later()).await.is_some());
        // The queue is removed when the first request leaves. The place of that request is dropped later.
        turns.with(&hot, |queue| queue.leave(first.number));
        assert_eq!(turns.len(), 0);
        let second = turns.enter(&hot);
        drop(first);
        assert!(second.turn(soon()).await.is_some());
    }

    #[tokio::test]
    async fn turn_of_another_aggregate_does_not_wait() {
        let (turns, one, other) = (Turns::default(), key("1"), key("2"));
        let held = turns.enter(&one);
        assert!(held.turn(later()).await.is_some());
        assert!(turns.enter(&other).turn(Instant::now()).await.is_some());
        assert_eq!(turns.len(), 1);
        drop(held);
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test]
    async fn request_that_waits_too_long_or_is_cancelled_leaves_the_queue() {
        let (turns, hot) = (Turns::default(), key("hot"));
        let held = turns.enter(&hot);
        assert!(held.turn(later()).await.is_some());
        assert!(turns.enter(&hot).turn(soon()).await.is_none());
        let waiting = turns.enter(&hot);
        let cancelled = tokio::time::timeout_at(soon(), waiting.turn(later())).await;
        assert!(cancelled.is_err());
        drop(waiting);
        assert_eq!(turns.len(), 1);
        drop(held);
        assert_eq!(turns.len(), 0);
        assert!(turns.enter(&hot).turn(Instant::now()).await.is_some(), "a free turn is taken even after the deadline");
    }
}
