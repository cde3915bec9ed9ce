//! Deadlines: what shall happen with an aggregate, and when, unless its state changes first.

use std::borrow::Cow;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::Serialize;

use crate::folded::CommandRequest;
use crate::record::{MAX_NAME, check_kebab_name};

/// A command that the aggregate gets at a time, while [`Aggregate::deadlines`](crate::Aggregate::deadlines) returns it. `C` are
/// the commands of the aggregate.
#[derive(Clone, Debug)]
pub struct Deadline<C> {
    name: Cow<'static, str>,
    due: Timestamp,
    /// The command, or why it cannot be written.
    command: Result<CommandRequest, String>,
    of: PhantomData<fn() -> C>,
}

impl<C: Serialize> Deadline<C> {
    /// The deadline of a name such as `hold`: 1 to 128 lower-case letters, digits and hyphens, each once in an aggregate. The
    /// command is due at the time, rounded up to whole milliseconds; a time before 1970 is the beginning of 1970. Only the name
    /// and the time are stored: the command is that of the state at the time.
    pub fn new(name: impl Into<Cow<'static, str>>, due: Timestamp, command: &C) -> Self {
        let command = serde_json::to_string(command).and_then(|command| serde_json::from_str(&command));
        let last = Timestamp::MAX.as_second() * 1_000;
        let milliseconds = due.as_millisecond() + i64::from(due.subsec_nanosecond() % 1_000_000 > 0);
        let due = Timestamp::from_millisecond(milliseconds.clamp(0, last)).expect("it is between two times");
        Self { name: name.into(), due, command: command.map_err(|error| error.to_string()), of: PhantomData }
    }
}

impl<C> Deadline<C> {
    /// Maximum deadlines of an aggregate.
    pub const MAX: usize = 20;

    /// Maximum characters of a name.
    pub const MAX_NAME: usize = MAX_NAME;

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When the command is due.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    fn check(&self) -> Result<(), String> {
        check_kebab_name(&self.name)?;
        self.command
            .as_ref()
            .map(drop)
            .map_err(|error| format!("the command of {} has no JSON form: {error}", self.name))
    }

    /// The deadline without the type of its command; `None` if it cannot be stored.
    pub(crate) fn declared(self) -> Option<DeclaredDeadline> {
        self.check().ok()?;
        Some(DeclaredDeadline { name: self.name.into_owned(), due: self.due, command: self.command.ok()? })
    }
}

/// A deadline that a state declares.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredDeadline {
    /// Its name.
    pub name: String,
    /// When it is due, in whole milliseconds.
    pub due: Timestamp,
    /// The command that the aggregate then gets.
    pub command: CommandRequest,
}

/// The difference between the deadlines of an aggregate before and after new events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadlineChanges {
    /// The names that are new, or have another time, each with the time that it has afterwards.
    pub set: Vec<(String, Timestamp)>,
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

    /// The difference. Both are sorted by name.
    ///
    /// # Errors
    ///
    /// When a new deadline cannot be stored. What was declared before stops no command.
    pub(crate) fn between<C>(before: &[Deadline<C>], after: &[Deadline<C>]) -> Result<Self, String> {
        let is_in = |deadlines: &[Deadline<C>], name: &str| deadlines.iter().any(|deadline| deadline.name == name);
        let is_new = |new: &&Deadline<C>| !before.iter().any(|old| (&old.name, old.due) == (&new.name, new.due));
        let new: Vec<_> = after.iter().filter(is_new).collect();
        new.iter().try_for_each(|deadline| deadline.check())?;
        if !new.is_empty() && after.len() > Deadline::<C>::MAX {
            return Err(format!("it would have {} deadlines, the maximum is {}", after.len(), Deadline::<C>::MAX));
        }
        if let Some([first, _]) = after.windows(2).find(|pair| pair[0].name == pair[1].name).filter(|_| !new.is_empty())
        {
            return Err(format!("the name {:?} occurs twice", first.name));
        }
        let dropped = before.iter().filter(|old| !is_in(after, &old.name) && old.check().is_ok());
        Ok(Self {
            set: new.into_iter().map(|deadline| (deadline.name.to_string(), deadline.due)).collect(),
            dropped: dropped.map(|deadline| deadline.name.to_string()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(name: &'static str, due: &str) -> Deadline<()> {
        let command = serde_json::from_str(r#"{"command": "Expire"}"#).map_err(|error| error.to_string());
        Deadline { command, ..Deadline::new(name, due.parse().unwrap(), &()) }
    }

    fn set(name: &str, due: &str) -> (String, Timestamp) {
        (name.to_owned(), due.parse().unwrap())
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
            assert_eq!(deadline("hold", given).due(), due.parse().unwrap(), "{given}");
        }
        assert_eq!(Deadline::new("hold", Timestamp::MAX, &()).due().to_string(), "9999-12-30T22:00:00Z");
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
        let numbered = |n| Deadline { name: format!("{n:02}").into(), ..deadline("a", one) };
        let many: Vec<_> = (0..=Deadline::<()>::MAX).map(numbered).collect();
        assert_eq!(DeadlineChanges::between(&[], &many[1..]).unwrap().set.len(), Deadline::<()>::MAX);
        DeadlineChanges::between(&[], &many).unwrap_err();
        DeadlineChanges::between(&[], &[Deadline::new("a", Timestamp::UNIX_EPOCH, &())]).unwrap_err();
    }
}
