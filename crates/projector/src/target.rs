//! Targets besides the views table, such as an SQL database or a search index. A target gets the events, and stores its
//! own position for each aggregate.

use std::error::Error;
use std::sync::Arc;

use daybook_decider::{Aggregate, Meta, RecordedEvent, UnreadableKind, read_stored};
use daybook_event_store::EventStore;
use daybook_table::AggregateKey;
use futures_util::future::{BoxFuture, FutureExt};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::project::{MAX_DOUBLINGS, pause};

/// Maximum events of an aggregate that are read at a time.
const MAX_EVENTS: usize = 100;

/// The error of a target. It is logged, and the event is handed over again.
pub type TargetError = Box<dyn Error + Send + Sync>;

/// A target of the events of the aggregates of type `A`.
///
/// The events of an aggregate arrive in order, one at a time. An event may arrive again, and two instances may hand
/// over the same event at the same time. So the target must store the effect of an event and its number in one
/// transaction that fails if the stored number is not [`position`](Self::position) any more. Then each event counts
/// exactly once.
pub trait EventTarget<A: Aggregate>: Send + Sync + 'static {
    /// The number of the last event of this aggregate that the target has stored; 0 for none.
    fn position(&self, aggregate_id: &str) -> impl Future<Output = Result<u64, TargetError>> + Send;

    /// Stores the effect of an event, and its number as the position of its aggregate, if the position still is
    /// `position`.
    fn handle(
        &self,
        event: TargetEvent<'_, A::Event>,
        position: u64,
    ) -> impl Future<Output = Result<(), TargetError>> + Send;
}

#[derive(Clone, Copy, Debug)]
pub struct TargetEvent<'a, E> {
    pub aggregate_id: &'a str,
    /// The number of the event in the aggregate's stream.
    pub seq_num: u64,
    /// When the event was decided.
    pub occurred_at: Timestamp,
    /// The origin of the command that caused the event.
    pub meta: &'a Meta,
    /// The event in the form that the aggregate's code writes today: one, unless `upcast` reads it as several or none.
    pub events: &'a [E],
}

/// A target with its Rust types erased.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) aggregate_type: &'static str,
    /// Hands the next events of an aggregate to the target, up to event 7 for example, before a time: [`hand_over`].
    pub(crate) hand_over: HandOver,
}

type HandOver = Box<
    dyn for<'a> Fn(&'a EventStore, &'a AggregateKey, u64, Instant) -> BoxFuture<'a, Result<HandedOver, TargetError>>
        + Send
        + Sync,
>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandedOver {
    pub(crate) events: u64,
    pub(crate) finished: bool,
}

impl Target {
    pub(crate) fn new<A: Aggregate>(name: &'static str, target: impl EventTarget<A>) -> Self {
        let target = Arc::new(target);
        let hand_over: HandOver = Box::new(move |store, key, last, cutoff| {
            hand_over(name, Arc::clone(&target), store, key, last, cutoff).boxed()
        });
        Self { name, aggregate_type: A::TYPE, hand_over }
    }
}

/// Hands over the events that the target does not have, up to at least number `last`, in the time until `cutoff`.
async fn hand_over<A: Aggregate>(
    name: &'static str,
    target: Arc<impl EventTarget<A>>,
    store: &EventStore,
    key: &AggregateKey,
    last: u64,
    cutoff: Instant,
) -> Result<HandedOver, TargetError> {
    let (mut handed_over, mut failures) = (HandedOver::default(), 0);
    let mut position = target.position(&key.id).await?;
    while Instant::now() < cutoff {
        let page = store.events(key, position, MAX_EVENTS).await?;
        let unreadable = page.unreadable.iter().filter_map(|row| Some((row.seq_num()?, row)));
        let unreadable = unreadable.min_by_key(|(seq_num, _)| *seq_num);
        let is_before = |seq_num| unreadable.is_none_or(|(first, _)| seq_num < first);
        for recorded in page.items.iter().take_while(|recorded| is_before(recorded.seq_num)) {
            if Instant::now() >= cutoff {
                return Ok(handed_over);
            }
            let events = match read_stored::<A>(&key.id, recorded) {
                Ok(events) => events,
                Err(error) if error.kind == UnreadableKind::Newer => {
                    tracing::warn!(aggregate = %key, target_name = name, %error, "left to the newer release");
                    return Ok(handed_over);
                }
                Err(error) => return Err(error.into()),
            };
            let RecordedEvent { seq_num, occurred_at, ref meta, .. } = *recorded;
            let event = TargetEvent { aggregate_id: &key.id, seq_num, occurred_at, meta, events: &events };
            target.handle(event, position).await?;
            position = seq_num;
            handed_over.events += 1;
            failures = 0;
        }
        if let Some((seq_num, row)) = unreadable {
            return Err(format!("event {seq_num}: row {row}: {}", row.reason).into());
        }
        // During an append, a query may return the second event without the first, or none of them. The page is
        // then empty although more events follow.
        if page.items.is_empty() || !page.more {
            handed_over.finished = !page.more && position >= last;
            if handed_over.finished || failures == MAX_DOUBLINGS {
                return Ok(handed_over);
            }
            pause(&mut failures).await;
        }
    }
    Ok(handed_over)
}
