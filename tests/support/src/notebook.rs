//! An aggregate for cases that the samples do not cover: a state of any size, several events per command, any number of
//! messages per event, rules that need the full history, and other versions of the state.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A notebook whose state has the version `STATE_VERSION`, and whose rules require all its events if `FULL_HISTORY`.
#[derive(Debug)]
pub struct Notebook<const STATE_VERSION: u32 = 1, const FULL_HISTORY: bool = false>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    pub lines: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub enum Command {
    Start { lines: Vec<String> },
    Write { lines: Vec<String> },
    Count {},
    Clear {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    LineWritten { text: String },
    LinesCleared {},
}

impl<const STATE_VERSION: u32, const FULL_HISTORY: bool> Aggregate for Notebook<STATE_VERSION, FULL_HISTORY> {
    const TYPE: &'static str = "notebook";
    const STATE_VERSION: u32 = STATE_VERSION;
    const COMMANDS: Commands = Commands { create: "Start", update: Some("Write"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("LineWritten", 1), EventType::new("LinesCleared", 1)];
    const FULL_HISTORY: bool = FULL_HISTORY;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let lines = match command {
            Command::Start { lines } | Command::Write { lines } => lines,
            Command::Count {} => vec![context.history().len().to_string()],
            Command::Clear {} => return Ok(vec![Event::LinesCleared {}]),
        };
        Ok(lines.into_iter().map(|text| Event::LineWritten { text }).collect())
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event {
            Event::LineWritten { text } => state.lines.push(text.clone()),
            Event::LinesCleared {} => state.lines.clear(),
        }
        state
    }

    /// A message for each exclamation mark that the line begins with.
    fn announce(_: &State, event: &Event, _: &State) -> Vec<Message> {
        let Event::LineWritten { text } = event else { return vec![] };
        let marks = text.bytes().take_while(|&byte| byte == b'!').count();
        (0..marks).map(|mark| Message::new("LineShouted", &mark)).collect()
    }
}
