//! The attempts of a transaction.

use std::sync::Arc;

use daybook_decider::Folded;
use tokio::time::{Instant, timeout_at};
use ulid::Ulid;

use super::decide::Decide;
use super::decision::Decision;
use super::in_doubt::InDoubt;
use super::options::{TransactError, TransactOptions, Transacted};
use super::unsettled::{Pause, Unsettled};
use crate::append::AppendError;
use crate::backoff::{Backoff, wait};
use crate::error::{Cause, StoreError};
use crate::event_stream::EventStream;
use crate::fold::COMMIT_TIME;
use crate::load::{LoadOptions, LoadPolicy};
use crate::loaded::Loaded;
use crate::settle::SEND_WINDOW;
use crate::stored_response::CommandResponse;
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
    next: NextAttempt,
}

struct NextAttempt {
    state: StartState,
    /// How the state is read, if it is read.
    load: LoadOptions,
    pause: Option<Pause>,
    /// The time until which the request waits for its turn.
    turn_until: Instant,
    /// Whether the append must not contain the decision of another request.
    is_alone: bool,
    backoff: Backoff,
    /// The version of the metadata that is behind the events, and since when.
    behind: Option<(u64, Instant)>,
}

impl NextAttempt {
    /// Whether the metadata has been behind the events for longer than a transaction takes to commit.
    fn is_metadata_damaged(&self) -> bool {
        self.behind.is_some_and(|(_, since)| since.elapsed() >= COMMIT_TIME)
    }
}

/// The state that the next attempt decides on, unless it joins a group.
enum StartState {
    /// The cached state. Without one, the state before the first event if the commands create the aggregate; otherwise
    /// the state is read.
    Cached,
    /// This state, and whether it was read.
    Known(Folded, bool),
    /// The state is read.
    Read,
}

/// A decision that is part of an append.
struct Proposed {
    /// The index of its response among those that are stored, if the request has an idempotency key.
    index: usize,
    after: Loaded,
    response: CommandResponse,
}

/// The result of a transaction, or the reason why an attempt has none.
type Attempted<E> = Result<Transacted, Unsettled<E>>;

impl<'a, D: Decide> Transaction<'a, D> {
    pub(super) fn new(
        stream: EventStream<'a>,
        commands: &'a D,
        options: &'a TransactOptions<'a>,
        race_until: Instant,
    ) -> Self {
        let next = NextAttempt {
            state: if options.policy == LoadPolicy::Rebuild { StartState::Read } else { StartState::Cached },
            load: LoadOptions { policy: options.policy, ..LoadOptions::default() },
            pause: None,
            turn_until: race_until,
            is_alone: false,
            backoff: Backoff::until(options.deadline),
            behind: None,
        };
        let last_attempt = options.deadline.max(Instant::now());
        let place = stream.store.turns.enter(stream.key);
        Self { stream, commands, options, place, race_until, last_attempt, in_doubt: InDoubt::default(), next }
    }

    pub(super) async fn run(mut self) -> Result<Transacted, TransactError<D::Error>> {
        let end = self.attempts().await;
        // Only reads follow, which need no turn.
        self.place.leave();
        match self.settle(false).await {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) if self.in_doubt.event_number().is_none() => end,
            Ok(None) | Err(_) => Err(self.outcome_unknown()),
        }
    }

    async fn attempts(&mut self) -> Result<Transacted, TransactError<D::Error>> {
        loop {
            let Some(turn) = self.place.turn(self.next.turn_until).await else {
                let pause = self.next.pause.take();
                return Err(self.time_over(pause.unwrap_or(Pause::Race)));
            };
            let (base, is_read, attempted) = match turn {
                Turn::First => {
                    self.pause().await?;
                    let (before, is_read) = match self.state_without_read() {
                        Some(known) => known,
                        None => match self.settle_before_read().await? {
                            Some(stored) => return Ok(stored),
                            None => (self.read().await?, true),
                        },
                    };
                    let attempted = self.attempt(&before).await;
                    if let Err(Unsettled::Overtaken { .. } | Unsettled::Busy) = attempted {
                        self.stream.store.contention.lost(self.stream.key);
                    }
                    (before, is_read, attempted)
                }
                // It does not count as a state that was read: another request may have read it before this one arrived.
                Turn::After(group, before) if self.may_join(&group) => {
                    let attempted = self.attempt_in_group(&group, &before).await;
                    (group.base.clone(), false, attempted)
                }
                Turn::After(..) => {
                    self.place.decline_group();
                    continue;
                }
            };
            match attempted {
                Ok(transacted) => return Ok(transacted),
                Err(Unsettled::NotWritten(end)) if is_read => {
                    self.place.leave();
                    return self.stored_response_or(end).await;
                }
                Err(Unsettled::Final(error)) => return Err(error),
                Err(unsettled) => self.prepare_next(unsettled, base, is_read),
            }
        }
    }

    /// Prepares the next attempt, after an attempt on the state `base`.
    fn prepare_next(&mut self, unsettled: Unsettled<D::Error>, base: Folded, is_read: bool) {
        let next = &mut self.next;
        let version = base.version();
        if let Unsettled::NotJoined = unsettled {
            return;
        }
        let same = StartState::Known(base, is_read);
        (next.state, next.pause) = (StartState::Read, None);
        match unsettled {
            Unsettled::Overtaken { actual } => {
                next.load.at_least = actual;
                // With an expected version, there is no race to repeat: the state that is read decides the response.
                // There is no race either if the faster append may be the one in doubt, which is settled next.
                let may_be_own = self.in_doubt.event_number().is_some();
                let is_race = self.options.expected_version.is_none() && !may_be_own;
                next.pause = is_race.then_some(Pause::Race);
            }
            Unsettled::Busy => {
                next.pause = Some(Pause::Race);
                // The other transaction may be the one in doubt, which has to be settled on the same state.
                if self.in_doubt.event_number().is_some() {
                    next.state = same;
                }
            }
            Unsettled::MetadataBehind { actual } => {
                // At another version, it is another transaction that commits.
                if next.behind.is_none_or(|(version, _)| version != actual) {
                    next.behind = Some((actual, Instant::now()));
                }
                next.pause = is_read.then_some(Pause::MetadataBehind { actual, version });
            }
            Unsettled::Failed(source) => {
                tracing::debug!(aggregate = %self.stream.key, error = source, "the append will be decided again");
                (next.state, next.pause) = (same, Some(Pause::Failed(source)));
            }
            Unsettled::GroupRejected => {
                next.state = same;
                next.turn_until = self.last_attempt + TransactOptions::LAST_ATTEMPT;
            }
            // No condition has checked whether the state is current, so it is read.
            Unsettled::NotWritten(_) | Unsettled::NotJoined | Unsettled::Final(_) => {}
        }
    }

    /// The pause before the next attempt, if there is one.
    async fn pause(&mut self) -> Result<(), TransactError<D::Error>> {
        let EventStream { store, key, .. } = self.stream;
        let Some(pause) = self.next.pause.take() else {
            // Without time for a pause, the attempt is made at once.
            if let (StartState::Cached, Some(pause)) = (&self.next.state, store.contention.first_pause(key))
                && wait(pause, self.race_until).await
            {
                self.next.state = StartState::Read;
            }
            return Ok(());
        };
        let next = &mut self.next;
        let has_time = match pause {
            Pause::Race => wait(store.contention.pause(key), self.race_until).await,
            Pause::Failed(_) => next.backoff.wait().await,
            Pause::MetadataBehind { .. } => !next.is_metadata_damaged() && next.backoff.wait().await,
        };
        if has_time { Ok(()) } else { Err(self.time_over(pause)) }
    }

    /// The error of a transaction that has no time for another attempt.
    fn time_over(&self, pause: Pause) -> TransactError<D::Error> {
        match pause {
            Pause::Race => TransactError::Contended,
            Pause::Failed(source) => StoreError::Unavailable { doing: "append", source }.into(),
            Pause::MetadataBehind { actual, version } => {
                let source = format!("its metadata is at version {actual}, but its events end at {version}");
                let error = if self.next.is_metadata_damaged() {
                    self.stream.corrupt(source)
                } else {
                    StoreError::Unavailable { doing: "append", source: source.into() }
                };
                error.into()
            }
        }
    }

    /// The state of the next attempt, if it needs no call, and whether it was read.
    fn state_without_read(&mut self) -> Option<(Folded, bool)> {
        let EventStream { store, model, key } = self.stream;
        let cached = || store.cached(key).map(|loaded| loaded.folded);
        match std::mem::replace(&mut self.next.state, StartState::Read) {
            StartState::Known(known, is_read) => {
                // Another request of this process may have appended since. An append in doubt has to be settled on its
                // own version.
                let newer = cached().filter(|cached| cached.version() > known.version());
                let newer = newer.filter(|_| self.in_doubt.event_number().is_none());
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
        let EventStream { store, key, .. } = self.stream;
        let cached = store.cached(key).map(|loaded| loaded.version());
        let folded = self.stream.load(self.next.load).await?.folded;
        if let Some(cached) = cached {
            store.contention.found(key, folded.version().saturating_sub(cached));
        }
        Ok(folded)
    }

    /// Settles the appends in doubt. A newer state may contain one of them, and deciding on it would append twice.
    async fn settle_before_read(&mut self) -> Result<Option<Transacted>, TransactError<D::Error>> {
        let Some(number) = self.in_doubt.event_number() else { return Ok(None) };
        match self.settle(self.next.load.at_least >= number).await? {
            None if self.in_doubt.event_number().is_some() => Err(self.outcome_unknown()),
            settled => Ok(settled),
        }
    }

    /// Whether this request may join the group. An append in doubt has to be settled on its own version.
    fn may_join(&self, group: &Group) -> bool {
        let version = group.base.version();
        !self.next.is_alone
            && self.options.policy != LoadPolicy::Rebuild
            && self.in_doubt.event_number().is_none_or(|number| number == version + 1)
    }

    /// Decides on one state and appends: alone, or in a new group if other requests wait.
    async fn attempt(&mut self, before: &Folded) -> Attempted<D::Error> {
        let send_until = Instant::now() + SEND_WINDOW;
        let Decision { batch, after, response } = self.stream.decide(self.commands, self.options, before)?;
        if self.place.has_waiting() && !self.next.is_alone {
            let group = Arc::new(Group::new(before.clone(), send_until));
            self.place.begin_group(&group, batch, after.clone());
            return self.wait_for_group(&group, Ok(Proposed { index: 0, after, response })).await;
        }
        let first_event = batch.first_event;
        let call = self.stream.call(before.version(), batch, send_until).send();
        let error = match timeout_at(self.last_attempt + TransactOptions::LAST_ATTEMPT, call).await {
            Ok(Ok(())) => {
                self.stream.put_in_cache(&after);
                self.in_doubt.clear();
                return Ok(Transacted::Decided(response));
            }
            Ok(Err(AppendError::Store(error))) => return Err(Unsettled::Final(error.into())),
            Ok(Err(error)) => error,
            Err(elapsed) => AppendError::Unknown(elapsed.into()),
        };
        self.not_stored(error.into(), before.version(), first_event, Some(Proposed { index: 0, after, response }))
    }

    /// Decides on the state after the last decision of a group, and joins the group. A decision that appends nothing
    /// joins too: the condition of the group checks the state that the decision was made on.
    async fn attempt_in_group(&mut self, group: &Arc<Group>, before: &Folded) -> Attempted<D::Error> {
        match self.stream.decide(self.commands, self.options, before) {
            Ok(Decision { batch, after, response }) => match self.place.join(group, Some((batch, after.clone()))) {
                Some(index) => self.wait_for_group(group, Ok(Proposed { index, after, response })).await,
                None => Err(Unsettled::NotJoined),
            },
            // Its idempotency key may have a stored response. It is read before the next request is decided.
            Err(Unsettled::NotWritten(_)) if self.options.idempotency.is_some() => {
                self.place.decline_group();
                Err(Unsettled::NotJoined)
            }
            Err(Unsettled::NotWritten(end)) => match self.place.join(group, None) {
                Some(_) => self.wait_for_group(group, Err(end)).await,
                None => Err(Unsettled::NotJoined),
            },
            Err(unsettled) => Err(unsettled),
        }
    }

    /// Waits for the append of a group that this request has joined: with a decision, or with a result that appends
    /// nothing.
    async fn wait_for_group(
        &mut self,
        group: &Arc<Group>,
        proposed: Result<Proposed, Result<Transacted, TransactError<D::Error>>>,
    ) -> Attempted<D::Error> {
        let stream = self.stream;
        let version = group.base.version();
        let call = |batch| stream.call(version, batch, group.send_until).send();
        let append = async { self.place.wait_for_append(group, call).await.call.clone().await };
        let stored = match timeout_at(self.last_attempt + TransactOptions::LAST_ATTEMPT, append).await {
            Ok(stored) => {
                if stored.is_ok() {
                    group.cache_once(|after| stream.put_in_cache(after));
                }
                self.place.end_group(group, &stored);
                stored
            }
            Err(elapsed) => {
                self.place.abandon(group, call);
                Err(Arc::new(AppendError::Unknown(elapsed.into())))
            }
        };
        match stored {
            Ok(()) => {
                self.in_doubt.clear();
                match proposed {
                    Ok(proposed) => Ok(Transacted::Decided(proposed.response)),
                    // The append of the group has confirmed the state.
                    Err(end) => end.map_err(Unsettled::Final),
                }
            }
            Err(error) => {
                let first_event = group.append().and_then(|append| append.first_event);
                self.not_stored(error, version, first_event, proposed.ok())
            }
        }
    }

    /// The result of an append after version `version` that failed: it is not stored, or its outcome is unknown.
    fn not_stored(
        &mut self,
        error: Arc<AppendError>,
        version: u64,
        first_event: Option<(u64, Ulid)>,
        proposed: Option<Proposed>,
    ) -> Attempted<D::Error> {
        let cause = || Cause::from(Arc::clone(&error));
        Err(match &*error {
            AppendError::KeysUsed(stored) => {
                let own = proposed.filter(|_| self.options.idempotency.is_some());
                let stored = own.and_then(|own| stored.get(own.index).cloned().flatten());
                let Some(stored) = stored else { return Err(Unsettled::GroupRejected) };
                // If the key was used for another request, the commands are decided again on the current state: there,
                // the caller may not be allowed to send them.
                return self.replay(stored).map_err(|reused| {
                    self.next.is_alone = true;
                    Unsettled::NotWritten(Err(reused))
                });
            }
            AppendError::Unknown(_) => {
                if let Some(Proposed { after, response, .. }) = proposed {
                    self.in_doubt.add(first_event, after, response, cause());
                }
                Unsettled::Failed(cause())
            }
            // The version in the metadata is lower than that of the state, so no other writer was faster.
            AppendError::Conflict { actual } if *actual < version => Unsettled::MetadataBehind { actual: *actual },
            AppendError::Conflict { actual } => Unsettled::Overtaken { actual: *actual },
            AppendError::Busy => Unsettled::Busy,
            AppendError::NotWritten(_) => Unsettled::Failed(cause()),
            // The error concerns one of the decisions, or all of them. The next attempt appends alone and shows which.
            AppendError::Store(_) | AppendError::TooLarge(_) => {
                self.next.is_alone = true;
                Unsettled::GroupRejected
            }
        })
    }
}
