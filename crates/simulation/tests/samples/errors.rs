//! Errors of a project's code that need no invariant of its own, or one of every project.

use aggregates::{Customer, customer};
use daybook_decider::{Aggregate, Claim, Commands, Context, Deadline, Decision, EventType, Personal, Registry};
use daybook_projection::{FollowedEvent, Follows, Projection, Projections, Source};
use daybook_simulation::{Message, Random, Request, Simulation, World, simulate};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::find;

/// What is wrong with the counter.
const NOTHING: u8 = 0;
const PANICS: u8 = 1;
const LOSES_STATE: u8 = 2;
const DECIDES_ON_LOST: u8 = 3;
const CLAIMS_AT_A_TIME: u8 = 4;
const DECIDES_ON_LOST_OF_ANOTHER: u8 = 5;

struct Counter<const BUG: u8>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    count: u32,
    /// Not a part of snapshots, so `evolve` and `decide` must not use it.
    #[serde(skip)]
    last: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Begin {},
    Add { number: u32 },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Begun {},
    Added { number: u32 },
}

impl<const BUG: u8> Aggregate for Counter<BUG> {
    const TYPE: &'static str = "counter";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Begun", 1), EventType::new("Added", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        assert!(BUG != PANICS || state.count < 3, "the counter is full");
        Ok(vec![match command {
            Command::Begin {} => Event::Begun {},
            Command::Add { number } if BUG == DECIDES_ON_LOST => Event::Added { number: number + state.last },
            Command::Add { number } if BUG == DECIDES_ON_LOST_OF_ANOTHER => {
                let other = if context.aggregate_id() == "a" { "b" } else { "a" };
                let last = context.involve::<Self>(other)?.map_or(0, |other| other.last);
                Event::Added { number: number + last }
            }
            Command::Add { number } => Event::Added { number },
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match *event {
            Event::Begun {} => state,
            Event::Added { number } if BUG == LOSES_STATE => State { count: state.count + state.last, last: number },
            Event::Added { number } => State { count: state.count + number, last: number },
        }
    }

    fn deadlines(state: &State) -> Vec<Deadline<Command>> {
        let add = || Deadline::new("add", Timestamp::UNIX_EPOCH, &Command::Add { number: 1 });
        (BUG == CLAIMS_AT_A_TIME && state.count == 0).then(add).into_iter().collect()
    }

    fn claims(state: &State) -> Vec<Claim> {
        (BUG == CLAIMS_AT_A_TIME && state.count > 0).then(|| Claim::new("any", "counter")).into_iter().collect()
    }
}

/// The last number that was added to any counter: it depends on the order of events of different counters.
struct Last;

impl Projection for Last {
    const NAME: &'static str = "last";
    const VERSION: u32 = 1;

    type Row = u32;
    type Change = u32;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Counter<NOTHING>>()]
    }

    fn apply(_: Option<u32>, number: &u32) -> Option<u32> {
        Some(*number)
    }
}

impl Follows<Counter<NOTHING>> for Last {
    type State = ();

    fn advance((): (), _: &FollowedEvent<'_, Event>) {}

    fn changes((): &(), event: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, u32)> {
        match *event.event {
            Event::Begun {} => Vec::new(),
            Event::Added { number } => vec![("last".to_owned(), number)],
        }
    }
}

fn any_request<const BUG: u8>(random: &mut Random) -> Request {
    let number = random.below(3) as u32;
    Request::to::<Counter<BUG>>(*random.one_of(&["a", "b"]), &Command::Add { number })
}

fn simulation<const BUG: u8>() -> Simulation {
    simulate(Registry::new().with::<Counter<BUG>>())
        .starting_with(["a", "b"].map(|id| Request::to::<Counter<BUG>>(id, &Command::Begin {})))
        .clients(2, any_request::<BUG>)
}

#[test]
fn panic_of_an_aggregate_is_found() {
    let place = "decide of counter panicked at crates/simulation/tests/samples/errors.rs:";
    find(&simulation::<PANICS>(), &[place, "the counter is full"]);
}

#[test]
fn deadline_whose_command_takes_the_claim_of_another_aggregate_is_found() {
    let expected = ["the command of a deadline fails", "not executed: counter/", " has the claim "];
    find(&simulation::<CLAIMS_AT_A_TIME>(), &expected);
}

#[test]
fn state_that_a_snapshot_does_not_contain_is_found() {
    simulation::<NOTHING>().seeds(100);
    let what = "the state of counter, folded from the first event, is not that from a snapshot";
    find(&simulation::<LOSES_STATE>(), &[what, r#"{"count":"#, ", and not {\"count\":"]);
}

#[test]
fn decision_on_what_a_snapshot_does_not_contain_is_found() {
    let what = "a decision of counter depends on a snapshot of a state";
    find(&simulation::<DECIDES_ON_LOST>(), &[what, "counter/", ", without it Some(["]);
    find(&simulation::<DECIDES_ON_LOST_OF_ANOTHER>(), &[what, "counter/", ", without it Some(["]);
}

#[test]
fn view_that_depends_on_the_order_of_different_aggregates_is_found() {
    let simulation = simulation::<NOTHING>().projections(Projections::new().with::<Last>());
    let simulation = simulation.finally(|world| world.views_equal_their_folds());
    find(&simulation, &["it saw\n  view last, row \"last\": ", ", but its fold is "]);
}

#[test]
fn consumers_that_answer_each_other_forever_are_found() {
    let again = |(): &mut (), message: &Message<'_>| {
        vec![Request::to::<Counter<NOTHING>>(&message.aggregate.id, &Command::Add { number: 1 })]
    };
    find(&simulation::<NOTHING>().consumer("again", again), &["the project does not come to rest"]);
}

/// A key protects one aggregate alone.
#[test]
fn service_that_answers_a_repeated_message_elsewhere_is_found() {
    let simulation = simulation::<NOTHING>().consumer_at_least_once("begun", |deliveries: &mut u32, message| {
        let is_first = message.aggregate.id == "a" && message.outbox.message_seq == 1;
        *deliveries += u32::from(is_first);
        let other = if deliveries.is_multiple_of(2) { "b" } else { "a" };
        is_first.then(|| Request::to::<Counter<NOTHING>>(other, &Command::Add { number: 100 })).into_iter().collect()
    });
    let simulation =
        simulation.always(|world| world.states::<Counter<NOTHING>>().map(|state| state.count / 100).sum::<u32>() <= 1);
    find(&simulation, &["begun receives message 1 of counter/a, delivery 2: Begun {}", r#"Added {"number":100}"#]);
}

#[test]
fn request_of_the_setup_must_be_accepted() {
    let twice = ["a", "a"].map(|id| Request::to::<Counter<NOTHING>>(id, &Command::Begin {}));
    let what = "a request of `.starting_with(…)` changes nothing";
    find(&simulation::<NOTHING>().starting_with(twice), &[what, "it exists already"]);
}

#[test]
fn panic_of_an_invariant_is_shown_with_what_it_saw() {
    let simulation = simulation::<NOTHING>().always(|world| {
        assert!(world.states::<Counter<NOTHING>>().all(|state| state.count < 4), "a counter has more than 3");
        true
    });
    find(&simulation, &["does not hold", ": a counter has more than 3\nAt 2030", "it saw\n  counter/"]);
}

#[test]
fn personal_values_are_shown_as_their_callers_write_them() {
    let register = |_: &mut Random| {
        let (email, name) = (Personal::new("ann@example.com".to_owned()), Personal::new("Ann".to_owned()));
        Request::to::<Customer>("ann", &customer::Command::RegisterCustomer { email, name })
    };
    let nobody = |world: &World<'_>| world.states::<Customer>().count() == 0;
    let values = r#"{"email":"ann@example.com","name":"Ann"}"#;
    let expected = ["sends RegisterCustomer", values, "CustomerRegistered", values, "it saw\n  customer/ann", values];
    find(&simulate(aggregates::registry()).clients(1, register).always(nobody), &expected);
}

#[test]
fn simulation_whose_clients_change_nothing_fails() {
    let again = |_: &mut Random| Request::to::<Counter<NOTHING>>("a", &Command::Begin {});
    let failure = simulation::<NOTHING>().clients(1, again).first_failure(20).unwrap();
    let is_first = failure.starts_with("no request of a client changes anything");
    assert!(is_first && failure.contains(" times: not executed by counter/a: "), "{failure}");
}

#[test]
fn events_are_counted_and_those_that_never_happened_are_named() {
    let begin = |_: &mut Random| Request::to::<Counter<NOTHING>>("a", &Command::Begin {});
    simulate(Registry::new().with::<Counter<NOTHING>>()).clients(1, begin).seeds(10);
    let (test, marker) = ("errors::events_are_counted_and_those_that_never_happened_are_named", "DAYBOOK_COUNTED");
    if std::env::var_os(marker).is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let output = again.args([test, "--exact", "--nocapture"]).env(marker, "").output().unwrap();
        let output = String::from_utf8(output.stderr).unwrap();
        assert!(output.contains("10 schedules of counter: Begun 10, never Added\n"), "{output}");
    }
}
