//! One attempt of a transaction: the decision, its append, alone or in a group, and what follows on the append: the result of the
//! transaction, or the preparation of its next attempt.

use std::sync::Arc;

use daybook_decider::{Claim, Decided, Folded, Need};
use tokio::time::{Instant, timeout_at};

use super::decide::{Decide, End, ResponseDetail, TransactError, TransactOptions, Transacted, Undecided};
use super::decision::{
    AppendInDoubt, Drafted, NotReady, Outcome, ReadyDecision, parts, subject_that_was_forgotten, subjects,
};
use super::{Attempted, Retry, StartState, Transaction};
use crate::append::{AppendCall, AppendError, FirstEvent, NotBuilt};
use crate::cache::Loaded;
use crate::error::{Cause, StoreError};
use crate::idempotency::ResponseToStore;
use crate::limits::TooLarge;
use crate::load::COMMIT_TIME;
use crate::settle::SEND_WINDOW;
use crate::store::EventStream;
use crate::subject_keys::{MAX_SUBJECTS, SubjectKey};
use crate::turns::Group;

/// A decision that is part of an append.
struct Proposed {
    /// The index of its response among those that are stored, if the request has an idempotency key.
    index: usize,
    outcome: Outcome,
    claims: Vec<Claim>,
}

impl<D: Decide> Transaction<'_, D> {
    /// Decides on one state and appends: alone, or in a new group if other requests wait.
    pub(super) async fn attempt(&mut self, before: &Folded, is_read: bool) -> Attempted<D::Error> {
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
                let ReadyDecision { batch, outcome } = decision;
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
    pub(super) async fn attempt_in_group(&mut self, group: &Arc<Group>, before: &Folded) -> Attempted<D::Error> {
        let proposed = match self.decide(before, None) {
            Ok(ReadyDecision { batch, outcome }) if !outcome.is_alone() => {
                let claims = batch.claims();
                let index = self.place.join(group, Some((batch, outcome.after.clone())))?;
                Ok(Proposed { index, outcome, claims })
            }
            Err(NotReady::End(end))
                if self.options.idempotency.is_none() && !matches!(end, Err(TransactError::Forgotten { .. })) =>
            {
                self.place.join(group, None)?;
                Err(end)
            }
            // A decision that involves other aggregates, or forgets, is appended alone. The state of the group may be from before a
            // subject was forgotten. The idempotency key of a decision that appends nothing may have a stored response, which is
            // read before the next request is decided.
            declined => {
                self.is_alone |= matches!(declined, Ok(_) | Err(NotReady::Needs(_) | NotReady::End(Err(_))));
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

    /// Decides on one state, and reads what the decision needs to know about other aggregates. Returns the call of the append
    /// too.
    async fn decide_with_others(
        &mut self,
        before: &Folded,
    ) -> Result<(AppendCall, Result<ReadyDecision, End<D::Error>>), StoreError> {
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
                existing => Err(NotReady::Needs(existing)),
            };
            match decided {
                Ok(decision) => return Ok((call, Ok(decision))),
                Err(NotReady::End(end)) => return Ok((call, Err(end))),
                // Another decision could need other keys, those of aggregates with new ids.
                Err(NotReady::Keys(subjects, ready)) => {
                    self.stream.store.sealing.provide(&subjects).await?;
                    drafted = Some((call, *ready));
                }
                Err(NotReady::Needs(needs)) => {
                    self.is_alone = true;
                    self.others.read(self.stream, self.commands, self.options.policy, needs).await?;
                }
            }
        }
    }

    /// Decides on one state, or completes the decision that is `ready`. Reduces the response if the full one does not fit.
    fn decide(&self, before: &Folded, ready: Option<Drafted>) -> Result<ReadyDecision, NotReady<D::Error>> {
        let (stream, commands, involved, holders) = (self.stream, self.commands, &self.others.known, &self.holders);
        let EventStream { store, key, .. } = stream;
        let TransactOptions { expected_version, idempotency, .. } = *self.options;
        let (version, now) = (before.version(), store.now());
        let decide = || {
            let in_flight = store.in_flight.begin(&store.clock);
            commands.decide(before, involved).map(|decided| Drafted { decided, in_flight })
        };
        let Drafted { decided, in_flight } = ready.map_or_else(decide, Ok).map_err(|undecided| match undecided {
            Undecided::Needs(needs) => NotReady::Needs(needs),
            Undecided::Error(error) => TransactError::Decide(error).into(),
        })?;
        if let Some(expected) = expected_version.filter(|&expected| expected != version) {
            return Err(TransactError::Conflict { expected, actual: version }.into());
        }
        let has_events =
            !decided.own.events.is_empty() || decided.others.iter().any(|(_, other)| !other.events.is_empty());
        let mut detail = ResponseDetail::Full;
        // A stored response may be what exceeds the limit.
        let less = |detail: ResponseDetail, limit, of| {
            let is_for_the_response = match limit {
                TooLarge::Response { .. } => true,
                TooLarge::Transaction { .. } | TooLarge::Subjects { .. } => idempotency.is_some(),
                TooLarge::Item { .. } | TooLarge::Items { .. } => false,
            };
            detail.less().filter(|_| is_for_the_response).ok_or(TransactError::TooLarge { limit, of })
        };
        loop {
            let response = commands.respond(before, &decided, detail).map_err(TransactError::Decide)?;
            if !has_events && idempotency.is_none() {
                return Err(NotReady::End(Ok(Transacted::Decided(response))));
            }
            let stored = idempotency.map(|_| &*response.body);
            let subjects = subjects(key, &decided, stored);
            if subjects.len() > MAX_SUBJECTS {
                let limit = TooLarge::Subjects { subjects: subjects.len() };
                detail = less(detail, limit, None)?;
                continue;
            }
            let (mut keys, missing) = store.sealing.keys(subjects).map_err(TransactError::from)?;
            if !missing.is_empty() {
                return Err(NotReady::Keys(missing, Box::new(Drafted { decided, in_flight })));
            }
            let forgotten = parts(key, &decided).filter(|(_, part)| part.forgets);
            let forgotten: Vec<_> = forgotten.map(|(key, _)| key.clone()).collect();
            if !commands.drops_forgotten()
                && let Some(subject) = subject_that_was_forgotten(key, &decided, &keys)
            {
                return Err(TransactError::Forgotten { subject }.into());
            }
            keys.extend(forgotten.iter().map(|key| (key.to_string(), SubjectKey::Forgotten)));
            let to_store =
                idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            match stream.joint_batch(&decided, to_store.as_ref(), involved, holders, &keys, |of| commands.model(of)) {
                Ok(mut batch) => {
                    batch.in_flight = in_flight;
                    if let Some(row) = commands.requires() {
                        let key = (row.item.pk.clone(), row.item.sk.clone());
                        let required = batch.require(&key, row.check(store.table_name()));
                        required.map_err(|limit| TransactError::TooLarge { limit, of: None })?;
                    }
                    let loaded = |Decided { after, state, .. }| Loaded { folded: after, state };
                    let others = decided.others.into_iter().filter(|(_, other)| !other.events.is_empty());
                    let others = others.map(|(key, other)| (key, loaded(other))).collect();
                    let outcome = Outcome { after: loaded(decided.own), others, forgotten, response };
                    return Ok(ReadyDecision { batch, outcome });
                }
                Err(NotBuilt::TooLarge(limit, of)) => detail = less(detail, limit, of)?,
                Err(NotBuilt::ClaimTaken { claim, holder }) => {
                    return Err(TransactError::ClaimTaken { claim, holder }.into());
                }
                Err(NotBuilt::Store(error)) => return Err(TransactError::from(error).into()),
            }
        }
    }

    /// The result of the transaction after an append on the state `before`. If the append failed, it is not stored or its
    /// outcome is unknown: prepares the next attempt.
    fn end_of_append(
        &mut self,
        stored: Result<(), Arc<AppendError>>,
        before: &Folded,
        is_read: bool,
        first_event: Option<FirstEvent>,
        proposed: Result<Proposed, End<D::Error>>,
    ) -> Attempted<D::Error> {
        let Err(error) = stored else {
            self.in_doubt.clear();
            return Some(proposed.map_or_else(|end| end, |own| Ok(Transacted::Decided(own.outcome.response))));
        };
        let cause = Cause::from(Arc::clone(&error));
        let is_in_doubt = self.in_doubt.event().is_some();
        let same = StartState::Known(before.clone(), is_read);
        (self.state, self.retry) = match &*error {
            AppendError::KeysUsed(stored) => {
                let own = proposed.ok().filter(|_| self.options.idempotency.is_some());
                match own.and_then(|own| stored.get(own.index)?.clone()).map(|stored| self.replay(stored)) {
                    None => {
                        self.turn_until = self.last_attempt + TransactOptions::LAST_ATTEMPT;
                        (same, None)
                    }
                    // The commands are decided again on the current state: there, the caller may not be allowed to send
                    // them.
                    Some(Err(TransactError::KeyReused)) if !is_read => {
                        self.is_alone = true;
                        self.others.forget();
                        (StartState::Read, None)
                    }
                    Some(end) => return Some(end),
                }
            }
            AppendError::Unknown(_) => {
                if let Ok(Proposed { outcome, .. }) = proposed {
                    let cause = Cause::from(Arc::clone(&error));
                    self.in_doubt.add(AppendInDoubt { first: first_event, outcome, cause });
                }
                (same, Some(Retry::Failed(cause)))
            }
            // The other transaction may be the one in doubt, which has to be resolved on the same state.
            AppendError::Busy if is_in_doubt => (same, Some(Retry::Failed(cause))),
            AppendError::Busy => (StartState::Read, Some(Retry::Race)),
            // The version in the metadata is lower than that of the state, so no other writer was faster: another
            // transaction commits. At another version, it is another one.
            &AppendError::Conflict { actual } if actual < before.version() => {
                let known = self.behind.filter(|(version, _)| *version == actual);
                let (_, since) = *self.behind.insert(known.unwrap_or((actual, Instant::now())));
                let version = before.version();
                let source = format!("its metadata is at version {actual}, but its events end at {version}");
                if is_read && since.elapsed() >= COMMIT_TIME {
                    return Some(Err(self.stream.corrupt(source).into()));
                }
                self.others.forget();
                (StartState::Read, is_read.then(|| Retry::Failed(source.into())))
            }
            &AppendError::Conflict { actual } => {
                self.at_least = actual;
                // The faster append may be the one in doubt, which is resolved next.
                (StartState::Read, (!is_in_doubt).then_some(Retry::Race))
            }
            // The others may have changed by the append in doubt, which is resolved next.
            AppendError::Raced(_) if is_in_doubt => {
                self.others.forget();
                (StartState::Read, None)
            }
            AppendError::Raced(raced) => {
                self.others.raced(self.stream.store, raced);
                (same, Some(Retry::RaceOfOther))
            }
            AppendError::RowChanged => return Some(Err(TransactError::RowChanged)),
            AppendError::NotWritten(_) => (same, Some(Retry::Failed(cause))),
            // The error concerns one of the decisions, or all of them. The next attempt appends alone and shows which. Claims
            // concern those that change them.
            AppendError::Store(_)
            | AppendError::TooLarge(_)
            | AppendError::ClaimTaken { .. }
            | AppendError::NotReleased(_) => {
                let changes = |claim: &Claim| proposed.as_ref().is_ok_and(|own| own.claims.contains(claim));
                self.is_alone |= match &*error {
                    AppendError::ClaimTaken { claim, .. } => changes(claim),
                    AppendError::NotReleased(claims) => claims.iter().any(changes),
                    _ => true,
                };
                self.turn_until = self.last_attempt + TransactOptions::LAST_ATTEMPT;
                (same, None)
            }
        };
        if let Some(Retry::Failed(source)) = &self.retry {
            tracing::debug!(aggregate = %self.stream.key, error = source, "the append will be decided again");
        }
        None
    }

    pub(super) fn put_in_cache(&self, stored: &Outcome) {
        self.stream.put_in_cache(&stored.after);
        stored.others.iter().for_each(|(key, after)| self.stream.store.cache.put(key, after));
        // Their cached states may have their history.
        stored.forgotten.iter().for_each(|key| self.stream.store.forget(key));
    }
}
