//! Aggregates for cases that the suite's own do not cover: a state of any size, and rules that need all events.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An aggregate that stores every page in its state.
pub(crate) struct Notebook;

/// An aggregate whose rules need all its events.
pub(crate) struct Journal;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    pages: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Begin {},
    Write { page: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum NotebookEvent {
    NotebookBegun {},
    NotebookPageWritten { page: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum JournalEvent {
    JournalBegun {},
}

impl Aggregate for Notebook {
    const TYPE: &'static str = "notebook";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: Some("Write"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("NotebookBegun", 1), EventType::new("NotebookPageWritten", 1)];

    type State = State;
    type Command = Command;
    type Event = NotebookEvent;

    fn decide(_: &State, command: Command, _: &Context<'_, NotebookEvent>) -> Decision<NotebookEvent> {
        Ok(vec![match command {
            Command::Begin {} => NotebookEvent::NotebookBegun {},
            Command::Write { page } => NotebookEvent::NotebookPageWritten { page },
        }])
    }

    fn evolve(mut state: State, event: &NotebookEvent) -> State {
        if let NotebookEvent::NotebookPageWritten { page } = event {
            state.pages.push(page.clone());
        }
        state
    }
}

impl Aggregate for Journal {
    const TYPE: &'static str = "journal";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("JournalBegun", 1)];
    const FULL_HISTORY: bool = true;

    type State = State;
    type Command = Command;
    type Event = JournalEvent;

    fn decide(_: &State, _: Command, _: &Context<'_, JournalEvent>) -> Decision<JournalEvent> {
        Ok(vec![JournalEvent::JournalBegun {}])
    }

    fn evolve(state: State, _: &JournalEvent) -> State {
        state
    }
}
