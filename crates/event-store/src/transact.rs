//! The transaction of a command: load the state or use the cached one, decide, append, and repeat if another writer was
//! faster.
//!
//! The invariant: every append of a request that is in doubt, and every new one, is conditional on the same version, so
//! at most one of them is ever stored. A newer state is used only after it is known that none of those in doubt is stored.
//! Therefore, while an append is in doubt, the request appends again on the same version, until one of these appends or
//! that of another writer is stored. Until then, it joins only a group on that version.
//!
//! This file prepares each attempt: it waits for the turn, pauses after a failed attempt, and gets the state to decide on.
//!
//! In reading order: `decide`: the caller's part, the options and the results; `attempt`: a decision with its append, and what
//! follows on it; `others`: the other aggregates that the decision involves; `decision`: a decision until its append has an
//! outcome; `resolution`: the result of a transaction whose append is in doubt, or whose request was executed before.

mod attempt;
mod decide;
mod decision;
mod others;
mod resolution;

use std::time::Duration;

use daybook_decider::{Folded, Model};
use daybook_table::AggregateKey;
use tokio::time::{Instant, sleep};

use self::decide::End;
pub use self::decide::{Decide, ResponseDetail, TransactError, TransactOptions, Transacted, Undecided};
use self::decision::InDoubt;
use self::others::Others;
use crate::append::ClaimHolders;
use crate::backoff::Backoff;
use crate::error::{Cause, StoreError};
use crate::load::{LoadOptions, LoadPolicy};
use crate::store::{EventStore, EventStream};
use crate::turns::{Group, Place, Turn};

/// Maximum time that a request spends on waiting for other writers of its aggregate and on racing with them. If an
/// aggregate makes its writers wait this long, it has too many writers.
const RACE_TIME: Duration = Duration::from_secs(10);

impl EventStore {
    /// Decides on the aggregate and appends the result. Whenever another writer was faster, it repeats this on a newer
    /// state.
    ///
    /// Without contention, it makes one round trip if the cached state is current or the aggregate is new. Only an append may
    /// use a cached state, because its condition checks the version. A decision that appends nothing, and a conflict, are
    /// therefore decided again on a state that was read.
    ///
    /// Every attempt is a new decision with a new time, so that no event becomes visible later than
    /// [`SETTLE_WRITES`](crate::SETTLE_WRITES) after its time. Requests of this process for the same aggregate are
    /// decided one after the other, in the order of their arrival. Those that arrive while an append is in progress are
    /// appended together; each has its own result, as if it had been alone.
    pub async fn transact<D: Decide>(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        commands: &D,
        options: &TransactOptions<'_>,
    ) -> Result<Transacted, TransactError<D::Error>> {
        let race_until = options.deadline.min(Instant::now() + RACE_TIME);
        // Boxed, because it contains every call that it may make: a large value, which would be copied into the futures of
        // all callers.
        Box::pin(Transaction::new(self.stream(model, key), commands, options, race_until).run()).await
    }
}

/// The commands of one request, from its place in the queue of the aggregate to the result.
struct Transaction<'a, D> {
    stream: EventStream<'a>,
    commands: &'a D,
    options: &'a TransactOptions<'a>,
    place: Place<'a>,
    /// The time until which lost races are repeated.
    race_until: Instant,
    /// The deadline, or the start of the transaction if that is later: one attempt is always made.
    last_attempt: Instant,
    in_doubt: InDoubt,
    state: StartState,
    /// The number of events that are known to exist.
    at_least: u64,
    retry: Option<Retry>,
    /// The time until which the request waits for its turn.
    turn_until: Instant,
    holders: ClaimHolders,
    others: Others<'a>,
    /// Whether it has left the queue, to take its place again after those in the queues of other aggregates.
    has_left: bool,
    /// Whether the next append must not contain the decision of another request.
    is_alone: bool,
    /// Whether a subject of the decision was found to be forgotten, and the state was then read again.
    is_forgotten: bool,
    backoff: Backoff,
    /// The version of the metadata that is behind the events, and since when.
    behind: Option<(u64, Instant)>,
}

/// The state that the next attempt decides on, unless it joins a group.
enum StartState {
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
enum Retry {
    /// Another writer was faster, or is writing.
    Race,
    /// The same on another aggregate that the decision involves.
    RaceOfOther,
    /// Nothing was written, or the append is in doubt.
    Failed(Cause),
}

/// The result of the transaction; `None` if another attempt follows, which has been prepared.
type Attempted<E> = Option<End<E>>;

impl<'a, D: Decide> Transaction<'a, D> {
    fn new(stream: EventStream<'a>, commands: &'a D, options: &'a TransactOptions<'a>, race_until: Instant) -> Self {
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

    async fn run(mut self) -> End<D::Error> {
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

    fn leave(&mut self) {
        self.place.leave();
        self.others.leave();
    }

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
}
