//! What a caller may do with the aggregate under test.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value;

use super::Given;
use crate::access::{Access, Authorization};
use crate::aggregate::Aggregate;
use crate::json::Json;
use crate::personal;

impl<A: Aggregate> Given<A> {
    /// Expects that the caller may do this.
    ///
    /// # Panics
    ///
    /// When it is denied.
    #[track_caller]
    pub fn allows(self, access: Access<'_, A::Command>) -> Self
    where
        A::Command: Debug,
    {
        assert!(self.authorizes(access), "{access:?} is denied to {:?}", self.caller);
        self
    }

    /// Expects that the caller may not do this.
    ///
    /// # Panics
    ///
    /// When it is allowed, or when it is unrestricted without the state, although the state decides.
    #[track_caller]
    pub fn forbids(self, access: Access<'_, A::Command>) -> Self
    where
        A::Command: Debug,
    {
        assert!(!self.authorizes(access), "{access:?} is allowed to {:?}", self.caller);
        self.require_restriction(access);
        self
    }

    /// Expects that the caller gets this when it reads the state.
    ///
    /// # Panics
    ///
    /// When the caller gets something else, or a part although the events are shown: in a feed, or because reading is unrestricted
    /// without the state.
    #[track_caller]
    pub fn shows(self, expected: &impl Serialize) -> Self
    where
        A::Command: Debug,
    {
        let value = |json: Json| serde_json::from_str::<Value>(&personal::shown(json.text())).expect("it is JSON");
        let whole = || Json::of(&self.state).expect("a state has a JSON form");
        let read = self.authorization(Access::Read);
        assert!(read.is_allowed(), "Read is denied to {:?}", self.caller);
        if !read.is_whole() {
            self.require_restriction(Access::Read);
            for event in A::EVENTS {
                let feed = self.authorization(Access::Feed(event.name));
                assert!(!feed.is_allowed(), "authorize must deny {:?}, whose events show the rest", event.name);
            }
        }
        let shown = read.into_part().unwrap_or_else(whole);
        assert_eq!(value(shown), value(Json::of(expected).expect("it has a JSON form")));
        self
    }

    /// Events are read without the state if `Read` and `ReadMeta` are unrestricted without it.
    #[track_caller]
    fn require_restriction(&self, access: Access<'_, A::Command>)
    where
        A::Command: Debug,
    {
        let is_unrestricted =
            |access| A::authorize(&self.caller, access, Some(&self.id), None) == Authorization::Unrestricted;
        let is_read = matches!(access, Access::Read | Access::ReadMeta) && !self.history.is_empty();
        assert!(
            !is_read || !is_unrestricted(Access::Read) || !is_unrestricted(Access::ReadMeta),
            "events would be shown: without a state, authorize must return Allowed or Denied for {access:?}, not Unrestricted"
        );
    }

    /// Makes the check. It has no id and no state if the access never has one, and no state before the first event.
    pub(super) fn authorizes(&self, access: Access<'_, A::Command>) -> bool {
        self.authorization(access).is_allowed()
    }

    fn authorization(&self, access: Access<'_, A::Command>) -> Authorization {
        let (has_id, has_state) = match access {
            Access::List | Access::Feed(_) => (false, false),
            Access::Rebuild => (true, false),
            Access::Read | Access::ReadMeta | Access::Command(_) => (true, !self.history.is_empty()),
        };
        let (id, state) = (has_id.then_some(self.id.as_str()), has_state.then_some(&self.state));
        A::authorize(&self.caller, access, id, state)
    }
}
