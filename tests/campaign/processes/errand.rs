//! Post boxes, and errands, which are processes: notes of post boxes are their input, and they dispatch notes to post boxes. What
//! happens depends on kinds and names.

use daybook_decider::{
    Access, Aggregate, Answer, Authorization, Caller, Claim, Commands, Context, Deadline, Decision, Dispatch,
    EventType, FollowedEvent, Message, Reacts, Rejection, Sources,
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ids of all post boxes. Only the last one is ever removed.
pub(crate) const POSTBOXES: [&str; 3] = ["b", "d", "f"];

pub(crate) const ERRANDS: [&str; 3] = ["x", "y", "z"];

/// The names of dispatches:
/// - `put` is answered, and not declared any more then. `keep` stays declared; the errand rejects the answer to `again`. `quiet`
///   has no answer.
/// - `refuse` is rejected, `record` too, with an event. `idle` has no effect. `claim` takes what only one post box has.
/// - `pass` also posts a note for the errand in another post box, in the same append.
/// - `break` cannot be decided until the code is repaired; then it is like `put`.
pub(crate) const NAMES: [&str; 10] =
    ["put", "keep", "again", "quiet", "refuse", "record", "idle", "claim", "pass", "break"];

/// The name of the deadline of an errand.
pub(crate) const WAIT: &str = "wait";

/// More events than a decision may have.
const TOO_MANY: usize = 100;

/// Input of an errand.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Note {
    /// - `begin` begins the errand. `ask` adds dispatches, `replace` replaces them.
    /// - `wait` sets the deadline, to a time in `seconds`, `cancel` drops it. `end` deletes the errand.
    /// - `refuse` is rejected, `idle` has no effect. `jam` cannot be handled until the code is repaired.
    pub(crate) kind: String,
    /// Names of dispatches, each with the id of its post box.
    pub(crate) asks: Vec<(String, String)>,
    pub(crate) seconds: i64,
}

impl Note {
    pub(crate) fn of(kind: &str) -> Self {
        Self { kind: kind.to_owned(), asks: Vec::new(), seconds: 0 }
    }
}

pub(crate) struct Postbox<const REPAIRED: bool>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PostboxState {
    has_claim: bool,
    is_removed: bool,
}

/// The dispatch of an errand, with the number of the event in which its name has appeared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Asked {
    pub(crate) errand: String,
    pub(crate) name: String,
    pub(crate) number: u64,
}

/// `Put` has the version of the state that has returned it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum PostboxCommand {
    Open {},
    Post { errand: String, note: Note },
    Put { asked: Asked, version: u64 },
    Remove {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum PostboxEvent {
    Opened {},
    Posted { errand: String, note: Note },
    Put { asked: Asked, version: u64 },
    Removed {},
}

impl<const REPAIRED: bool> Aggregate for Postbox<REPAIRED> {
    const TYPE: &'static str = "postbox";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Open", update: Some("Post"), delete: Some("Remove") };
    const EVENTS: &'static [EventType] = &[
        EventType::new("Opened", 1),
        EventType::new("Posted", 1),
        EventType::new("Put", 1),
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
        let (asked, version) = match command {
            PostboxCommand::Open {} => return Ok(vec![PostboxEvent::Opened {}]),
            PostboxCommand::Remove {} => return Ok(vec![PostboxEvent::Removed {}]),
            PostboxCommand::Post { errand, note } => return Ok(vec![PostboxEvent::Posted { errand, note }]),
            PostboxCommand::Put { asked, version } => (asked, version),
        };
        let put = PostboxEvent::Put { asked: asked.clone(), version };
        let refused = Rejection::new("Refused", "it is refused");
        match &*asked.name {
            "refuse" => Err(refused),
            "record" => Err(refused.recording(put)),
            "idle" => Ok(vec![]),
            "break" if !REPAIRED => Ok(vec![put; TOO_MANY]),
            "pass" => {
                let other = POSTBOXES[..2].iter().find(|id| **id != context.aggregate_id()).unwrap();
                let note = Note { asks: vec![("put".to_owned(), (*other).to_owned())], ..Note::of("ask") };
                context.send::<Self>(*other, &PostboxCommand::Post { errand: asked.errand, note });
                Ok(vec![put])
            }
            _ => Ok(vec![put]),
        }
    }

    fn evolve(state: PostboxState, event: &PostboxEvent) -> PostboxState {
        match event {
            PostboxEvent::Put { asked, .. } => PostboxState { has_claim: asked.name == "claim", ..state },
            PostboxEvent::Removed {} => PostboxState { is_removed: true, ..state },
            PostboxEvent::Opened {} | PostboxEvent::Posted { .. } => state,
        }
    }

    fn announce(_: &PostboxState, _: &PostboxEvent, _: &PostboxState) -> Vec<Message> {
        vec![]
    }

    fn is_deleted(state: &PostboxState) -> bool {
        state.is_removed
    }

    fn claims(state: &PostboxState) -> Vec<Claim> {
        state.has_claim.then(|| Claim::new("the-only-one", "postbox")).into_iter().collect()
    }

    fn authorize(
        caller: &Caller,
        access: Access<'_, PostboxCommand>,
        _: Option<&str>,
        _: Option<&PostboxState>,
    ) -> Authorization {
        (!matches!(access, Access::Command(PostboxCommand::Put { .. })) || caller.is_system()).into()
    }
}

pub(crate) struct Errand<const REPAIRED: bool>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    pub(crate) id: String,
    /// The number of the last event.
    version: u64,
    /// The dispatches, each with its post box.
    pub(crate) asks: Vec<(Asked, String)>,
    pub(crate) waits_until: Option<Timestamp>,
    pub(crate) has_ended: bool,
}

/// The post box and the number of an event that is input.
pub(crate) type Origin = (String, u64);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Begin { from: Origin, note: Note },
    Hear { from: Origin, note: Note },
    Answer { asked: Asked, rejection: Option<String> },
    Ring { due: Timestamp },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    Begun { id: String, from: Origin },
    Heard { from: Origin, note: Note, at: Timestamp },
    Answered { asked: Asked, rejection: Option<String> },
    Rang { due: Timestamp },
}

impl<const REPAIRED: bool> Aggregate for Errand<REPAIRED> {
    const TYPE: &'static str = "errand";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[
        EventType::new("Begun", 1),
        EventType::new("Heard", 1),
        EventType::new("Answered", 1),
        EventType::new("Rang", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Postbox<REPAIRED>>()
    }

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let refused = Rejection::new("Refused", "it is refused");
        match command {
            Command::Begin { from, .. } => Ok(vec![Event::Begun { id: context.aggregate_id().to_owned(), from }]),
            Command::Hear { note, .. } if note.kind == "refuse" => Err(refused),
            Command::Hear { note, .. } if note.kind == "idle" => Ok(vec![]),
            Command::Hear { from, note } => {
                let event = Event::Heard { from, note, at: context.now() };
                let is_jammed = matches!(&event, Event::Heard { note, .. } if note.kind == "jam");
                Ok(vec![event; if is_jammed && !REPAIRED { TOO_MANY } else { 1 }])
            }
            Command::Answer { asked, .. } if asked.name == "again" => Err(refused),
            Command::Answer { asked, rejection } => Ok(vec![Event::Answered { asked, rejection }]),
            Command::Ring { due } => Ok(vec![Event::Rang { due }]),
        }
    }

    fn evolve(mut state: State, event: &Event) -> State {
        state.version += 1;
        match event {
            Event::Begun { id, .. } => state.id.clone_from(id),
            Event::Heard { note, at, .. } => state.hear(note, *at),
            Event::Answered { asked, .. } if asked.name == "keep" => {}
            Event::Answered { asked, .. } => state.asks.retain(|(declared, _)| declared != asked),
            Event::Rang { .. } => state.waits_until = None,
        }
        state
    }

    fn announce(_: &State, _: &Event, _: &State) -> Vec<Message> {
        vec![]
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        state.waits_until.iter().map(|due| Deadline::new(WAIT, *due, &Command::Ring { due: *due })).collect()
    }

    fn dispatches(state: &State) -> Vec<Dispatch> {
        let dispatch = |(asked, postbox): &(Asked, String)| {
            let put = PostboxCommand::Put { asked: asked.clone(), version: state.version };
            Dispatch::new::<Postbox<REPAIRED>>(asked.name.clone(), postbox.clone(), &put)
        };
        state.asks.iter().map(dispatch).collect()
    }

    fn is_deleted(state: &State) -> bool {
        state.has_ended
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        (!matches!(access, Access::Command(_)) || caller.is_system()).into()
    }
}

impl State {
    fn hear(&mut self, note: &Note, at: Timestamp) {
        match &*note.kind {
            "replace" => self.asks.retain(|(asked, _)| note.asks.iter().any(|(name, _)| *name == asked.name)),
            "wait" => self.waits_until = Some(at + SignedDuration::from_secs(note.seconds)),
            "cancel" => self.waits_until = None,
            "end" => self.has_ended = true,
            _ => {}
        }
        for (name, postbox) in &note.asks {
            if self.asks.iter().all(|(asked, _)| asked.name != *name) {
                let asked = Asked { errand: self.id.clone(), name: name.clone(), number: self.version };
                self.asks.push((asked, postbox.clone()));
            }
        }
    }
}

impl<const REPAIRED: bool> Reacts<Postbox<REPAIRED>> for Errand<REPAIRED> {
    fn input(event: &FollowedEvent<'_, PostboxEvent>) -> Option<(String, Command)> {
        let PostboxEvent::Posted { errand, note } = event.event else { return None };
        let (from, note) = ((event.aggregate_id.to_owned(), event.seq_num), note.clone());
        let begins = note.kind == "begin";
        let command = if begins { Command::Begin { from, note } } else { Command::Hear { from, note } };
        Some((errand.clone(), command))
    }

    fn answered(answer: &Answer<'_, PostboxCommand>) -> Option<Command> {
        let PostboxCommand::Put { asked, .. } = answer.command else { return None };
        let rejection = answer.rejection.map(|rejection| rejection.name.clone());
        (asked.name != "quiet").then(|| Command::Answer { asked: asked.clone(), rejection })
    }
}
