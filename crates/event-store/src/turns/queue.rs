//! The queue of one aggregate: the requests that wait, the request that has its turn, and the group that earlier
//! requests have joined, whose decisions one transaction appends.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use daybook_decider::Folded;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::sync::Notify;

use crate::append::{AppendBatch, AppendCall, AppendError, FirstEvent};
use crate::cache::Loaded;

/// Maximum number of requests in a group. Requests that append nothing take no space in the transaction.
const MAX_MEMBERS: usize = 100;

/// The part of a group that its members hold. It stays until the last of them is done, even if the queue has removed
/// the group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The state that the first request has decided on. The transaction is conditional on its version.
    pub(crate) base: Folded,
    call: AppendCall,
    append: OnceLock<GroupAppend>,
}

#[derive(Clone, Debug)]
pub(crate) struct GroupAppend {
    /// The call. Every member polls it, so it continues when members are cancelled.
    pub(crate) call: Shared<BoxFuture<'static, Result<(), Arc<AppendError>>>>,
    /// The first event; `None` without events.
    pub(crate) first_event: Option<FirstEvent>,
}

/// What a request decides on when all requests before it in the queue are done, or have joined a group.
#[derive(Debug)]
pub(crate) enum Turn {
    /// No group is open: the request decides on the stored state.
    First,
    /// Its decision can join this group. The second value is the state after the last decision of the group.
    After(Arc<Group>, Folded),
}

impl Group {
    pub(crate) fn new(base: Folded, call: AppendCall) -> Self {
        Self { base, call, append: OnceLock::new() }
    }

    /// The append; `None` until it starts.
    pub(crate) fn append(&self) -> Option<&GroupAppend> {
        self.append.get()
    }

    /// Starts the append: the members poll the call from now on.
    fn start_append(&self, batch: AppendBatch) {
        let first_event = batch.first_event();
        let call = self.call.clone().send(batch).map(|stored| stored.map_err(Arc::new)).boxed().shared();
        self.append.get_or_init(|| GroupAppend { call, first_event });
    }
}

/// The requests that write to one aggregate, by the order of their arrival.
///
/// At any time, one of these holds: a request has its turn; a group is closed, and its members append it; or the queue
/// is empty.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The requests that wait for their turn or have it.
    waiting: BTreeMap<u64, Arc<Notify>>,
    holder: Option<u64>,
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
    /// The items of the transaction, until the group is closed.
    batch: Option<AppendBatch>,
    members: BTreeMap<u64, Arc<Notify>>,
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

    fn has_turn(&self, number: u64) -> bool {
        self.holder == Some(number)
    }

    /// Whether requests wait besides the one that has its turn.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.len() > 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.group.is_none()
    }

    pub(super) fn turn(&self, number: u64) -> Option<Turn> {
        self.has_turn(number).then(|| match &self.group {
            Some(open) => Turn::After(Arc::clone(&open.group), open.after.folded.clone()),
            None => Turn::First,
        })
    }

    /// Begins a group with the decision of the request that has its turn.
    pub(super) fn begin_group(&mut self, group: &Arc<Group>, batch: AppendBatch, after: Loaded) {
        let group = Arc::clone(group);
        self.group = Some(QueuedGroup { group, after, batch: Some(batch), members: BTreeMap::new() });
        self.add_member();
    }

    /// Adds the decision of request `number`; `None` stands for a decision that appends nothing. Returns the index of
    /// its response among those that are stored. Returns `None` if the decision cannot be added, because it does not
    /// fit or because the group that it was made after has been closed meanwhile, even if another one is open. The request
    /// then waits for its next turn.
    pub(super) fn join(&mut self, number: u64, into: &Arc<Group>, own: Option<(AppendBatch, Loaded)>) -> Option<usize> {
        let has_turn = self.has_turn(number);
        let open = self.group.as_mut().filter(|open| has_turn && Arc::ptr_eq(&open.group, into))?;
        let batch = open.batch.as_mut()?;
        let index = batch.responses();
        match own {
            Some((next, _)) if !batch.has_space_for(&next) => {
                self.close();
                return None;
            }
            Some((next, after)) => {
                batch.add(next);
                open.after = after;
            }
            None => {}
        }
        self.add_member();
        Some(index)
    }

    /// Adds the request that has its turn to the group. Closes a full group, or gives the turn to the next request.
    fn add_member(&mut self) {
        let Some(open) = &mut self.group else { return };
        let member = self.holder.take().and_then(|number| self.waiting.remove_entry(&number));
        open.members.extend(member);
        let is_full = open.members.len() >= MAX_MEMBERS || open.batch.as_ref().is_some_and(AppendBatch::is_full);
        if is_full { self.close() } else { self.advance() }
    }

    /// Closes the group without a decision of the request that has its turn. That request waits for its next turn.
    pub(super) fn decline_group(&mut self, number: u64) {
        if self.has_turn(number) {
            self.close();
        }
    }

    pub(super) fn close_group(&mut self, group: &Arc<Group>) {
        if self.group.as_ref().is_some_and(|open| open.batch.is_some() && Arc::ptr_eq(&open.group, group)) {
            self.close();
        }
    }

    /// Closes the group: no request may join it any more, and its members append it. A request that has its turn waits
    /// for its next turn.
    fn close(&mut self) {
        self.holder = None;
        if let Some(open) = &mut self.group
            && let Some(batch) = open.batch.take()
        {
            open.group.start_append(batch);
            open.members.values().for_each(|wake| wake.notify_one());
        }
        self.advance();
    }

    /// Removes the group when the outcome of its append is known. If it is stored, caches the state after it. If it is not,
    /// its members wait for their turn again, before requests that arrived later.
    pub(super) fn end_group(
        &mut self,
        group: &Arc<Group>,
        stored: &Result<(), Arc<AppendError>>,
        cache: impl FnOnce(&Loaded),
    ) {
        let Some(queued) = self.group.take_if(|queued| Arc::ptr_eq(&queued.group, group)) else { return };
        match stored {
            Ok(()) => cache(&queued.after),
            Err(error) => {
                if matches!(
                    **error,
                    AppendError::KeysUsed(_) | AppendError::ClaimTaken { .. } | AppendError::NotReleased(_)
                ) {
                    self.retried_before = queued.members.last_key_value().map_or(0, |(number, _)| number + 1);
                }
                self.waiting.extend(queued.members);
            }
        }
        self.advance();
    }

    /// Whether a request may get the turn: it joins the group that is open, if one is.
    fn may_join(&self, number: u64) -> bool {
        let first = self.group.as_ref().and_then(|group| group.members.first_key_value());
        number < self.retried_before || first.is_none_or(|(&first, _)| first >= self.retried_before)
    }

    /// Gives the turn to the next request, if no request has it. If no request waits that may join the group, closes it.
    fn advance(&mut self) {
        // All members have left the closed group, so nobody polls its call any more.
        self.group.take_if(|group| group.batch.is_none() && group.members.is_empty());
        let is_sending = self.group.as_ref().is_some_and(|group| group.batch.is_none());
        if self.holder.is_some() || is_sending {
            return;
        }
        match self.waiting.first_key_value().filter(|(number, _)| self.may_join(**number)) {
            Some((&number, wake)) => {
                wake.notify_one();
                self.holder = Some(number);
            }
            None if self.group.is_some() => self.close(),
            None => {}
        }
    }
}
