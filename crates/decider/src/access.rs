//! What a caller asks to do, and the result of the check.

use std::convert::Infallible;

use serde::Serialize;

use crate::json::Json;

/// What a caller asks to do with an aggregate or with all aggregates of a type. `C` is the type's
/// [`Command`](crate::Aggregate::Command).
#[derive(Debug)]
pub enum Access<'a, C = Infallible> {
    /// Reads the state or the events of an aggregate. The check has the state that is returned, or for events the
    /// current one. When it is denied on the state after a command, the response to the command contains only the version.
    Read,
    /// Reads the `meta` of events: who sent their commands, and from where. When it is denied, responses omit `meta`.
    /// For a feed, there is no state.
    ReadMeta,
    /// Folds the state from the first event (`?rebuild=true`). It is checked in addition to the read or the commands,
    /// and before the state is read, so there is no state.
    Rebuild,
    /// Lists the aggregates of the type. There is no id and no state.
    List,
    /// Reads the events of this name across all aggregates. It is the current name, also for events that are stored
    /// under an earlier one. There is no id and no state.
    Feed(&'a str),
    /// Sends this command. The state is the one that the command is decided on; there is none for an aggregate that does not
    /// exist.
    Command(&'a C),
}

impl<C> Clone for Access<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Access<'_, C> {}

impl<'a> Access<'a> {
    /// The same for a type with these commands.
    pub(crate) fn of<C>(self) -> Access<'a, C> {
        match self {
            Self::Read => Access::Read,
            Self::ReadMeta => Access::ReadMeta,
            Self::Rebuild => Access::Rebuild,
            Self::List => Access::List,
            Self::Feed(event) => Access::Feed(event),
            Self::Command(&never) => match never {},
        }
    }
}

/// Whether a caller may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// Allowed, whatever the state is. When a check without a state returns this, no check with a state follows, which
    /// saves reading the state.
    Unrestricted,
    /// Allowed.
    Allowed,
    /// Allowed, but for [`Access::Read`], the caller gets this instead of the state, and neither events nor messages, which
    /// contain the rest. A view has no parts: there, it means `Denied`.
    Part(Json),
    /// Denied: the caller receives status 403.
    Denied,
}

impl Authorization {
    /// A part of the state, or something that is made from it.
    ///
    /// # Panics
    ///
    /// When it has no JSON form.
    pub fn part(part: &impl Serialize) -> Self {
        Self::Part(Json::of(part).expect("a part of a state must have a JSON form"))
    }

    /// The part that the caller gets instead of the whole.
    pub fn into_part(self) -> Option<Json> {
        if let Self::Part(part) = self { Some(part) } else { None }
    }

    /// Whether it is allowed, and not only to get a part.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Unrestricted | Self::Allowed)
    }

    /// Whether it is not denied.
    pub fn is_allowed(&self) -> bool {
        *self != Self::Denied
    }
}

impl From<bool> for Authorization {
    fn from(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Denied }
    }
}
