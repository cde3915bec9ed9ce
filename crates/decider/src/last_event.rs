//! The time and id of an aggregate's last event, which those of the next decision must not precede, and the epoch of its
//! last message.

use jiff::Timestamp;
use ulid::Ulid;

use crate::record::RecordedEvent;

/// The time and id of an event, and the epoch of the aggregate's last message up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEvent {
    /// Its id.
    pub event_id: Ulid,
    /// When it was decided.
    pub occurred_at: Timestamp,
    /// The epoch of the last message.
    pub message_epoch: u32,
}

impl LastEvent {
    /// The minimum distance from the id of an event to the first id of the next decision in the same millisecond. The ids
    /// between them are left out, because messages have them: if a decision has the events X and X + 1, its message has
    /// X + 2.
    const GAP: u128 = 1 << 40;

    /// The time and the first new id of a decision after this event: `now` and `seed`, if they are later than the
    /// event. Otherwise the clock has not advanced, or is behind the clock that the event got its time from. Time and
    /// id then continue from those of the event.
    pub(crate) fn next(self, now: Timestamp, seed: Ulid) -> (Timestamp, Ulid) {
        let at = now.max(self.occurred_at);
        let milliseconds = self.event_id.timestamp_ms();
        if seed.timestamp_ms() > milliseconds {
            return (at, seed);
        }
        // 64 random bits, so that two decisions after the same event have different ids.
        let random = self.event_id.random() + Self::GAP + (seed.random() >> 16);
        if random >> 80 == 0 {
            return (at, Ulid::from_parts(milliseconds, random));
        }
        let next = Ulid::from_parts(milliseconds + 1, seed.random());
        let time = i64::try_from(next.timestamp_ms()).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
        (time.map_or(at, |time| at.max(time)), next)
    }
}

impl From<&RecordedEvent> for LastEvent {
    fn from(event: &RecordedEvent) -> Self {
        Self { event_id: event.event_id, occurred_at: event.occurred_at, message_epoch: event.message_epoch }
    }
}
