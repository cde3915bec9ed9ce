//! A process that gets the names of customers, and clients that send them, who are forgotten meanwhile.

use aggregates::{Customer, customer};
use daybook_decider::{
    Aggregate, Commands, Context, Decision, EventType, FollowedEvent, Personal, Reacts, Registry, Sources,
};
use daybook_simulation::{Request, Simulation, simulate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A greeting of the customer with the same id.
struct Greeting;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    /// With whether the sender has seen the name.
    Greet { name: Personal<String>, is_seen: bool },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Greeted {
    /// Whether it has the name of somebody who was forgotten.
    is_late: bool,
    is_seen: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Greeted { name: Personal<String>, greeted: Greeted },
}

impl Aggregate for Greeting {
    const TYPE: &'static str = "greeting";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Greet", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Greeted", 1)];

    type State = Greeted;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Customer>()
    }

    fn decide(_: &Greeted, Command::Greet { name, is_seen }: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let customer = context.involve::<Customer>(context.aggregate_id())?;
        let is_forgotten = customer.is_some_and(|customer| customer.forgotten);
        let greeted = Greeted { is_late: is_forgotten && !name.is_forgotten(), is_seen };
        Ok(vec![Event::Greeted { name, greeted }])
    }

    fn evolve(_: Greeted, Event::Greeted { greeted, .. }: &Event) -> Greeted {
        greeted.clone()
    }
}

impl Reacts<Customer> for Greeting {
    fn input(event: &FollowedEvent<'_, customer::Event>) -> Option<(String, Command)> {
        let customer::Event::Registered { name, .. } = event.event else { return None };
        Some((event.aggregate_id.to_owned(), Command::Greet { name: name.clone(), is_seen: !name.is_forgotten() }))
    }
}

fn register(id: &str) -> Request {
    let [email, name] = ["ann@example.com", "Ann"].map(|text| Personal::new(text.to_owned()));
    Request::to::<Customer>(id, &customer::Command::RegisterCustomer { email, name })
}

fn forget() -> Request {
    Request::to::<Customer>("1", &customer::Command::ForgetCustomer {})
}

fn simulation() -> Simulation {
    simulate(Registry::new().with::<Customer>().and_then(Registry::with::<Greeting>))
}

#[test]
fn input_has_no_value_that_was_forgotten() {
    simulation()
        .starting_with([register("1"), forget()])
        .clients(1, |_| register("2"))
        .finally(|world| world.state::<Greeting>("1").is_some_and(|greeted| !greeted.is_seen))
        .seeds(10);
}

#[test]
fn nobody_is_greeted_who_was_forgotten() {
    simulation()
        .clients(2, |random| {
            let of_ann = Personal::about(Customer::TYPE, "1", "Ann".to_owned());
            match random.below(3) {
                0 => register("1"),
                1 => forget(),
                _ => Request::to::<Greeting>("1", &Command::Greet { name: of_ann, is_seen: false }),
            }
        })
        .finally(|world| world.states::<Greeting>().all(|greeted| !greeted.is_late))
        .seeds(300);
}
