//! What follows an event: its messages, and the commands that processes, dispatches, deadlines and decisions make of it. No
//! type declares that, so it is what the samples of the commands lead to.

use std::collections::{BTreeMap, BTreeSet};

use daybook_command_handler::openapi::ID;
use daybook_decider::{Decided, Model, Registry};

use crate::examples::decisions;

#[derive(Debug, Default)]
pub struct Flows {
    /// The message types of each event type that the samples lead to.
    pub messages: BTreeMap<String, BTreeSet<String>>,
    pub links: BTreeSet<Link>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The aggregate type of the event.
    pub from: &'static str,
    pub event: String,
    pub kind: LinkKind,
    /// The aggregate type of the command.
    pub to: String,
    pub command: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// The event is input of a process, which gets the command.
    Input,
    /// The process dispatches the command.
    Dispatch,
    /// The decision on the event sends the command, in the same transaction.
    Sent,
    /// The aggregate gets the command at a time.
    Deadline,
}

impl Flows {
    pub fn new(registry: &Registry) -> Self {
        let mut flows = Self::default();
        for model in registry.iter() {
            for decided in decisions(registry, model) {
                flows.add_events(registry, model, &decided);
                flows.add_commands(model, &decided);
            }
        }
        flows
    }

    /// The messages of the events, and the processes that they are input of.
    fn add_events(&mut self, registry: &Registry, model: &dyn Model, decided: &Decided) {
        for event in &decided.events {
            let messages = decided.messages.iter().filter(|message| message.seq_num == event.seq_num);
            let messages = messages.map(|message| message.message_type.clone());
            self.messages.entry(event.event_type.clone()).or_default().extend(messages);
            for process in registry.iter() {
                let input = process.source(model.type_name()).and_then(|source| source.input(ID, event).ok().flatten());
                for command in input.into_iter().flat_map(|input| input.commands) {
                    self.link(model, &event.event_type, LinkKind::Input, process.type_name(), command.command);
                }
            }
        }
    }

    /// The commands of the decision, which follow its last event.
    fn add_commands(&mut self, model: &dyn Model, decided: &Decided) {
        let Some(event) = decided.events.last().filter(|_| decided.rejection.is_none()) else { return };
        for sent in &decided.sent {
            let (to, command) = (&sent.to.aggregate_type, sent.command.command.clone());
            self.link(model, &event.event_type, LinkKind::Sent, to, command);
        }
        for declared in model.deadlines(&decided.after).unwrap_or_default() {
            if decided.deadlines.set.iter().any(|(name, _)| *name == declared.name) {
                let (kind, to) = match &declared.to {
                    Some(key) => (LinkKind::Dispatch, key.aggregate_type.as_str()),
                    None => (LinkKind::Deadline, model.type_name()),
                };
                self.link(model, &event.event_type, kind, to, declared.command.command);
            }
        }
    }

    fn link(&mut self, from: &dyn Model, event: &str, kind: LinkKind, to: &str, command: String) {
        let (event, to) = (event.to_owned(), to.to_owned());
        self.links.insert(Link { from: from.type_name(), event, kind, to, command });
    }
}

#[cfg(test)]
mod tests {
    use daybook_decider::{Aggregate, Commands, Context, Deadline, Decision, EventType, Rejection};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;

    /// Has a deadline from its first event on.
    struct Watch;

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data", deny_unknown_fields)]
    enum Command {
        Begin {},
        Add {},
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "type", content = "data")]
    enum Event {
        Begun {},
        Added {},
        Marked {},
    }

    impl Aggregate for Watch {
        const TYPE: &'static str = "watch";
        const STATE_VERSION: u32 = 1;
        const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
        const EVENTS: &'static [EventType] =
            &[EventType::new("Begun", 1), EventType::new("Added", 1), EventType::new("Marked", 1)];

        type State = ();
        type Command = Command;
        type Event = Event;

        fn decide((): &(), command: Command, _: &Context<'_, Event>) -> Decision<Event> {
            Ok(match command {
                Command::Begin {} => vec![Event::Begun {}],
                Command::Add {} => vec![Event::Added {}, Event::Marked {}],
            })
        }

        fn evolve((): (), _: &Event) {}

        fn deadlines((): &()) -> Vec<Deadline<Command>> {
            vec![Deadline::new("late", "2030-01-01T00:00:00Z".parse().unwrap(), &Command::Add {})]
        }
    }

    /// Begins a watch for callers with a name.
    struct Member;

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data", deny_unknown_fields)]
    enum MemberCommand {
        Join {},
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "type", content = "data")]
    enum MemberEvent {
        Joined {},
    }

    impl Aggregate for Member {
        const TYPE: &'static str = "member";
        const STATE_VERSION: u32 = 1;
        const COMMANDS: Commands = Commands { create: "Join", update: None, delete: None };
        const EVENTS: &'static [EventType] = &[EventType::new("Joined", 1)];

        type State = ();
        type Command = MemberCommand;
        type Event = MemberEvent;

        fn decide(
            (): &(),
            MemberCommand::Join {}: MemberCommand,
            context: &Context<'_, Self::Event>,
        ) -> Decision<Self::Event> {
            let name = context.caller().principal.as_ref().ok_or_else(|| Rejection::new("Nobody", "who is it?"))?;
            context.send::<Watch>(name, &Command::Begin {});
            Ok(vec![MemberEvent::Joined {}])
        }

        fn evolve((): (), MemberEvent::Joined {}: &Self::Event) {}
    }

    #[test]
    fn decision_that_wants_a_caller_is_followed_by_the_creation_that_it_sends() {
        let flows = Flows::new(&Registry::new().with::<Watch>().unwrap().with::<Member>().unwrap());
        let (event, to, command) = ("Joined".to_owned(), "watch".to_owned(), "Begin".to_owned());
        let sent = Link { from: "member", event, kind: LinkKind::Sent, to, command };
        assert!(flows.links.contains(&sent), "{flows:?}");
    }

    #[test]
    fn event_is_followed_only_by_its_own_messages_and_by_new_deadlines() {
        let flows = Flows::new(&Registry::new().with::<Watch>().unwrap());
        let expected = ["Added", "Begun", "Marked"].map(|name| (name.to_owned(), [name.to_owned()].into()));
        assert_eq!(flows.messages, BTreeMap::from(expected));
        let (event, to, command) = ("Begun".to_owned(), "watch".to_owned(), "Add".to_owned());
        let deadline = Link { from: "watch", event, kind: LinkKind::Deadline, to, command };
        assert_eq!(flows.links.into_iter().collect::<Vec<_>>(), [deadline]);
    }
}
