//! The attempts of a transaction.

use std::sync::Arc;

use daybook_decider::{Claim, Folded, Need};
use tokio::time::{Instant, sleep, timeout_at};

use super::decide::Decide;
use super::decision::{Decision, Drafted, NotDecided, Outcome};
use super::in_doubt::InDoubt;
use super::options::{End, TransactError, TransactOptions, Transacted};
use super::others::Others;
use crate::append::{AppendCall, AppendError, ClaimHolders, FirstEvent};
use crate::backoff::Backoff;
use crate::error::{Cause, StoreError};
use crate::load::{LoadOptions, LoadPolicy};
use crate::settle::SEND_WINDOW;
use crate::store::EventStream;
use crate::turns::{Group, Place, Turn};

/// The commands of one request, from its place in the queue of the aggregate to the result.
pub(super) struct Transaction<'a, D> {
    pub(super) stream: EventStream<'a>,
    commands: &'a D,
    pub(super) options: &'a TransactOptions<'a>,
    place: Place<'a>,
    /// The time until which lost races are repeated.
    race_until: Instant,
    /// The deadline, or the start of the transaction if that is later: one attempt is always made.
    pub(super) last_attempt: Instant,
    pub(super) in_doubt: InDoubt,
    /// The state of the next attempt.
    pub(super) state: StartState,
    /// The number of events that are known to exist.
    pub(super) at_least: u64,
    pub(super) retry: Option<Retry>,
    /// The time until which the request waits for its turn.
    pub(super) turn_until: Instant,
    holders: ClaimHolders,
    pub(super) others: Others<'a>,
    /// Whether it has left the queue, to take its place again after those in the queues of other aggregates.
    has_left: bool,
    /// Whether the next append must not contain the decision of another request.
    pub(super) is_alone: bool,
    /// Whether a subject of the decision was found to be forgotten, and the state was then read again.
    is_forgotten: bool,
    backoff: Backoff,
    /// The version of the metadata that is behind the events, and since when.
    pub(super) behind: Option<(u64, Instant)>,
}

/// The state that the next attempt decides on, unless it joins a group.
pub(super) enum StartState {
    /// The state that this process has in its cache, for example as of event 7. If there is none, a create command is
    /// decided on the empty state, because the aggregate probably does not exist, and for another command the state is
    /// read. The condition of the append finds a state that is outdated.
    Cached,
    /// A state that is at hand, and whether it was read from the table for this request.
    Known(Folded, bool),
    /// The state in the table, which is read first.
    Read,
}

/// Why an attempt has no result, and the next one is made after a pause.
pub(super) enum Retry {
    /// Another writer was faster, or is writing.
    Race,
    /// The same on another aggregate that the decision involves.
    RaceOfOther,
    /// Nothing was written, or the append is in doubt.
    Failed(Cause),
}

/// A decision that is part of an append.
pub(super) struct Proposed {
    /// The index of its response among those that are stored, if the request has an idempotency key.
    pub(super) index: usize,
    pub(super) outcome: Outcome,
    /// The claims that it changes.
    pub(super) claims: Vec<Claim>,
}

/// The result of the transaction; `None` if another attempt follows, which has been prepared.
pub(super) type Attempted<E> = Option<End<E>>;

impl<'a, D: Decide> Transaction<'a, D> {
    pub(super) fn new(
        stream: EventStream<'a>,
        commands: &'a D,
        options: &'a TransactOptions<'a>,
        race_until: Instant,
    ) -> Self {
        let is_rebuild = options.policy == LoadPolicy::Rebuild;
        Self {
            stream,
            commands,
            options,
            place: stream.store.turns.enter(stream.key),
            race_until,
            last_attempt: options.deadline.max(Instant::now()),
            in_doubt: InDoubt::default(),
            state: if is_rebuild { StartState::Read } else { StartState::Cached },
            at_least: 0,
            retry: None,
            turn_until: race_until,
            holders: ClaimHolders::default(),
            others: Others::default(),
            has_left: false,
            is_alone: is_rebuild || commands.requires().is_some(),
            is_forgotten: false,
            backoff: Backoff::until(options.deadline),
            behind: None,
        }
    }

    pub(super) async fn run(mut self) -> End<D::Error> {
        let end = loop {
            match self.turn().await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(error) => break Err(error),
            }
        };
        // Only reads follow, which need no turn.
        self.leave();
        match self.resolve(false).await {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) if self.in_doubt.event().is_none() => end,
            Ok(None) | Err(_) => Err(self.outcome_unknown()),
        }
    }

    /// Leaves all queues.
    fn leave(&mut self) {
        self.place.leave();
        self.others.leave();
    }

    /// Waits for the turn and makes an attempt.
    async fn turn(&mut self) -> Result<Attempted<D::Error>, TransactError<D::Error>> {
        let EventStream { store, key, .. } = self.stream;
        if !self.others.turns(store, |other| other < key, self.turn_until).await {
            return Err(self.time_over());
        }
        if self.has_left {
            (self.place, self.has_left) = (store.turns.enter(key), false);
        }
        match self.place.turn(self.turn_until).await {
            None => Err(self.time_over()),
            Some(Turn::First) => {
                if !self.others.turns(store, |_| true, self.turn_until).await {
                    return Err(self.time_over());
                }
                self.pause().await?;
                let (before, is_read) = match self.state_without_read() {
                    Some(known) => known,
                    None => match self.resolve_before_read().await? {
                        Some(stored) => return Ok(Some(Ok(stored))),
                        None => (self.read().await?, true),
                    },
                };
                let attempted = self.attempt(&before, is_read).await;
                if let Some(Retry::Race) = self.retry {
                    store.contention.lost(key);
                }
                Ok(attempted)
            }
            Some(Turn::After(group, before)) if self.may_join(&group) => {
                Ok(self.attempt_in_group(&group, &before).await)
            }
            Some(Turn::After(..)) => {
                self.place.decline_group();
                Ok(None)
            }
        }
    }

    /// The pause before the next attempt, if there is one.
    async fn pause(&mut self) -> Result<(), TransactError<D::Error>> {
        let EventStream { store, key, .. } = self.stream;
        let left = self.race_until.saturating_duration_since(Instant::now());
        let has_time = match &self.retry {
            Some(Retry::Failed(_)) => self.backoff.wait().await,
            // After the expected version, there is no race to repeat: the state that is read decides the response.
            Some(Retry::Race | Retry::RaceOfOther) => {
                !left.is_zero() || self.options.expected_version.is_some_and(|expected| expected < self.at_least)
            }
            None => true,
        };
        if !has_time {
            return Err(self.time_over());
        }
        let is_race = matches!((self.retry.take(), &self.state), (None, StartState::Cached) | (Some(Retry::Race), _));
        // Without time for a pause, the first attempt is made at once. Appends in doubt are repeated on the same states.
        if left.is_zero() || self.in_doubt.event().is_some() {
            return Ok(());
        }
        let own = store.contention.pause(key).filter(|_| is_race);
        if let Some(pause) = own.max(self.others.pause(store)) {
            // A part of the time that is left, so that a pause never uses up all of it.
            sleep(pause.min(left / 4)).await;
            if let (Some(_), StartState::Cached) = (own, &self.state) {
                self.state = StartState::Read;
            }
        }
        Ok(())
    }

    /// The error of a transaction that has no time for another attempt.
    fn time_over(&mut self) -> TransactError<D::Error> {
        match self.retry.take() {
            Some(Retry::Failed(source)) => StoreError::Unavailable { doing: "append", source }.into(),
            Some(Retry::Race | Retry::RaceOfOther) | None => TransactError::Contended,
        }
    }

    /// The state of the next attempt, if it needs no call, and whether it was read.
    fn state_without_read(&mut self) -> Option<(Folded, bool)> {
        let EventStream { store, model, key } = self.stream;
        let cached = || store.cached(key).map(|loaded| loaded.folded);
        match std::mem::replace(&mut self.state, StartState::Read) {
            StartState::Known(known, is_read) => {
                // Another request of this process may have appended since. An append in doubt has to be resolved on its
                // own version.
                let newer = cached().filter(|cached| cached.version() > known.version());
                let newer = newer.filter(|_| self.in_doubt.event().is_none());
                Some(newer.map_or((known, is_read), |newer| (newer, false)))
            }
            StartState::Read => None,
            StartState::Cached => {
                let folded = cached().or_else(|| self.options.creates.then(|| model.before_first_event()))?;
                Some((folded, false))
            }
        }
    }

    /// Reads the state of the next attempt.
    async fn read(&self) -> Result<Folded, StoreError> {
        let EventStream { store, model, key } = self.stream;
        let cached = store.cached(key).map(|loaded| loaded.version());
        let options = LoadOptions { policy: self.options.policy, at_least: self.at_least, at: None };
        let folded = store.load_with(model, key, options).await?.folded;
        if let Some(cached) = cached {
            store.contention.found(key, folded.version().saturating_sub(cached));
        }
        Ok(folded)
    }

    /// Resolves the appends in doubt. A newer state may contain one of them, and deciding on it would append twice.
    async fn resolve_before_read(&mut self) -> Result<Option<Transacted>, TransactError<D::Error>> {
        let Some(first) = self.in_doubt.event() else { return Ok(None) };
        let exists = first.of.is_none() && self.at_least >= first.number;
        match self.resolve(exists).await? {
            None if self.in_doubt.event().is_some() => Err(self.outcome_unknown()),
            resolved => Ok(resolved),
        }
    }

    /// Whether this request may join the group. An append in doubt has to be resolved on its own version.
    fn may_join(&self, group: &Group) -> bool {
        let version = group.base.version();
        !self.is_alone && self.in_doubt.event().is_none_or(|first| first.number == version + 1)
    }

    fn decide(&self, before: &Folded, ready: Option<Drafted>) -> Result<Decision, NotDecided<D::Error>> {
        self.stream.decide(self.commands, self.options, before, ready, &self.others.known, &self.holders)
    }

    /// Decides on one state, and reads what the decision needs to know about other aggregates. Returns the call of the append
    /// too.
    async fn decide_with_others(
        &mut self,
        before: &Folded,
    ) -> Result<(AppendCall, Result<Decision, End<D::Error>>), StoreError> {
        let mut drafted: Option<(AppendCall, Drafted)> = None;
        loop {
            // Its events have the time of the decision, so it is sent in the window of that time.
            let in_time = drafted.take().filter(|(call, _)| Instant::now() < call.send_until);
            let (call, ready) = in_time.map_or_else(
                || (self.stream.call(before.version(), Instant::now() + SEND_WINDOW), None),
                |(call, ready)| (call, Some(ready)),
            );
            let decided = match std::mem::take(&mut self.others.existing) {
                existing if existing.is_empty() => self.decide(before, ready),
                existing => Err(NotDecided::Needs(existing)),
            };
            match decided {
                Ok(decision) => return Ok((call, Ok(decision))),
                Err(NotDecided::End(end)) => return Ok((call, Err(end))),
                // Another decision could need other keys, those of aggregates with new ids.
                Err(NotDecided::Keys(subjects, ready)) => {
                    self.stream.store.sealing.provide(&subjects).await?;
                    drafted = Some((call, *ready));
                }
                Err(NotDecided::Needs(needs)) => {
                    self.is_alone = true;
                    self.others.read(self.stream, self.commands, self.options.policy, needs).await?;
                }
            }
        }
    }

    /// Caches the states after the append.
    pub(super) fn put_in_cache(&self, stored: &Outcome) {
        self.stream.put_in_cache(&stored.after);
        stored.others.iter().for_each(|(key, after)| self.stream.store.cache.put(key, after));
        // Their cached states may have their history.
        stored.forgotten.iter().for_each(|key| self.stream.store.forget(key));
    }

    /// Decides on one state and appends: alone, or in a new group if other requests wait.
    async fn attempt(&mut self, before: &Folded, is_read: bool) -> Attempted<D::Error> {
        let (call, decided) = match self.decide_with_others(before).await {
            Ok(decided) => decided,
            Err(error) => return Some(Err(error.into())),
        };
        let (batch, proposed) = match decided {
            Ok(decision) => {
                self.is_alone |= decision.outcome.is_alone();
                if self.in_doubt.event().is_none() && self.others.lacks_place(&decision) {
                    self.place.leave();
                    (self.has_left, self.state) = (true, StartState::Known(before.clone(), is_read));
                    return None;
                }
                let Decision { batch, outcome } = decision;
                let claims = batch.claims();
                (batch, Ok(Proposed { index: 0, outcome, claims }))
            }
            // The state may be from before the subject was forgotten, also one that was read.
            Err(Err(TransactError::Forgotten { .. })) if !std::mem::replace(&mut self.is_forgotten, true) => {
                self.others.forget();
                return None;
            }
            // Its conditions check whether the states are current, and were so together.
            Err(end) if !self.others.known.is_empty() => (self.stream.checks(&self.others.known), Err(end)),
            Err(end) if is_read => {
                self.leave();
                return Some(self.stored_response_or(end).await);
            }
            // No condition has checked whether the state is current, so it is read.
            Err(_) => return None,
        };
        if let Ok(own) = &proposed
            && self.place.has_waiting()
            && !self.is_alone
        {
            let group = Arc::new(Group::new(before.clone(), call));
            self.place.begin_group(&group, batch, own.outcome.after.clone());
            return self.append_group(&group, is_read, proposed).await;
        }
        let first_event = batch.first_event();
        // One of the appends in doubt may be stored together with one that has its first event elsewhere, so they are resolved
        // first.
        let has_moved = |doubtful: &FirstEvent| match &first_event {
            Some(first) => (&first.of, first.number) != (&doubtful.of, doubtful.number),
            None => !self.others.known.is_empty(),
        };
        if self.in_doubt.event().is_some_and(has_moved) {
            return None;
        }
        let is_read = is_read && (self.others.is_read || self.others.known.is_empty());
        // Boxed, because it is large, and the time limit moves it.
        let append = Box::pin(call.send(batch));
        let stored = match timeout_at(self.last_attempt + TransactOptions::LAST_ATTEMPT, append).await {
            Ok(Err(AppendError::Store(error))) => return Some(Err(error.into())),
            // The state may be outdated too: DynamoDB need not report each condition that fails.
            Ok(Err(AppendError::ClaimTaken { .. })) if !is_read => {
                self.others.forget();
                (self.state, self.retry) = (StartState::Read, None);
                return None;
            }
            // The decision has looked at the claim, and may be another one now.
            Ok(Err(AppendError::ClaimTaken { claim, holder })) if self.others.has_other_holder(&claim, &holder) => {
                Err(AppendError::Raced(vec![Need::Holder(claim)]))
            }
            Ok(Err(AppendError::ClaimTaken { claim, holder })) => {
                return Some(Err(TransactError::ClaimTaken { claim, holder }));
            }
            Ok(Err(AppendError::NotReleased(claims))) => {
                let foreign = &mut self.holders.foreign;
                *foreign = foreign.symmetric_difference(&claims.iter().cloned().collect()).cloned().collect();
                Err(AppendError::NotWritten("another aggregate has a claim".into()))
            }
            Ok(stored) => stored,
            Err(elapsed) => Err(AppendError::Unknown(elapsed.into())),
        };
        match (&stored, proposed) {
            (Ok(()), Err(end)) => {
                self.leave();
                Some(self.stored_response_or(end).await)
            }
            (_, proposed) => {
                if let (Ok(()), Ok(own)) = (&stored, &proposed) {
                    self.put_in_cache(&own.outcome);
                }
                self.end_of_append(stored.map_err(Arc::new), before, is_read, first_event, proposed)
            }
        }
    }

    /// Decides on the state after the last decision of a group, and joins the group. A decision that appends nothing
    /// joins too: the condition of the group checks the state that the decision was made on.
    async fn attempt_in_group(&mut self, group: &Arc<Group>, before: &Folded) -> Attempted<D::Error> {
        let proposed = match self.decide(before, None) {
            Ok(Decision { batch, outcome }) if !outcome.is_alone() => {
                let claims = batch.claims();
                let index = self.place.join(group, Some((batch, outcome.after.clone())))?;
                Ok(Proposed { index, outcome, claims })
            }
            Err(NotDecided::End(end))
                if self.options.idempotency.is_none() && !matches!(end, Err(TransactError::Forgotten { .. })) =>
            {
                self.place.join(group, None)?;
                Err(end)
            }
            // A decision that involves other aggregates, or forgets, is appended alone. The state of the group may be from before a
            // subject was forgotten. The idempotency key of a decision that appends nothing may have a stored response, which is
            // read before the next request is decided.
            declined => {
                self.is_alone |= matches!(declined, Ok(_) | Err(NotDecided::Needs(_) | NotDecided::End(Err(_))));
                self.place.decline_group();
                return None;
            }
        };
        // It does not count as a state that was read: another request may have read it before this one arrived.
        self.append_group(group, false, proposed).await
    }

    /// Waits for the append of a group that this request has joined: with a decision, or with a result that appends
    /// nothing.
    async fn append_group(
        &mut self,
        group: &Arc<Group>,
        is_read: bool,
        proposed: Result<Proposed, End<D::Error>>,
    ) -> Attempted<D::Error> {
        let append = async { self.place.wait_for_append(group).await.call.clone().await };
        let stored = match timeout_at(self.last_attempt + TransactOptions::LAST_ATTEMPT, append).await {
            Ok(stored) => {
                self.place.end_group(group, &stored, |after| self.stream.put_in_cache(after));
                stored
            }
            Err(elapsed) => {
                self.place.abandon(group);
                Err(Arc::new(AppendError::Unknown(elapsed.into())))
            }
        };
        let first_event = group.append().and_then(|append| append.first_event.clone());
        self.end_of_append(stored, &group.base, is_read, first_event, proposed)
    }
}
