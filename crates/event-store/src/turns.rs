//! Turns: the requests of one process that write to the same aggregate go one after the other, in the order of their
//! arrival. Without turns, their appends would make each other's conditions fail. Requests for other aggregates do not
//! wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daybook_table::AggregateKey;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// A queue for each aggregate with a request that has its turn or waits for it.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<AggregateKey, Arc<tokio::sync::Mutex<()>>>>);

/// The turn of a request. Dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    key: &'a AggregateKey,
    /// `None` while the request waits.
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn of a request; `None` when the turn does not come before the deadline.
    pub(crate) async fn take<'a>(&'a self, key: &'a AggregateKey, deadline: Instant) -> Option<Turn<'a>> {
        // Made before the wait, so that a request that is cancelled in the queue also cleans up.
        let mut turn = Turn { turns: self, key, guard: None };
        let queue = Arc::clone(self.lock().entry(key.clone()).or_default());
        turn.guard = Some(timeout_at(deadline, queue.lock_owned()).await.ok()?);
        Some(turn)
    }

    /// The number of aggregates that have a queue.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }

    /// A panic while the lock was held cannot have left the map half-changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<AggregateKey, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queues = self.turns.lock();
        self.guard = None;
        // Requests join a queue under the lock, so nobody has joined it if the map has the only reference.
        if queues.get(self.key).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let first = turns.take(&hot, later()).await;
        let request = async |number: usize| {
            let _turn = turns.take(&hot, later()).await.unwrap();
            tokio::task::yield_now().await;
            order.lock().unwrap().push(number);
        };
        let release = async { drop(first) };
        tokio::join!(request(1), request(2), request(3), release, request(4));
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4]);
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test]
    async fn turn_of_another_aggregate_does_not_wait() {
        let (turns, one, other) = (Turns::default(), key("1"), key("2"));
        let held = turns.take(&one, later()).await;
        assert!(turns.take(&other, Instant::now()).await.is_some());
        assert_eq!(turns.len(), 1);
        drop(held);
        assert_eq!(turns.len(), 0);
    }

    #[tokio::test]
    async fn request_that_waits_too_long_or_is_cancelled_leaves_the_queue() {
        let (turns, hot) = (Turns::default(), key("hot"));
        let held = turns.take(&hot, later()).await;
        assert!(turns.take(&hot, soon()).await.is_none());
        let cancelled = tokio::time::timeout_at(soon(), turns.take(&hot, later())).await;
        assert!(cancelled.is_err());
        assert_eq!(turns.len(), 1);
        drop(held);
        assert_eq!(turns.len(), 0);
        assert!(turns.take(&hot, Instant::now()).await.is_some(), "a free turn is taken even after the deadline");
    }
}
