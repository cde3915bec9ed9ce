//! A process that gets the names of customers, who are forgotten meanwhile.

use aggregates::{Customer, customer};
use daybook_decider::{
    Aggregate, Commands, Context, Decision, EventType, FollowedEvent, Personal, Reacts, Registry, Sources,
};
use daybook_simulation::{Request, simulate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A greeting of the customer with the same id.
struct Greeting;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Greet { name: Personal<String> },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    /// Whether it has the name of somebody who was forgotten.
    Greeted { is_late: bool },
}

impl Aggregate for Greeting {
    const TYPE: &'static str = "greeting";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Greet", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Greeted", 1)];

    type State = bool;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Customer>()
    }

    fn decide(_: &bool, Command::Greet { name }: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let customer = context.involve::<Customer>(context.aggregate_id())?;
        let is_forgotten = customer.is_some_and(|customer| customer.forgotten);
        Ok(vec![Event::Greeted { is_late: is_forgotten && !name.is_forgotten() }])
    }

    fn evolve(_: bool, Event::Greeted { is_late }: &Event) -> bool {
        *is_late
    }
}

impl Reacts<Customer> for Greeting {
    fn input(event: &FollowedEvent<'_, customer::Event>) -> Option<(String, Command)> {
        let customer::Event::Registered { name, .. } = event.event else { return None };
        Some((event.aggregate_id.to_owned(), Command::Greet { name: name.clone() }))
    }
}

#[test]
fn process_is_not_handed_the_name_of_somebody_who_was_forgotten() {
    simulate(Registry::new().with::<Customer>().and_then(Registry::with::<Greeting>))
        .clients(2, |random| {
            let [email, name] = ["ann@example.com", "Ann"].map(|text| Personal::new(text.to_owned()));
            Request::to::<Customer>(
                "1",
                &match random.below(2) {
                    0 => customer::Command::RegisterCustomer { email, name },
                    _ => customer::Command::ForgetCustomer {},
                },
            )
        })
        .finally(|world| world.states::<Greeting>().all(|is_late| !is_late))
        .seeds(300);
}
