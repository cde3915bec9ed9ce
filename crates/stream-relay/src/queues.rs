//! Per-aggregate queues: the messages that may be sent now, and their requests. No I/O and no clock.
//!
//! Each aggregate has a queue in order of `messageSeq`, and only the first message of a queue makes progress: it is
//! ready, in flight, waiting for its next attempt, held after a rejection, or on its way to the dead-letter queue. So
//! one request never contains two messages of an aggregate.
//!
//! A request is sent when it is full, when no message in flight has a successor in its queue that could fill it, or
//! when it has waited for such successors for [`FILL_TIME`]. That way messages of n distinct aggregates take ⌈n/10⌉
//! requests, and a slow request holds only its own messages. Requests do not wait for messages on their way to the
//! dead-letter queue: a dead-letter queue that does not respond delays no other aggregate.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

const MAX_ENTRIES: usize = 10;
/// Upper bound of the entries of a request together, in bytes; they must be smaller.
pub(crate) const REQUEST_BYTES: usize = 1024 * 1024;
/// Maximum concurrent requests. At about 20 ms each, they are 400 requests and 4,000 messages a second for one shard.
/// The smallest quotas of EventBridge are 400 requests a second.
const MAX_REQUESTS: usize = 8;
/// A request that takes longer than this does not count towards [`MAX_REQUESTS`], so that a few slow requests do not
/// delay the others.
const SLOW: Duration = Duration::from_millis(500);
const MAX_SLOW_REQUESTS: usize = 32;
/// The maximum time that a partly filled request waits for messages that could fill it. Most responses arrive within
/// it; a slower request delays no message of another aggregate.
const FILL_TIME: Duration = Duration::from_millis(50);
const MAX_DEAD_LETTERS: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueItem<'a> {
    /// Its aggregate; `None` gives it a queue of its own.
    pub(crate) aggregate: Option<&'a str>,
    /// Its position in the queue. Equal positions keep the order of the batch.
    pub(crate) order: u64,
    /// The size of its entry, smaller than [`REQUEST_BYTES`]; `None` when it can never be sent.
    pub(crate) bytes: Option<usize>,
}

/// The next call to make. Messages are identified by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextCall {
    /// Send these in one request, then call [`AggregateQueues::request_finished`].
    Send(Vec<usize>),
    /// Send this one, which can never be published, to the dead-letter queue, then call
    /// [`AggregateQueues::dead_letter_finished`].
    DeadLetter(usize),
}

/// The next step for an entry after its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The bus accepted it: it is settled.
    Sent,
    /// It is sent again, not before this time.
    RetryAt(Instant),
    /// It is sent again at once, from now on in a request of its own.
    RetryAlone,
    /// It is held, until [`AggregateQueues::release_held`] makes it unsendable.
    Held,
    /// It is sent to the dead-letter queue.
    Unsendable,
}

#[derive(Debug, Default)]
pub(crate) struct AggregateQueues {
    states: Vec<MessageState>,
    queues: Vec<VecDeque<usize>>,
    /// The first messages of queues that may be sent now. A message is the index of its state: 4 is the fifth of the batch.
    ready: VecDeque<usize>,
    /// First messages that can never be sent, such as one of 1.1 MB.
    unsendable: VecDeque<usize>,
    /// First messages that wait for their next attempt.
    waiting: BTreeSet<(Instant, usize)>,
    /// First messages that the bus rejected, and that no dead-letter queue has yet: the others of their queues wait.
    held: Vec<usize>,
    /// The time since which a partly filled request waits for messages that could fill it.
    filling_since: Option<Instant>,
    /// The requests in flight: the first message of each, and when it was sent.
    requests: Vec<(usize, Instant)>,
    dead_letters_in_flight: usize,
    in_flight_with_successor: usize,
    /// Maximum concurrent requests, in place of [`MAX_REQUESTS`] and [`MAX_SLOW_REQUESTS`].
    max_requests: Option<usize>,
}

#[derive(Debug)]
struct MessageState {
    queue: usize,
    bytes: Option<usize>,
    attempts: u32,
    alone: bool,
    settled: bool,
}

impl AggregateQueues {
    /// Queues the messages. The index of an item identifies its message from then on.
    pub(crate) fn new<'a>(items: impl IntoIterator<Item = QueueItem<'a>>) -> Self {
        let items: Vec<_> = items.into_iter().collect();
        let mut this = Self::default();
        let mut by_aggregate = HashMap::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let next = this.queues.len();
            let queue = item.aggregate.map_or(next, |aggregate| *by_aggregate.entry(aggregate).or_insert(next));
            if queue == next {
                this.queues.push(VecDeque::new());
            }
            this.queues[queue].push_back(index);
            this.states.push(MessageState { queue, bytes: item.bytes, attempts: 0, alone: false, settled: false });
        }
        for queue in 0..this.queues.len() {
            this.queues[queue].make_contiguous().sort_by_key(|&index| items[index].order);
            this.advance(queue);
        }
        this
    }

    /// Sets the maximum of concurrent requests, whether they are slow or not.
    pub(crate) fn with_max_requests(self, max_requests: Option<usize>) -> Self {
        Self { max_requests, ..self }
    }

    /// The next call at this time, if there is one. Callers repeat this until it returns `None`.
    pub(crate) fn next(&mut self, now: Instant) -> Option<NextCall> {
        while let Some((_, index)) = self.waiting.first().copied().filter(|(at, _)| *at <= now) {
            self.waiting.pop_first();
            self.ready.push_back(index);
        }
        if self.dead_letters_in_flight < MAX_DEAD_LETTERS
            && let Some(index) = self.unsendable.pop_front()
        {
            self.dead_letters_in_flight += 1;
            return Some(NextCall::DeadLetter(index));
        }
        let (count, full) = self.packed();
        if count == 0 || self.is_busy(now) {
            return None;
        }
        let fillable = !full && self.in_flight_with_successor > 0;
        if fillable && now < *self.filling_since.get_or_insert(now) + FILL_TIME {
            return None;
        }
        self.filling_since = None;
        let request: Vec<usize> = self.ready.drain(..count).collect();
        for &index in &request {
            self.states[index].attempts += 1;
            self.in_flight_with_successor += usize::from(self.has_successor(index));
        }
        self.requests.push((request[0], now));
        Some(NextCall::Send(request))
    }

    /// When the next request can be sent, even if none in flight finishes before.
    pub(crate) fn next_attempt_at(&self, now: Instant) -> Option<Instant> {
        let of_ready = if self.ready.is_empty() || self.requests.len() >= self.max_requests.unwrap_or(MAX_SLOW_REQUESTS)
        {
            None
        } else if self.is_busy(now) {
            self.requests.iter().map(|(_, sent)| *sent + SLOW).filter(|slow_at| now < *slow_at).min()
        } else {
            self.filling_since.map(|since| since + FILL_TIME)
        };
        self.waiting.first().map(|(at, _)| *at).into_iter().chain(of_ready).min()
    }

    /// Whether no request is in flight, and none could be sent now.
    pub(crate) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && self.ready.is_empty()
    }

    pub(crate) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    pub(crate) fn release_held(&mut self) {
        self.unsendable.extend(self.held.drain(..));
    }

    /// Whether no message is ready, unsendable or waiting: nothing happens before a call in flight finishes.
    pub(crate) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.unsendable.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn request_finished(&mut self, dispositions: impl IntoIterator<Item = (usize, Disposition)>) {
        for (index, disposition) in dispositions {
            self.requests.retain(|(first, _)| *first != index);
            self.in_flight_with_successor -= usize::from(self.has_successor(index));
            match disposition {
                Disposition::Sent => self.settle(index),
                Disposition::RetryAt(at) => {
                    self.waiting.insert((at, index));
                }
                Disposition::RetryAlone => {
                    self.states[index].alone = true;
                    self.ready.push_back(index);
                }
                Disposition::Held => self.held.push(index),
                Disposition::Unsendable => self.unsendable.push_back(index),
            }
        }
    }

    /// Settles a message that the dead-letter queue accepted. Otherwise the message and its successors in its queue
    /// stay unsettled.
    pub(crate) fn dead_letter_finished(&mut self, index: usize, settled: bool) {
        self.dead_letters_in_flight -= 1;
        if settled {
            self.settle(index);
        }
    }

    pub(crate) fn attempts(&self, index: usize) -> u32 {
        self.states[index].attempts
    }

    pub(crate) fn unsettled(&self) -> impl Iterator<Item = usize> {
        self.states.iter().enumerate().filter(|(_, state)| !state.settled).map(|(index, _)| index)
    }

    fn settle(&mut self, index: usize) {
        let state = &mut self.states[index];
        state.settled = true;
        let queue = state.queue;
        self.queues[queue].pop_front();
        self.advance(queue);
    }

    /// Makes the first message of a queue ready, or marks it as unsendable.
    fn advance(&mut self, queue: usize) {
        if let Some(&first) = self.queues[queue].front() {
            let next = if self.states[first].bytes.is_some() { &mut self.ready } else { &mut self.unsendable };
            next.push_back(first);
        }
    }

    fn is_busy(&self, now: Instant) -> bool {
        if let Some(max_requests) = self.max_requests {
            return self.requests.len() >= max_requests;
        }
        let slow = self.requests.iter().filter(|(_, sent)| *sent + SLOW <= now).count();
        self.requests.len() - slow >= MAX_REQUESTS || self.requests.len() >= MAX_SLOW_REQUESTS
    }

    /// The number of ready messages that fit one request, and whether they fill it.
    fn packed(&self) -> (usize, bool) {
        let mut bytes = 0;
        for (count, &index) in self.ready.iter().enumerate() {
            let state = &self.states[index];
            bytes += state.bytes.unwrap_or_default();
            let apart = state.alone || self.states[self.ready[0]].alone;
            if count == MAX_ENTRIES || bytes >= REQUEST_BYTES || (count > 0 && apart) {
                return (count, true);
            }
        }
        (self.ready.len(), self.ready.len() == MAX_ENTRIES)
    }

    fn has_successor(&self, first: usize) -> bool {
        self.queues[self.states[first].queue].len() > 1
    }
}

#[cfg(test)]
mod tests;
