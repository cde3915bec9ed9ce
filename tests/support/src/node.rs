//! An aggregate whose commands say what they involve: a plan to look at other nodes and tags, and to send them commands.

use daybook_decider::{Aggregate, Claim, Commands, Context, Decision, EventType, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node with a total and tags. Each tag is claimed. Without `CLAIMS`, it is that of an earlier release.
#[derive(Debug)]
pub struct Node<const CLAIMS: bool = true>;

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// The sum of the amounts.
    pub total: i64,
    /// The number of recorded rejections.
    pub refused: u32,
    /// What the last decision saw of others.
    pub seen: Vec<Option<i64>>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it is deleted.
    pub closed: bool,
}

/// The commands of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub enum Command {
    /// Creates it.
    Make(Plan),
    /// Changes it.
    Do(Plan),
    /// Deletes it.
    Close {},
}

/// What a command does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// The nodes to look at; their totals are recorded, and `-1` of a deleted one.
    pub look: Vec<String>,
    /// The tags whose nodes to look at.
    pub find: Vec<String>,
    /// Amounts to add, each with an event of its own.
    pub add: Vec<i64>,
    /// The maximum of the total and the totals of all others; otherwise the command is rejected.
    pub most: Option<i64>,
    /// Whether a rejection is recorded.
    pub records: bool,
    /// The tags to have.
    pub tags: Option<Vec<String>>,
    /// Commands to other nodes.
    pub send: Vec<(String, Command)>,
    /// A node that does the same to this one, without end.
    pub ping: Option<String>,
    /// Whether it makes a node with a new id.
    pub makes_new: bool,
    /// A text of this length in each event.
    pub length: usize,
    /// Whether it panics.
    pub panics: bool,
}

/// The events of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub enum Event {
    /// It was made.
    #[serde(rename = "NodeMade")]
    Made {},
    /// It was changed.
    #[serde(rename = "NodeAdded")]
    Added {
        /// The amount.
        amount: i64,
        /// What was seen of others.
        seen: Vec<Option<i64>>,
        /// Any text.
        text: String,
    },
    /// It was tagged.
    #[serde(rename = "NodeTagged")]
    Tagged {
        /// All its tags.
        tags: Vec<String>,
    },
    /// A command was rejected.
    #[serde(rename = "NodeRefused")]
    Refused {},
    /// It was deleted.
    #[serde(rename = "NodeClosed")]
    Closed {},
}

impl<const CLAIMS: bool> Aggregate for Node<CLAIMS> {
    const TYPE: &'static str = "node";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Make", update: Some("Do"), delete: Some("Close") };
    const EVENTS: &'static [EventType] = &[
        EventType::new("NodeMade", 1),
        EventType::new("NodeAdded", 1),
        EventType::new("NodeTagged", 1),
        EventType::new("NodeRefused", 1),
        EventType::new("NodeClosed", 1),
    ];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let (mut events, plan) = match command {
            Command::Make(plan) => (vec![Event::Made {}], plan),
            Command::Do(plan) => (vec![], plan),
            Command::Close {} => return Ok(vec![Event::Closed {}]),
        };
        assert!(!plan.panics, "a plan that panics");
        let looks: Vec<_> = plan.look.iter().map(|id| context.involve::<Self>(id)).collect();
        let total = |state: &State| if state.closed { -1 } else { state.total };
        let mut seen = Vec::new();
        for look in looks {
            seen.push(look?.map(total));
        }
        for tag in &plan.find {
            seen.push(context.involve_holder::<Self>(&tag_claim(tag))?.map(|(_, state)| total(state)));
        }
        let all = state.total + seen.iter().flatten().sum::<i64>() + plan.add.iter().sum::<i64>();
        if plan.most.is_some_and(|most| all > most) {
            let rejection = Rejection::new("TooMuch", format!("{all} is too much"));
            return Err(if plan.records { rejection.recording(Event::Refused {}) } else { rejection });
        }
        let text = "A".repeat(plan.length);
        events.extend(plan.add.into_iter().map(|amount| Event::Added {
            amount,
            seen: seen.clone(),
            text: text.clone(),
        }));
        events.extend(plan.tags.map(|tags| Event::Tagged { tags }));
        for (id, command) in plan.send {
            context.send::<Self>(id, &command);
        }
        if let Some(id) = plan.ping {
            let ping = Some(context.aggregate_id().to_owned());
            context.send::<Self>(id, &Command::Do(Plan { ping, ..Plan::default() }));
        }
        if plan.makes_new {
            context.send::<Self>(context.new_id().to_string(), &Command::Make(Plan::default()));
        }
        Ok(events)
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event.clone() {
            Event::Made {} => {}
            Event::Added { amount, seen, .. } => (state.total, state.seen) = (state.total + amount, seen),
            Event::Tagged { tags } => state.tags = tags,
            Event::Refused {} => state.refused += 1,
            Event::Closed {} => state.closed = true,
        }
        state
    }

    fn claims(state: &State) -> Vec<Claim> {
        state.tags.iter().filter(|_| CLAIMS).map(|tag| tag_claim(tag)).collect()
    }

    fn is_deleted(state: &State) -> bool {
        state.closed
    }
}

/// The claim of a tag.
pub fn tag_claim(tag: &str) -> Claim {
    Claim::new("tag", tag)
}
