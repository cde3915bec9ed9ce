//! An aggregate whose rules need all earlier events.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::Subject;

/// A diary with or without `FULL_HISTORY`. The command `Recall` records the lines that the history contains.
struct Diary<const FULL_HISTORY: bool>;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    lines: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Begin { line: String },
    Write { lines: Vec<String> },
    Recall {},
    Tear {},
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    LineWritten { line: String },
}

impl<const FULL_HISTORY: bool> Aggregate for Diary<FULL_HISTORY> {
    const TYPE: &'static str = "diary";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: Some("Write"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("LineWritten", 1)];
    const FULL_HISTORY: bool = FULL_HISTORY;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let recalled = || {
            let lines: Vec<_> = context.history().iter().map(|Event::LineWritten { line }| line.as_str()).collect();
            lines.join(",")
        };
        match command {
            Command::Begin { line } => Ok(vec![Event::LineWritten { line }]),
            Command::Write { lines } => Ok(lines.into_iter().map(|line| Event::LineWritten { line }).collect()),
            Command::Recall {} => Ok(vec![Event::LineWritten { line: format!("[{}]", recalled()) }]),
            Command::Tear {} => {
                Err(Rejection::new("Untearable", recalled()).recording(Event::LineWritten { line: "torn".into() }))
            }
        }
    }

    fn evolve(state: State, _: &Event) -> State {
        State { lines: state.lines + 1 }
    }
}

/// The lines that the last command recalls.
fn recalled<const FULL_HISTORY: bool>() -> String {
    let diary = Subject::of::<Diary<FULL_HISTORY>>();
    let first = diary.decide(&diary.unborn(), &[("Begin", json!({"line": "a"}))]).unwrap();
    let folded = diary.fold(&first.events);
    let batch = [("Write", json!({"lines": ["b", "c"]})), ("Recall", json!({}))];
    let decided = diary.decide(&folded, &batch).unwrap();
    decided.events[2].data.text().to_owned()
}

#[test]
fn history_contains_all_events_and_those_of_earlier_commands_of_the_batch() {
    assert_eq!(recalled::<true>(), r#"{"line":"[a,b,c]"}"#);
}

#[test]
fn history_is_empty_without_full_history() {
    assert_eq!(recalled::<false>(), r#"{"line":"[]"}"#);
}

#[test]
fn history_continues_from_decision_to_decision() {
    let diary = Subject::of::<Diary<true>>();
    let first = diary.decide(&diary.unborn(), &[("Begin", json!({"line": "a"}))]).unwrap();
    let second = diary.decide(&first.after, &[("Write", json!({"lines": ["b"]}))]).unwrap();
    let third = diary.decide(&second.after, &[("Recall", json!({}))]).unwrap();
    assert_eq!(third.events[0].data.text(), r#"{"line":"[a,b]"}"#);
}

#[test]
fn rejected_batch_adds_nothing_to_the_history() {
    let diary = Subject::of::<Diary<true>>();
    let before = diary.after(&[("Begin", json!({"line": "a"}))]);
    let rejected = diary.decide(&before, &[("Write", json!({"lines": ["b"]})), ("Tear", json!({}))]).unwrap();
    assert_eq!(rejected.rejection.as_ref().unwrap().detail, "a,b");
    let next = diary.decide(&rejected.after, &[("Recall", json!({}))]).unwrap();
    assert_eq!(next.events[0].data.text(), r#"{"line":"[a,torn]"}"#);
}

#[test]
fn history_bytes_are_counted_with_full_history() {
    let events = [("Begin", json!({"line": "a"})), ("Write", json!({"lines": ["b", "c"]}))];
    let asks = Subject::of::<Diary<true>>();
    let decided = asks.decide(&asks.unborn(), &events).unwrap();
    assert_eq!(decided.after.history_bytes(), 3 * r#"{"line":"a"}"#.len());
    assert_eq!(asks.fold(&decided.events).history_bytes(), decided.after.history_bytes());

    let does_not = Subject::of::<Diary<false>>();
    assert_eq!(does_not.after(&events).history_bytes(), 0);
    assert_eq!(does_not.fold(&decided.events).history_bytes(), 0);
}
