//! What a request of the system comes from: a row of the table, which stays until the request is answered.

use std::fmt;

use daybook_decider::AggregateKey;
use jiff::Timestamp;

/// The row of an aggregate that causes a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) of: AggregateKey,
    pub(crate) row: Row,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    /// Its name and time.
    Deadline(String, Timestamp),
    /// Its name, and the number of the event that set it.
    Dispatch(String, u64),
    /// The answer to this dispatch, which has no row of its own.
    Answer(String, u64),
    /// An event of this number is input of processes of this type.
    Input(&'static str, u64),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = &self.of;
        match &self.row {
            Row::Deadline(name, _) => write!(f, "the deadline {name} of {of}"),
            Row::Dispatch(name, seq) => write!(f, "the dispatch {name} of {of} since event {seq}"),
            Row::Answer(name, seq) => write!(f, "the answer to {name} of {of} since event {seq}"),
            Row::Input(process, seq) => write!(f, "event {seq} of {of}, input of a {process},"),
        }
    }
}
