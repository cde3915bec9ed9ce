//! The queue of one aggregate: the requests that wait, the request that has its turn, and the group that earlier
//! requests have joined.

use std::collections::BTreeMap;
use std::sync::Arc;

use daybook_decider::Folded;
use tokio::sync::Notify;

use super::group::Group;
use crate::append::AppendError;
use crate::append::batch::Batch;
use crate::loaded::Loaded;

/// Maximum number of requests in a group. Requests that append nothing take no space in the transaction.
const MAX_MEMBERS: usize = 100;

/// The requests that write to one aggregate, by the order of their arrival.
///
/// At any time, one of these holds: a request has its turn; a group is closed, and its members append it; or the queue
/// is empty.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The requests that wait for their turn.
    waiting: BTreeMap<u64, Arc<Notify>>,
    /// The request that has its turn.
    holder: Option<(u64, Arc<Notify>)>,
    group: Option<QueuedGroup>,
    /// The number after the last member of the latest group that a used idempotency key has failed. Its members share
    /// appends among themselves only: a later request with another used key would fail them again.
    retried_before: u64,
}

/// The group that requests join, or that its members append.
#[derive(Debug)]
struct QueuedGroup {
    group: Arc<Group>,
    /// The state after the last decision.
    after: Loaded,
    /// The items of the transaction, until the append starts.
    batch: Option<Batch>,
    members: BTreeMap<u64, Arc<Notify>>,
    /// Whether no request may join any more.
    is_closed: bool,
}

impl Queue {
    pub(super) fn enter(&mut self, number: u64, wake: &Arc<Notify>) {
        self.waiting.insert(number, Arc::clone(wake));
        self.advance();
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.remove(&number);
        if self.has_turn(number) {
            self.holder = None;
        }
        if let Some(group) = &mut self.group {
            group.members.remove(&number);
        }
        self.advance();
    }

    pub(super) fn has_turn(&self, number: u64) -> bool {
        self.holder.as_ref().is_some_and(|(holder, _)| *holder == number)
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.holder.is_none() && self.group.is_none()
    }

    /// The group that the request with the turn may join, and the state after the last decision of the group.
    pub(super) fn open_group(&self) -> Option<(Arc<Group>, Folded)> {
        let group = self.group.as_ref().filter(|group| !group.is_closed)?;
        Some((Arc::clone(&group.group), group.after.folded.clone()))
    }

    /// Begins a group with the decision of the request that has its turn.
    pub(super) fn begin_group(&mut self, group: &Arc<Group>, batch: Batch, after: Loaded) {
        let members = self.holder.take().into_iter().collect();
        let group = Arc::clone(group);
        self.group = Some(QueuedGroup { group, after, batch: Some(batch), members, is_closed: false });
        self.close_or_advance();
    }

    /// Adds the decision of request `number`; `None` stands for a decision that appends nothing. Returns the index of
    /// its response among those that are stored. Returns `None` if the decision cannot be added, because it does not
    /// fit or because the group has been closed meanwhile. The request then waits for its next turn.
    pub(super) fn join(&mut self, number: u64, group: &Arc<Group>, decision: Option<(Batch, Loaded)>) -> Option<usize> {
        let joined = if self.has_turn(number) { self.add(group, decision) } else { None };
        match joined {
            Some(_) => self.close_or_advance(),
            None => self.decline_group(number),
        }
        joined
    }

    /// Closes a full group, or gives the turn to the next request.
    fn close_or_advance(&mut self) {
        let is_full = |group: &QueuedGroup| {
            group.members.len() >= MAX_MEMBERS || group.batch.as_ref().is_some_and(Batch::is_full)
        };
        if self.group.as_ref().is_some_and(is_full) { self.close() } else { self.advance() }
    }

    fn add(&mut self, group: &Arc<Group>, decision: Option<(Batch, Loaded)>) -> Option<usize> {
        let queued = self.group.as_mut().filter(|queued| !queued.is_closed && Arc::ptr_eq(&queued.group, group))?;
        let batch = queued.batch.as_mut()?;
        let responses = batch.responses();
        if let Some((next, after)) = decision {
            if !batch.has_space_for(&next) {
                return None;
            }
            batch.add(next);
            queued.after = after;
        }
        queued.members.extend(self.holder.take());
        Some(responses)
    }

    /// Closes the group without a decision of the request that has its turn. That request waits for its next turn.
    pub(super) fn decline_group(&mut self, number: u64) {
        if self.has_turn(number) {
            self.close();
        }
    }

    /// Closes the group: no request may join it any more, and its members append it. A request that has its turn waits
    /// for its next turn.
    fn close(&mut self) {
        self.waiting.extend(self.holder.take());
        if let Some(group) = &mut self.group {
            group.is_closed = true;
            group.members.values().for_each(|wake| wake.notify_one());
        }
        self.advance();
    }

    /// Starts the append of the group if the group is closed and its append has not started. With `now`, closes the
    /// group first.
    pub(super) fn start_append<F>(&mut self, group: &Arc<Group>, now: bool, call: impl FnOnce(Batch) -> F)
    where
        F: Future<Output = Result<(), AppendError>> + Send + 'static,
    {
        let is_open = |queued: &QueuedGroup| !queued.is_closed && Arc::ptr_eq(&queued.group, group);
        if now && self.group.as_ref().is_some_and(is_open) {
            self.close();
        }
        let Some(queued) = self.group.as_mut().filter(|queued| Arc::ptr_eq(&queued.group, group)) else { return };
        if let Some(batch) = queued.batch.take_if(|_| queued.is_closed) {
            let first_event = batch.first_event;
            group.start_append(call(batch), queued.after.clone(), first_event);
        }
    }

    /// Removes the group when the outcome of its append is known. If it is not stored, its members wait for their turn
    /// again, before requests that arrived later.
    pub(super) fn end_group(&mut self, group: &Arc<Group>, stored: &Result<(), Arc<AppendError>>) {
        if let Some(queued) = self.group.take_if(|queued| Arc::ptr_eq(&queued.group, group)) {
            if let Err(error) = stored {
                if let AppendError::KeysUsed(_) = **error {
                    self.retried_before = queued.members.last_key_value().map_or(0, |(number, _)| number + 1);
                }
                self.waiting.extend(queued.members);
            }
            self.advance();
        }
    }

    /// Whether a request may get the turn: it joins the group that is open, if one is.
    fn may_join(&self, number: u64) -> bool {
        let first = self.group.as_ref().and_then(|group| group.members.first_key_value());
        number < self.retried_before || first.is_none_or(|(&first, _)| first >= self.retried_before)
    }

    /// Gives the turn to the next request, if no request has it. If no request waits that may join the group, closes it.
    fn advance(&mut self) {
        // All members have left the closed group, so nobody polls its call any more.
        self.group.take_if(|group| group.is_closed && group.members.is_empty());
        let is_sending = self.group.as_ref().is_some_and(|group| group.is_closed);
        if self.holder.is_some() || is_sending {
            return;
        }
        let next = self.waiting.first_key_value().map(|(&number, _)| number);
        match next.filter(|&number| self.may_join(number)).and_then(|number| self.waiting.remove_entry(&number)) {
            Some((number, wake)) => {
                wake.notify_one();
                self.holder = Some((number, wake));
            }
            None if self.group.is_some() => self.close(),
            None => {}
        }
    }
}
