//! The input of a decision: an aggregate at some version, and a command.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::last_event::LastEvent;
use crate::record::{FIRST_EPOCH, RecordedEvent};

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

/// An aggregate at some version. Cheap to clone.
#[derive(Clone)]
pub struct Folded {
    pub(crate) version: u64,
    pub(crate) message_seq: u64,
    pub(crate) history_bytes: usize,
    pub(crate) is_deleted: bool,
    pub(crate) last_event: Option<LastEvent>,
    /// The [`AggregateState`](crate::aggregate_state::AggregateState) of the model that folded it.
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
