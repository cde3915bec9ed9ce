//! The queues of other functions. Their messages are hints, and contain no data: whoever receives one reads the table. From the
//! changes queue, the projector learns which aggregates have new events; from the reactions queue, the reactor learns which
//! deadlines are due soon, and with processes the same as the projector.

use std::collections::BTreeMap;
use std::time::Duration;

use daybook_queue::Queue;
use daybook_table::{AggregateKey, Changed, ChangedAggregates, Clock, DueDeadline, DueDeadlines};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::record::Coordinates;

#[derive(Debug, Default)]
pub(crate) struct SentHints {
    /// The aggregates or deadlines that the queue got.
    pub(crate) sent: usize,
    /// The records of those: an aggregate with events 3 to 5 in the batch has three.
    pub(crate) settled: Vec<Coordinates>,
    /// The records of those that it did not get; Lambda repeats them.
    pub(crate) unsettled: Vec<Coordinates>,
}

impl SentHints {
    fn add(&mut self, records: Vec<Vec<Coordinates>>, is_accepted: bool) {
        self.sent += if is_accepted { records.len() } else { 0 };
        let list = if is_accepted { &mut self.settled } else { &mut self.unsettled };
        list.extend(records.into_iter().flatten());
    }
}

/// Sends the aggregates to each of the queues, with retries until `cutoff`.
pub(crate) async fn send_changes(
    queues: &[Queue],
    mut changed: BTreeMap<AggregateKey, Changed<Coordinates>>,
    cutoff: Instant,
) -> SentHints {
    let last_events = changed.iter().map(|(key, changed)| (key.clone(), changed.last)).collect();
    let messages = ChangedAggregates::messages(&last_events);
    let send_to_all = messages.iter().map(|message| async {
        let sends = queues.iter().map(|queue| send(queue, message.to_body(), Duration::ZERO, cutoff));
        join_all(sends).await.into_iter().all(|is_accepted| is_accepted)
    });
    let accepted = join_all(send_to_all).await;
    let mut sent = SentHints::default();
    for (message, is_accepted) in messages.into_iter().zip(accepted) {
        let records = message.keys().filter_map(|key| changed.remove(&key)).map(|changed| changed.sources).collect();
        sent.add(records, is_accepted);
    }
    sent
}

/// Sends the deadlines to the queue, each to become visible when it is due, with retries until `cutoff`.
pub(crate) async fn send_deadlines(
    queue: &Queue,
    mut soon: BTreeMap<DueDeadline, Vec<Coordinates>>,
    clock: &Clock,
    cutoff: Instant,
) -> SentHints {
    let deadlines: Vec<_> = soon.keys().cloned().collect();
    let messages: Vec<_> = DueDeadlines::of_messages(&deadlines, clock.now()).collect();
    let bodies = messages.iter().map(|(delay, of_message)| (*delay, DueDeadlines::new(of_message).to_body()));
    let accepted = join_all(bodies.map(|(delay, body)| send(queue, body, delay, cutoff))).await;
    let mut sent = SentHints::default();
    for ((_, of_message), is_accepted) in messages.into_iter().zip(accepted) {
        sent.add(of_message.iter().filter_map(|deadline| soon.remove(deadline)).collect(), is_accepted);
    }
    sent
}

async fn send(queue: &Queue, body: String, delay: Duration, cutoff: Instant) -> bool {
    let send = queue.send_delayed(&body, delay, u32::MAX, None);
    Instant::now() < cutoff && matches!(timeout_at(cutoff, send).await, Ok(Ok(())))
}
