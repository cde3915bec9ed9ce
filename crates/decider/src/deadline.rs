//! Deadlines: what shall happen with an aggregate, and when, unless its state changes first. Dispatches are stored like them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::Serialize;

use crate::aggregate_key::AggregateKey;
use crate::folded::CommandRequest;
use crate::record::{check_kebab_name, timestamp};

/// A command that the aggregate gets at a time, while [`Aggregate::deadlines`](crate::Aggregate::deadlines) returns it. `C` are
/// the commands of the aggregate.
#[derive(Clone, Debug)]
pub struct Deadline<C> {
    pub(crate) declaration: Declaration,
    of: PhantomData<fn() -> C>,
}

impl<C: Serialize> Deadline<C> {
    /// The deadline of a name such as `hold`: 1 to 128 lower-case letters, digits and hyphens, each once in an aggregate. The
    /// command is due at the time, rounded up to whole milliseconds; a time before 1970 is the beginning of 1970. Only the name
    /// and the time are stored: the command is that of the state at the time.
    pub fn new(name: impl Into<Cow<'static, str>>, due: Timestamp, command: &C) -> Self {
        let name = name.into();
        let command = CommandRequest::of(command).map(|command| (None, command));
        let command = command.map_err(|error| format!("the command of {name} has no JSON form: {error}"));
        let last = Timestamp::MAX.as_second() * 1_000;
        let milliseconds = due.as_millisecond() + i64::from(due.subsec_nanosecond() % 1_000_000 > 0);
        let due = Timestamp::from_millisecond(milliseconds.clamp(0, last)).expect("it is between two times");
        Self { declaration: Declaration { name, due: Some(due), command }, of: PhantomData }
    }
}

impl<C> Deadline<C> {
    /// Maximum deadlines and dispatches of an aggregate.
    pub const MAX: usize = MAX;
}

/// Maximum deadlines and dispatches of an aggregate.
pub(crate) const MAX: usize = 20;

/// A deadline or a dispatch as the code of an aggregate declares it.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub(crate) name: Cow<'static, str>,
    /// `None` for a dispatch.
    pub(crate) due: Option<Timestamp>,
    /// The command, and the aggregate that gets it if it is another; or why it cannot be sent.
    pub(crate) command: Result<(Option<AggregateKey>, CommandRequest), String>,
}

impl Declaration {
    pub(crate) fn check(&self) -> Result<(), String> {
        check_kebab_name(&self.name)?;
        self.command.as_ref().map(drop).map_err(Clone::clone)
    }

    /// What it is, if it can be stored.
    pub(crate) fn declared(self) -> Option<DeclaredDeadline> {
        self.check().ok()?;
        let (to, command) = self.command.ok()?;
        Some(DeclaredDeadline { name: self.name.into_owned(), due: self.due, to, command })
    }

    /// The declaration of an aggregate that may not dispatch.
    pub(crate) fn of_no_process(self) -> Self {
        let reason =
            format!("it dispatches {}, but sources() is empty, so it is no process: list what it reacts to", self.name);
        Self { command: Err(reason), ..self }
    }
}

/// A deadline that a state declares, or a dispatch: a command to another aggregate, at once.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredDeadline {
    /// Its name.
    pub name: String,
    /// When it is due, in whole milliseconds; `None` for a dispatch.
    pub due: Option<Timestamp>,
    /// The aggregate that gets the command of a dispatch; `None` for a deadline, whose command is for the aggregate itself.
    pub to: Option<AggregateKey>,
    /// The command.
    pub command: CommandRequest,
}

impl DeclaredDeadline {
    /// Whether it is the dispatch of this name.
    pub fn is_dispatch(&self, name: &str) -> bool {
        self.to.is_some() && self.name == name
    }

    /// What its row is set with: its name, and its time or its target.
    pub fn into_row(self) -> Option<(String, Due)> {
        let due = self.due.map(Due::At).or(self.to.map(Due::Now))?;
        Some((self.name, due))
    }
}

/// When a new deadline is due, or which aggregate gets the command of a new dispatch, which is sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The time of a deadline.
    At(Timestamp),
    /// The target of a dispatch.
    Now(AggregateKey),
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(due) => f.write_str(&timestamp(*due)),
            Self::Now(_) => f.write_str("at once"),
        }
    }
}

/// The difference between the deadlines of an aggregate before and after new events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlineChanges {
    /// The names that are new, or have another time. They are in the order of [`Model::deadlines`](crate::Model::deadlines).
    pub set: Vec<(String, Due)>,
    /// The names that exist only before. One of them may never have been stored, if commands of one request set and dropped it.
    pub dropped: Vec<String>,
}

impl DeadlineChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.dropped.is_empty()
    }

    /// These changes, followed by others.
    pub(crate) fn then(mut self, next: Self) -> Self {
        let changes_again = |name: &String| next.dropped.contains(name) || next.set.iter().any(|(set, _)| set == name);
        self.set.retain(|(name, _)| !changes_again(name));
        self.dropped.retain(|name| !changes_again(name));
        self.set.extend(next.set);
        self.dropped.extend(next.dropped);
        self
    }

    /// The difference. Fails if a new deadline cannot be stored. What was declared before stops no command.
    pub(crate) fn between(before: &[Declaration], after: &[Declaration]) -> Result<Self, String> {
        let is_in = |all: &[Declaration], name: &str| all.iter().any(|declared| declared.name == name);
        let is_new = |new: &&Declaration| !before.iter().any(|old| (&old.name, old.due) == (&new.name, new.due));
        let new: Vec<_> = after.iter().filter(is_new).collect();
        new.iter().try_for_each(|declared| declared.check())?;
        if !new.is_empty() && after.len() > MAX {
            return Err(format!("it would have {} deadlines and dispatches, the maximum is {MAX}", after.len()));
        }
        let twice = after.iter().enumerate().find(|(index, declared)| is_in(&after[..*index], &declared.name));
        if let Some((_, declared)) = twice.filter(|_| !new.is_empty()) {
            return Err(format!("the name {:?} occurs twice", declared.name));
        }
        let set = new.into_iter().cloned().filter_map(Declaration::declared).filter_map(DeclaredDeadline::into_row);
        let dropped = before.iter().filter(|old| !is_in(after, &old.name) && old.check().is_ok());
        Ok(Self { set: set.collect(), dropped: dropped.map(|declared| declared.name.to_string()).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    fn deadline(name: &'static str, due: &str) -> Declaration {
        let command = CommandRequest { command: "Expire".into(), data: Json::empty_object() };
        Declaration { command: Ok((None, command)), ..Deadline::new(name, due.parse().unwrap(), &()).declaration }
    }

    fn dispatch(name: &'static str) -> Declaration {
        let mut declaration = Declaration { due: None, ..deadline(name, "2026-01-01T00:00:00Z") };
        declaration.command.as_mut().unwrap().0 = Some(AggregateKey::new("account", "7"));
        declaration
    }

    fn set(name: &str, due: &str) -> (String, Due) {
        (name.to_owned(), Due::At(due.parse().unwrap()))
    }

    #[test]
    fn time_is_rounded_up_to_whole_milliseconds_within_the_range_of_times() {
        for (given, due) in [
            ("2026-11-28T10:00:00Z", "2026-11-28T10:00:00Z"),
            ("2026-11-28T10:00:00.000000001Z", "2026-11-28T10:00:00.001Z"),
            ("2026-11-28T10:00:00.999999999Z", "2026-11-28T10:00:01Z"),
            ("1969-12-31T23:59:59.999000001Z", "1970-01-01T00:00:00Z"),
            ("-009999-01-02T01:59:59Z", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(deadline("hold", given).due, Some(due.parse().unwrap()), "{given}");
        }
        let last = Deadline::new("hold", Timestamp::MAX, &()).declaration.due.unwrap();
        assert_eq!(last.to_string(), "9999-12-30T22:00:00Z");
    }

    #[test]
    fn changes_are_those_of_names_and_times() {
        let [one, two, three] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"];
        let before = [deadline("a", one), deadline("b", one), deadline("c", one)];
        let after = [deadline("a", one), deadline("b", two), deadline("d", three)];
        let changes = DeadlineChanges::between(&before, &after).unwrap();
        assert_eq!(changes, DeadlineChanges { set: vec![set("b", two), set("d", three)], dropped: vec!["c".into()] });
        assert!(DeadlineChanges::between(&before, &before).unwrap().is_empty());

        let back = DeadlineChanges::between(&after, &before).unwrap();
        let both = DeadlineChanges { set: vec![set("b", one), set("c", one)], dropped: vec!["d".into()] };
        assert_eq!(changes.then(back), both);
    }

    #[test]
    fn dispatch_is_set_when_its_name_appears() {
        let one = "2026-01-01T00:00:00Z";
        let sent = |name: &str| (name.to_owned(), Due::Now(AggregateKey::new("account", "7")));
        let after = [deadline("a", one), dispatch("z"), dispatch("b")];
        assert_eq!(DeadlineChanges::between(&[], &after).unwrap().set, [set("a", one), sent("z"), sent("b")]);
        assert_eq!(DeadlineChanges::between(&after[1..], &after).unwrap().set, [set("a", one)]);
        assert_eq!(DeadlineChanges::between(&after, &after[..2]).unwrap().dropped, ["b"]);
        assert_eq!(DeadlineChanges::between(&[deadline("b", one)], &[dispatch("b")]).unwrap().set, [sent("b")]);
        assert_eq!(
            DeadlineChanges::between(&[], &[deadline("b", one), dispatch("b")]).unwrap_err(),
            "the name \"b\" occurs twice"
        );
    }

    #[test]
    fn only_new_deadlines_have_to_be_valid() {
        let (one, two) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        for name in ["", "Hold", "a b", "a#b"] {
            let (wrong, right) = ([deadline(name, one)], [deadline("z", one)]);
            DeadlineChanges::between(&[], &wrong).unwrap_err();
            DeadlineChanges::between(&wrong, &[deadline(name, two)]).unwrap_err();
            assert!(DeadlineChanges::between(&wrong, &[]).unwrap().is_empty());
            let kept = [wrong, right].concat();
            assert_eq!(DeadlineChanges::between(&kept[..1], &kept).unwrap().set, [set("z", one)]);
        }
        let twice = [deadline("a", one), deadline("a", two)];
        DeadlineChanges::between(&twice[..1], &twice).unwrap_err();
        assert!(DeadlineChanges::between(&twice, &twice).unwrap().is_empty());
        let numbered = |n| Declaration { name: format!("{n:02}").into(), ..deadline("a", one) };
        let many: Vec<_> = (0..=MAX).map(numbered).collect();
        assert_eq!(DeadlineChanges::between(&[], &many[1..]).unwrap().set.len(), MAX);
        DeadlineChanges::between(&[], &many).unwrap_err();
        DeadlineChanges::between(&[], &[Deadline::new("a", Timestamp::UNIX_EPOCH, &()).declaration]).unwrap_err();
    }
}
