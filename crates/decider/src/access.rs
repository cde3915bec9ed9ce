//! What a caller asks to do, and the result of the check.

/// What a caller asks to do with an aggregate or with all aggregates of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access<'a> {
    /// Reads the state or the events of an aggregate. The check has the state that is returned, or for events the
    /// current one. When it is denied on the state after a command, the response to the command contains only the version.
    Read,
    /// Reads the `meta` of events: who sent their commands, and from where. When it is denied, responses omit `meta`.
    /// For a feed, there is no state.
    ReadMeta,
    /// Folds the state from the first event (`?rebuild=true`). It is checked in addition to the read or the commands,
    /// and before the state is read, so there is no state.
    Rebuild,
    /// Lists the aggregates of the type. There is no state.
    List,
    /// Reads the events of this name across all aggregates. It is the current name, also for events that are stored
    /// under an earlier one. There is no state.
    Feed(&'a str),
    /// Sends the command of this name. It is the name of the variant, also if the client uses an alias. The state is the one
    /// that the command is decided on; there is none for an aggregate that does not exist.
    Command(&'a str),
}

/// Whether a caller may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// Allowed, whatever the state is. When a check without a state returns this, no check with a state follows, which
    /// saves reading the state.
    Unrestricted,
    /// Allowed.
    Allowed,
    /// Denied: the caller receives status 403.
    Denied,
}

impl Authorization {
    /// Whether it is not denied.
    pub fn is_allowed(self) -> bool {
        match self {
            Self::Unrestricted | Self::Allowed => true,
            Self::Denied => false,
        }
    }
}

impl From<bool> for Authorization {
    fn from(is_allowed: bool) -> Self {
        if is_allowed { Self::Allowed } else { Self::Denied }
    }
}
