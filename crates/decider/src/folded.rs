//! What a decision starts from: an aggregate at some version, and a command. The time and id of the aggregate's last event belong
//! to it, because those of new events must not precede them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::json::Json;
use crate::record::{FIRST_EPOCH, RecordedEvent};

/// An aggregate at some version. Cheap to clone.
#[derive(Clone)]
pub struct Folded {
    pub(crate) version: u64,
    pub(crate) message_seq: u64,
    pub(crate) history_bytes: usize,
    pub(crate) is_deleted: bool,
    pub(crate) last_event: Option<LastEvent>,
    /// The [`AggregateState`](crate::draft::AggregateState) of the model that folded it.
    pub(crate) state: Arc<dyn Any + Send + Sync>,
}

impl Folded {
    /// The number of events that have been folded; 0 is the aggregate before its creation.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The number of messages that its events publish.
    pub fn message_seq(&self) -> u64 {
        self.message_seq
    }

    /// The epoch of the last of these messages. For a state that was restored from a snapshot, it is known only after
    /// [`with_last_event`](Self::with_last_event).
    pub(crate) fn message_epoch(&self) -> u32 {
        self.last_event.map_or(FIRST_EPOCH, |last| last.message_epoch)
    }

    /// The approximate bytes of history that it holds besides the state.
    pub fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// The time and id of its last event. `None` before the first event, and for a state that was restored from a
    /// snapshot, until [`with_last_event`](Self::with_last_event) sets them.
    pub fn last_event(&self) -> Option<LastEvent> {
        self.last_event
    }

    /// Sets the time and id of the last event of a restored state, if `event` is that event.
    #[must_use]
    pub fn with_last_event(mut self, event: &RecordedEvent) -> Self {
        if event.seq_num == self.version {
            self.last_event = Some(event.into());
        }
        self
    }
}

impl fmt::Debug for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folded")
            .field("version", &self.version)
            .field("message_seq", &self.message_seq)
            .finish_non_exhaustive()
    }
}

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

/// A command as the caller sends it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Its name.
    pub command: String,
    /// Its data; `{}` when left out.
    #[serde(default = "Json::empty_object")]
    pub data: Json,
}

impl CommandRequest {
    /// The command of an enum with `#[serde(tag = "command", content = "data")]`.
    pub(crate) fn of(command: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::from_str(&serde_json::to_string(command)?)
    }
}
