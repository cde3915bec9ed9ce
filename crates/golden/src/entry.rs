//! An entry of a golden file.

use daybook_decider::{Json, Meta, RecordedEvent};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use ulid::Ulid;

/// An event in a form that was stored once.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) shape: Value,
    pub(crate) data: Value,
    /// The events that it is read as today. `None` for a form that is written today: it is read as itself.
    pub(crate) reads: Option<Vec<Today>>,
}

/// An event in the form that is written today.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Today {
    pub(crate) r#type: String,
    pub(crate) data: Value,
}

impl Golden {
    pub(crate) fn recorded(&self, seq_num: u64) -> RecordedEvent {
        RecordedEvent {
            seq_num,
            event_id: Ulid::from_parts(0, seq_num.into()),
            event_type: self.name.clone(),
            event_version: self.version,
            data: Json::of(&self.data).unwrap(),
            meta: Meta::default(),
            occurred_at: Timestamp::UNIX_EPOCH,
            message_seq: 0,
            message_epoch: 1,
        }
    }
}
