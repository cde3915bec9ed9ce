//! What may be sent when: order, packing, waiting. No I/O and no clock of its own.
//!
//! Each aggregate is a lane, in order of `messageSeq`, and only the head of a lane moves: it is ready, in flight, waiting
//! to be tried again, or being parked. So one request never holds two messages of an aggregate.
//!
//! A request leaves when it is full, or when nothing is in flight that could fill it, that is, whose lane goes on behind
//! it. Messages of n distinct aggregates take ⌈n/10⌉ requests that way. What is being parked is not waited for: a queue
//! that does not answer holds up no other aggregate.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

/// Entries a request, at most.
pub(crate) const MAX_ENTRIES: usize = 10;
/// The entries of a request together are smaller than this, in bytes.
pub(crate) const REQUEST_BYTES: usize = 1024 * 1024;
/// Requests side by side. At some 20 ms each that is 4,000 messages a second for one shard, below the smallest quotas of
/// EventBridge (400 requests a second).
pub(crate) const MAX_REQUESTS: usize = 8;
/// Messages on their way to the dead-letter queue side by side.
pub(crate) const MAX_PARKINGS: usize = 8;

/// Where a message stands among the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Its aggregate; a lane of its own when there is none.
    pub(crate) lane: Option<&'a str>,
    /// Its place in the lane. Equals stay as they came.
    pub(crate) order: u64,
    /// The size of its entry, smaller than [`REQUEST_BYTES`]; `None` when it is only to be parked.
    pub(crate) bytes: Option<usize>,
}

/// The next thing to do. Messages are named by their index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send these in one request, and then tell [`Lanes::answer`].
    Send(Vec<usize>),
    /// Put this one into the dead-letter queue, and then tell [`Lanes::parked`].
    Park(usize),
}

/// What a request was to one of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Done.
    Sent,
    /// To be tried again from then on.
    Again(Instant),
    /// To be tried again at once, in a request of its own from now on.
    Alone,
    /// To be parked.
    Refused,
}

/// All messages of an invocation.
#[derive(Debug)]
pub(crate) struct Lanes {
    tickets: Vec<Ticket>,
    lanes: Vec<VecDeque<usize>>,
    /// Heads that may be sent.
    ready: VecDeque<usize>,
    /// Heads that are to be parked.
    refused: VecDeque<usize>,
    /// Heads that are to be tried again.
    waiting: BTreeSet<(Instant, usize)>,
    requests: usize,
    parkings: usize,
    /// Heads in flight whose lane goes on behind them.
    feeding: usize,
}

#[derive(Debug)]
struct Ticket {
    lane: usize,
    bytes: Option<usize>,
    attempts: u32,
    alone: bool,
    settled: bool,
}

impl Lanes {
    /// Lines the messages up. The index of a place is the name of its message from then on.
    pub(crate) fn new<'a>(places: impl IntoIterator<Item = Place<'a>>) -> Self {
        let places: Vec<_> = places.into_iter().collect();
        let mut tickets = Vec::with_capacity(places.len());
        let mut lanes: Vec<VecDeque<usize>> = Vec::new();
        let mut by_name = HashMap::new();
        for (index, place) in places.iter().enumerate() {
            let lane = place.lane.map_or(lanes.len(), |name| *by_name.entry(name).or_insert(lanes.len()));
            if lane == lanes.len() {
                lanes.push(VecDeque::new());
            }
            lanes[lane].push_back(index);
            tickets.push(Ticket { lane, bytes: place.bytes, attempts: 0, alone: false, settled: false });
        }
        for lane in &mut lanes {
            lane.make_contiguous().sort_by_key(|&index| places[index].order);
        }
        let mut this = Self {
            tickets,
            ready: VecDeque::new(),
            refused: VecDeque::new(),
            waiting: BTreeSet::new(),
            requests: 0,
            parkings: 0,
            feeding: 0,
            lanes,
        };
        for lane in 0..this.lanes.len() {
            this.advance(lane);
        }
        this
    }

    /// The next thing to do now, if there is one. To be asked until there is none.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Step> {
        while let Some((_, index)) = self.waiting.first().copied().filter(|(at, _)| *at <= now) {
            self.waiting.pop_first();
            self.ready.push_back(index);
        }
        if self.parkings < MAX_PARKINGS
            && let Some(index) = self.refused.pop_front()
        {
            self.parkings += 1;
            return Some(Step::Park(index));
        }
        let (count, full) = self.packed();
        if count == 0 || self.requests == MAX_REQUESTS || !(full || self.feeding == 0) {
            return None;
        }
        let request: Vec<usize> = self.ready.drain(..count).collect();
        for &index in &request {
            self.tickets[index].attempts += 1;
            self.feeding += self.feeds(index);
        }
        self.requests += 1;
        Some(Step::Send(request))
    }

    /// When something is to be tried again next.
    pub(crate) fn wake(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// A request is back, with a verdict for each entry.
    pub(crate) fn answer(&mut self, verdicts: impl IntoIterator<Item = (usize, Verdict)>) {
        self.requests -= 1;
        for (index, verdict) in verdicts {
            self.feeding -= self.feeds(index);
            match verdict {
                Verdict::Sent => self.settle(index),
                Verdict::Again(at) => {
                    self.waiting.insert((at, index));
                }
                Verdict::Alone => {
                    self.tickets[index].alone = true;
                    self.ready.push_back(index);
                }
                Verdict::Refused => self.refused.push_back(index),
            }
        }
    }

    /// The dead-letter queue took a message, or it did not: then its lane stands still from now on.
    pub(crate) fn parked(&mut self, index: usize, taken: bool) {
        self.parkings -= 1;
        if taken {
            self.settle(index);
        }
    }

    /// How often a message was sent.
    pub(crate) fn attempts(&self, index: usize) -> u32 {
        self.tickets[index].attempts
    }

    /// The messages that are neither sent nor parked.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = usize> {
        self.tickets.iter().enumerate().filter(|(_, ticket)| !ticket.settled).map(|(index, _)| index)
    }

    fn settle(&mut self, index: usize) {
        let ticket = &mut self.tickets[index];
        ticket.settled = true;
        let lane = ticket.lane;
        self.lanes[lane].pop_front();
        self.advance(lane);
    }

    /// Gets the head of a lane going.
    fn advance(&mut self, lane: usize) {
        if let Some(&head) = self.lanes[lane].front() {
            let queue = if self.tickets[head].bytes.is_some() { &mut self.ready } else { &mut self.refused };
            queue.push_back(head);
        }
    }

    /// How many of the heads that are ready fit one request, and whether that makes it full.
    fn packed(&self) -> (usize, bool) {
        let mut bytes = 0;
        for (count, &index) in self.ready.iter().enumerate() {
            let ticket = &self.tickets[index];
            bytes += ticket.bytes.unwrap_or_default();
            let apart = ticket.alone || self.tickets[self.ready[0]].alone;
            if count == MAX_ENTRIES || bytes >= REQUEST_BYTES || (count > 0 && apart) {
                return (count, true);
            }
        }
        (self.ready.len(), self.ready.len() == MAX_ENTRIES)
    }

    /// 1 when the lane of this head goes on behind it.
    fn feeds(&self, index: usize) -> usize {
        usize::from(self.lanes[self.tickets[index].lane].len() > 1)
    }
}

#[cfg(test)]
mod tests;
