//! The identity of an aggregate.

use std::fmt;
use std::str::FromStr;

/// The beginning of the names of types that the suite reserves for its own checks. The events of such a type are in no
/// feed and no list.
pub const RESERVED_PREFIX: &str = "__";

/// The identity of an aggregate: its type and id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AggregateKey {
    /// The type.
    pub aggregate_type: String,
    /// The id.
    pub id: String,
}

/// Maximum characters of an id.
pub const MAX_ID: usize = 128;

/// What errors say about an id that is not valid.
pub const ID_RULE: &str = "an id has 1 to 128 ASCII letters, digits and the characters - . _ ~";

/// Whether `id` can be the id of an aggregate: 1 to [`MAX_ID`] characters that a URL path carries as they are. `.` and
/// `..` are not, because clients resolve them away.
pub fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(allowed) && id != "." && id != ".."
}

impl AggregateKey {
    /// The aggregate of this type and id.
    pub fn new(aggregate_type: impl Into<String>, id: impl Into<String>) -> Self {
        Self { aggregate_type: aggregate_type.into(), id: id.into() }
    }

    /// Whether the suite reserves the aggregate's type for its own checks. Its events are not in the index.
    pub fn is_reserved(&self) -> bool {
        self.aggregate_type.starts_with(RESERVED_PREFIX)
    }
}

impl FromStr for AggregateKey {
    type Err = String;

    /// The aggregate of `account/123`.
    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.split_once('/').filter(|(aggregate_type, id)| !aggregate_type.is_empty() && is_id(id));
        let key = key.map(|(aggregate_type, id)| Self::new(aggregate_type, id));
        key.ok_or_else(|| "expected an aggregate as TYPE/ID, as in account/123".to_owned())
    }
}

impl fmt::Display for AggregateKey {
    /// `<type>/<id>`, as in URLs and in an event's `Resources`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.aggregate_type, self.id)
    }
}
