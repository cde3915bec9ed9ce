//! The changes queue, from which the projector learns which aggregates have new events.

use std::collections::BTreeMap;

use daybook_table::{AggregateKey, ChangedAggregates};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::clients::Queue;
use crate::message::Moved;
use crate::record::Coordinates;

#[derive(Debug, Default)]
pub(crate) struct SentChanges {
    pub(crate) aggregates: usize,
    /// Their records.
    pub(crate) settled: Vec<Coordinates>,
    /// The records of the other aggregates.
    pub(crate) unsettled: Vec<Coordinates>,
}

/// Sends the aggregates to the queue, with retries until `cutoff`.
pub(crate) async fn send(queue: &Queue, mut moved: BTreeMap<AggregateKey, Moved>, cutoff: Instant) -> SentChanges {
    let last_events = moved.iter().map(|(key, moved)| (key.clone(), moved.last)).collect();
    let messages = ChangedAggregates::messages(&last_events);
    let sends = messages.iter().map(async |message| {
        let body = message.to_body();
        Instant::now() < cutoff && matches!(timeout_at(cutoff, queue.send(&body, u32::MAX, None)).await, Ok(Ok(())))
    });
    let accepted = join_all(sends).await;
    let mut sent = SentChanges::default();
    for (message, is_accepted) in messages.into_iter().zip(accepted) {
        let records: Vec<_> = message.keys().filter_map(|key| moved.remove(&key)).map(|moved| moved.records).collect();
        sent.aggregates += if is_accepted { records.len() } else { 0 };
        let list = if is_accepted { &mut sent.settled } else { &mut sent.unsettled };
        list.extend(records.into_iter().flatten());
    }
    sent
}
