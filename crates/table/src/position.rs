//! How far the events of an aggregate are input of the processes of a type.

use std::collections::BTreeMap;

use daybook_decider::AggregateKey;
use daybook_decider::record::timestamp;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::items::DeadlineItem;
use crate::{attributes, keys};

/// `POSITION#…`, in the partition of the aggregate whose events are handled. Without a row, none are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PositionItem {
    pub pk: String,
    /// The type of the processes.
    pub sk: String,
    /// The number of the last event that was handled, except by the processes in `suspended`.
    pub seq_num: u64,
    /// [`keys::SUSPENDED_POSITIONS`] if one is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gsi1pk: Option<String>,
    /// RFC 3339; since when the first of them is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gsi1sk: Option<String>,
    /// RFC 3339; since when the next event cannot be handled, while it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Those that are suspended, or resumed and still behind: by the id of a process, or [`PositionItem::ALL`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub suspended: BTreeMap<String, Suspension>,
}

/// A process that is suspended, or all of the type; or a process that was resumed, until it has handled as many events as the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// The number of the last event that it has handled.
    pub seq_num: u64,
    /// RFC 3339; when it was suspended.
    pub since: String,
    pub error: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_resumed: bool,
}

impl PositionItem {
    pub const OPTIONAL: [&str; 4] = [attributes::GSI1PK, attributes::GSI1SK, "failingSince", attributes::SUSPENDED];

    /// All processes of the type, in place of an id, which contains no asterisk.
    pub const ALL: &str = "*";

    pub fn new(source: &AggregateKey, process_type: &str, seq_num: u64) -> Self {
        let (pk, sk) = (keys::pk(source), keys::position_sk(process_type));
        Self { pk, sk, seq_num, gsi1pk: None, gsi1sk: None, failing_since: None, suspended: BTreeMap::new() }
    }

    /// The position after `who` could not handle the event after this number. All others go on after it.
    pub fn suspend(mut self, who: &str, seq_num: u64, error: &str, at: Timestamp) -> Self {
        let (since, error) = (timestamp(at), DeadlineItem::truncated(error));
        let before = self.suspended.insert(who.to_owned(), Suspension { seq_num, since, error, is_resumed: false });
        if before.is_none() {
            self.seq_num = seq_num + u64::from(who != Self::ALL);
        }
        self.indexed()
    }

    /// The position after `who` was resumed, and has handled the events up to this number.
    pub fn resume(mut self, who: &str, seq_num: u64) -> Self {
        if who == Self::ALL {
            self.seq_num = seq_num;
        }
        if who == Self::ALL || seq_num >= self.seq_num {
            self.suspended.remove(who);
        } else if let Some(one) = self.suspended.get_mut(who) {
            (one.seq_num, one.is_resumed) = (seq_num, true);
        }
        self.indexed()
    }

    fn indexed(mut self) -> Self {
        self.gsi1sk = self.all_suspended().map(|(_, one)| one.since.clone()).min();
        self.gsi1pk = self.gsi1sk.as_ref().map(|_| keys::SUSPENDED_POSITIONS.to_owned());
        self
    }

    pub fn all_suspended(&self) -> impl Iterator<Item = (&str, &Suspension)> {
        self.suspended.iter().filter(|(_, one)| !one.is_resumed).map(|(who, one)| (&**who, one))
    }

    /// After which event it goes on: first with those of a process that was resumed, then with those of all others. `None` if all are
    /// suspended.
    pub fn next(&self) -> Option<(Option<&str>, u64)> {
        match self.suspended.iter().filter(|(_, one)| one.is_resumed).min_by_key(|(_, one)| one.seq_num) {
            Some((process, one)) => Some((Some(process), one.seq_num)),
            None if self.is_suspended() => None,
            None => Some((None, self.seq_num)),
        }
    }

    /// Why a process has handled fewer events than the others, or why all have stopped, with the one that this concerns.
    pub fn suspension(&self, process: &str) -> Option<(&str, &Suspension)> {
        let found = self.suspended.get_key_value(process).or_else(|| self.suspended.get_key_value(Self::ALL));
        found.map(|(who, one)| (&**who, one))
    }

    /// Whether all processes of the type are suspended.
    pub fn is_suspended(&self) -> bool {
        self.suspended.contains_key(Self::ALL)
    }

    pub fn process_type(&self) -> &str {
        self.sk.strip_prefix(keys::POSITION_PREFIX).unwrap_or(&self.sk)
    }

    /// The name of a suspension: `fulfilment/7` for a process, and `fulfilment` for all.
    pub fn name_of(&self, who: &str) -> String {
        let process_type = self.process_type();
        if who == Self::ALL { process_type.to_owned() } else { format!("{process_type}/{who}") }
    }
}
