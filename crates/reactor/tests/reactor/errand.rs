//! A process of any dispatches, and the aggregates that it dispatches to and follows. What happens depends on names and texts.

use std::collections::HashMap;

use daybook_decider::{
    Access, Aggregate, Answer, Authorization, Caller, Claim, Commands, Context, Decision, Dispatch, EventType,
    FollowedEvent, Personal, Reacts, Rejection, Sources,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A box of notes, which an errand dispatches, and hears.
pub(crate) struct Postbox;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PostboxState {
    claimed: bool,
    removed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum PostboxCommand {
    Open {},
    Put {
        note: String,
        /// Has another order each time.
        #[serde(default, skip_serializing_if = "HashMap::is_empty")]
        marks: HashMap<u32, u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Personal<String>>,
    },
    Remove {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum PostboxEvent {
    Opened {},
    Put { note: String },
    Signed { by: Personal<String> },
    Removed {},
}

impl Aggregate for Postbox {
    const TYPE: &'static str = "postbox";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Open", update: None, delete: Some("Remove") };
    const EVENTS: &'static [EventType] = &[
        EventType::new("Opened", 1),
        EventType::new("Put", 1),
        EventType::new("Signed", 1),
        EventType::new("Removed", 1),
    ];

    type State = PostboxState;
    type Command = PostboxCommand;
    type Event = PostboxEvent;

    fn decide(
        _: &PostboxState,
        command: PostboxCommand,
        context: &Context<'_, PostboxEvent>,
    ) -> Decision<PostboxEvent> {
        match command {
            PostboxCommand::Open {} => Ok(vec![PostboxEvent::Opened {}]),
            PostboxCommand::Remove {} => Ok(vec![PostboxEvent::Removed {}]),
            PostboxCommand::Put { by: Some(by), .. } if by.is_forgotten() => {
                Err(Rejection::new("Forgotten", "nobody knows who it is by"))
            }
            PostboxCommand::Put { note, .. } if note.starts_with("full") => Err(Rejection::new("Full", "it is full")),
            PostboxCommand::Put { note, .. } if note.starts_with("pass") => {
                context.send::<Self>("none", &PostboxCommand::Remove {});
                Ok(vec![PostboxEvent::Put { note }])
            }
            PostboxCommand::Put { note, .. } if note.starts_with("boom") => panic!("{note} cannot be put"),
            PostboxCommand::Put { note, .. } if note.starts_with("sign") => {
                Ok(vec![PostboxEvent::Signed { by: Personal::about("guest", "1", note) }])
            }
            PostboxCommand::Put { note, .. } => Ok(vec![PostboxEvent::Put { note }]),
        }
    }

    fn evolve(state: PostboxState, event: &PostboxEvent) -> PostboxState {
        match event {
            PostboxEvent::Put { note } if note.starts_with("claim") => PostboxState { claimed: true, ..state },
            PostboxEvent::Removed {} => PostboxState { removed: true, ..state },
            _ => state,
        }
    }

    fn authorize(
        _: &Caller,
        access: Access<'_, PostboxCommand>,
        _: Option<&str>,
        _: Option<&PostboxState>,
    ) -> Authorization {
        (!matches!(access, Access::Command(PostboxCommand::Put { note, .. }) if note.starts_with("denied"))).into()
    }

    fn is_deleted(state: &PostboxState) -> bool {
        state.removed
    }

    fn claims(state: &PostboxState) -> Vec<Claim> {
        state.claimed.then(|| Claim::new("the-only-one", "postbox")).into_iter().collect()
    }
}

pub(crate) struct Errand;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    /// Names of dispatches, each with the id of its postbox.
    pub(crate) asks: Vec<(String, String)>,
    pub(crate) heard: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Begin {
        asks: Vec<(String, String)>,
    },
    /// Replaces the dispatches.
    Ask {
        asks: Vec<(String, String)>,
    },
    Hear {
        text: String,
        #[serde(default)]
        by: Personal<String>,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    Begun { asks: Vec<(String, String)> },
    Asked { asks: Vec<(String, String)> },
    Heard { text: String },
}

impl Aggregate for Errand {
    const TYPE: &'static str = "errand";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("Begun", 1), EventType::new("Asked", 1), EventType::new("Heard", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Postbox>()
    }

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::Begin { asks } => Ok(vec![Event::Begun { asks }]),
            Command::Ask { asks } => Ok(vec![Event::Asked { asks }]),
            Command::Hear { text, by } => {
                assert!(context.caller().is_system(), "only the system tells");
                match text.as_str() {
                    "panic" => panic!("it cannot be heard"),
                    "guest" if by.is_forgotten() => Ok(vec![]),
                    "reject" => Err(Rejection::new("Rejected", "it is not heard")),
                    "after-x" if !state.heard.contains(&"x".to_owned()) => Ok(vec![]),
                    _ => Ok(vec![Event::Heard { text }]),
                }
            }
        }
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event.clone() {
            Event::Begun { asks } | Event::Asked { asks } => State { asks, ..state },
            Event::Heard { text } => {
                // An answer ends its dispatch, unless it is to be kept.
                let done = text.split(": ").next().unwrap_or_default();
                state.asks.retain(|(name, _)| name.ends_with("keep") || name != done);
                state.heard.push(text);
                state
            }
        }
    }

    fn dispatches(state: &State) -> Vec<Dispatch> {
        let dispatch = |(name, to): &(String, String)| {
            let open = name.starts_with("open");
            let marks = if name.starts_with("map") { (0..20).map(|n| (n, n)).collect() } else { HashMap::new() };
            let by = name.starts_with("by").then(|| Personal::about("guest", "1", name.clone()));
            let put = PostboxCommand::Put { note: name.clone(), marks, by };
            let command = if open { PostboxCommand::Open {} } else { put };
            Dispatch::new::<Postbox>(name.clone(), to.clone(), &command)
        };
        state.asks.iter().map(dispatch).collect()
    }
}

impl Reacts<Postbox> for Errand {
    /// A note `ERRAND/TEXT` is input of an errand, and `ERRAND/begin` begins it.
    fn input(event: &FollowedEvent<'_, PostboxEvent>) -> Option<(String, Command)> {
        let PostboxEvent::Put { note } = event.event else { return None };
        let (errand, text) = note.split_once('/')?;
        assert!(text != "unreadable", "{note} cannot be read");
        let by = if text == "guest" { Personal::about("guest", "1", note.clone()) } else { Personal::default() };
        let hear = Command::Hear { text: text.to_owned(), by };
        Some((errand.to_owned(), if text == "begin" { Command::Begin { asks: vec![] } } else { hear }))
    }

    /// There is no answer to one whose name begins with `quiet`.
    fn answered(answer: &Answer<'_, PostboxCommand>) -> Option<Command> {
        let name = match answer.command {
            PostboxCommand::Put { note, .. } => note.clone(),
            _ => "open".to_owned(),
        };
        let outcome = answer.rejection.map_or("accepted", |rejection| &*rejection.name);
        (!name.starts_with("quiet"))
            .then(|| Command::Hear { text: format!("{name}: {outcome}"), by: Personal::default() })
    }
}
