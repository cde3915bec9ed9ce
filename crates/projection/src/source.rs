//! One aggregate type that a projection follows: reads its events and computes their changes.

use daybook_decider::panics::{calling, catch};
use daybook_decider::{Aggregate, FollowedEvent, Json, RecordedEvent, personal, read_stored};

use crate::projection::{FollowedChanges, Follows, KeyedChanges, MAX_KEY, MAX_KEY_BYTES, Projection, Source, Stopped};

impl<P: Projection> Source<P> {
    /// The source that follows the aggregates of type `A`.
    pub fn of<A: Aggregate>() -> Self
    where
        P: Follows<A>,
    {
        Self { aggregate_type: A::TYPE, follow: follow::<P, A> }
    }
}

fn follow<P: Follows<A>, A: Aggregate>(
    aggregate_id: &str,
    state: Option<&Json>,
    events: &[RecordedEvent],
) -> FollowedChanges<P> {
    let mut followed = FollowedChanges { events: Vec::with_capacity(events.len()), state: None, stopped: None };
    let read = catch(P::NAME, || state.map(Json::read).transpose());
    let mut state: <P as Follows<A>>::State = match read {
        Ok(Ok(state)) => state.unwrap_or_default(),
        Ok(Err(error)) => return FollowedChanges { stopped: Some(Stopped::State(error.to_string())), ..followed },
        Err(panic) => return FollowedChanges { stopped: Some(Stopped::Panicked(panic)), ..followed },
    };
    for recorded in events {
        match catch(P::NAME, || follow_event::<P, A>(aggregate_id, state.clone(), recorded)) {
            Ok(Ok((after, changes))) => {
                state = after;
                followed.events.push((recorded.seq_num, changes));
            }
            Ok(Err(stopped)) => followed.stopped = Some(stopped),
            Err(panic) => followed.stopped = Some(Stopped::Panicked(panic)),
        }
        if followed.stopped.is_some() {
            break;
        }
    }
    let written = || {
        let state = Json::of(&state).map_err(|error| error.to_string())?;
        personal::attributed(state, (A::TYPE, aggregate_id))
    };
    match catch(P::NAME, written) {
        Ok(Ok(state)) => followed.state = Some(state),
        Ok(Err(reason)) => followed.stopped = Some(Stopped::State(reason)),
        Err(panic) => followed.stopped = Some(Stopped::Panicked(panic)),
    }
    followed
}

/// The state after a stored event, and the changes that the event causes. An event in an old stored form may be read as
/// several events or none.
fn follow_event<P: Follows<A>, A: Aggregate>(
    aggregate_id: &str,
    mut state: <P as Follows<A>>::State,
    recorded: &RecordedEvent,
) -> Result<(<P as Follows<A>>::State, KeyedChanges<P>), Stopped> {
    let RecordedEvent { seq_num, occurred_at, ref meta, .. } = *recorded;
    let mut changes = Vec::new();
    for event in &read_stored::<A>(aggregate_id, recorded).map_err(Stopped::Unreadable)? {
        let event = FollowedEvent { aggregate_id, seq_num, occurred_at, meta, event };
        let after = calling("advance", || P::advance(state.clone(), &event));
        changes.extend(calling("changes", || P::changes(&state, &event, &after)));
        state = after;
    }
    let fits = |key: &str| (1..=MAX_KEY).contains(&key.chars().count()) && key.len() <= MAX_KEY_BYTES;
    match changes.iter().find(|(key, _)| !fits(key)) {
        Some((key, _)) => Err(Stopped::BadKey { length: key.chars().count(), bytes: key.len() }),
        None => Ok((state, changes)),
    }
}
