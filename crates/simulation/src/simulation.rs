//! The description of a simulation: the project's code, the requests of its clients, and its invariants.

use std::fmt::{Debug, Display};
use std::panic::Location;

use daybook_decider::Registry;
use daybook_decider::panics::{calling, catch};
use daybook_decider::record::timestamp;
use daybook_projection::Projections;

use crate::consumer::{ConsumerCode, Message};
use crate::fault::Fault;
use crate::random::Random;
use crate::request::Request;
use crate::world::World;

/// The simulation of a project.
#[must_use = "`.seeds(…)` runs it"]
pub struct Simulation {
    pub(crate) registry: Registry,
    pub(crate) projections: Projections,
    pub(crate) consumers: Vec<ConsumerCode>,
    pub(crate) first: Vec<Request>,
    pub(crate) clients: u64,
    pub(crate) request: Box<dyn Fn(&mut Random) -> Request>,
    pub(crate) always: Vec<Invariant>,
    pub(crate) finally: Vec<Invariant>,
}

/// Describes the simulation of a project with these aggregates. Panics if they cannot be registered.
#[track_caller]
pub fn simulate(registry: Result<Registry, impl Display>) -> Simulation {
    Simulation {
        registry: registry.unwrap_or_else(|error| panic!("{error}")),
        projections: Projections::new(),
        consumers: Vec::new(),
        first: Vec::new(),
        clients: 1,
        request: Box::new(|_| panic!("`.clients(…)` is missing")),
        always: Vec::new(),
        finally: Vec::new(),
    }
}

impl Simulation {
    /// Sets the projections. Each event is folded once, sooner or later. Panics if they cannot be registered.
    #[track_caller]
    pub fn projections(self, projections: Result<Projections, impl Display>) -> Self {
        Self { projections: projections.unwrap_or_else(|error| panic!("{error}")), ..self }
    }

    /// Adds a consumer that applies each message once and those of an aggregate in order, as the crate `daybook-consumer` does.
    /// `handle` changes the rows, and returns the requests to send, each of which is repeated until it is answered. Panics if
    /// another consumer has this name.
    #[track_caller]
    pub fn consumer<R: Default + Debug + 'static>(
        self,
        name: &'static str,
        handle: impl Fn(&mut R, &Message<'_>) -> Vec<Request> + 'static,
    ) -> Self {
        self.add(ConsumerCode::new(name, true, handle))
    }

    /// Adds a consumer with code of its own behind the bus: messages arrive at least once and in any order, and it may crash after
    /// it has changed its rows and before it sends. Panics if another consumer has this name.
    #[track_caller]
    pub fn consumer_at_least_once<R: Default + Debug + 'static>(
        self,
        name: &'static str,
        handle: impl Fn(&mut R, &Message<'_>) -> Vec<Request> + 'static,
    ) -> Self {
        self.add(ConsumerCode::new(name, false, handle))
    }

    #[track_caller]
    fn add(mut self, code: ConsumerCode) -> Self {
        assert!(self.consumers.iter().all(|other| other.name != code.name), "two consumers are named {:?}", code.name);
        self.consumers.push(code);
        self
    }

    /// Sets the requests that are executed before all others, one after the other.
    pub fn starting_with(self, requests: impl IntoIterator<Item = Request>) -> Self {
        Self { first: requests.into_iter().collect(), ..self }
    }

    /// Sets the number of clients, 1 to 8, and the function that makes their requests. A client does not wait for an answer
    /// before its next request. Panics if the number is another.
    #[track_caller]
    pub fn clients(self, clients: u64, request: impl Fn(&mut Random) -> Request + 'static) -> Self {
        assert!((1..=8).contains(&clients), "there are {clients} clients, expected 1 to 8");
        Self { clients, request: Box::new(request), ..self }
    }

    /// Adds what must hold after each step.
    #[track_caller]
    pub fn always(mut self, invariant: impl Fn(&World<'_>) -> bool + 'static) -> Self {
        self.always.push(Invariant { check: Box::new(invariant), place: Location::caller() });
        self
    }

    /// Adds what must hold at the end: when all requests are answered, all messages applied, all events folded, and no process
    /// has input, a dispatch or a deadline any more. A process that waits then, waits for ever.
    #[track_caller]
    pub fn finally(mut self, invariant: impl Fn(&World<'_>) -> bool + 'static) -> Self {
        self.finally.push(Invariant { check: Box::new(invariant), place: Location::caller() });
        self
    }
}

/// A function that must return true.
pub(crate) struct Invariant {
    check: Box<dyn Fn(&World<'_>) -> bool>,
    /// Its place in the project's code.
    place: &'static Location<'static>,
}

impl Invariant {
    /// Returns what the invariant has read, if it does not hold.
    pub(crate) fn check(&self, world: &World<'_>) -> Result<(), Fault> {
        world.seen.take();
        let panicked = match catch("the simulation", || calling("an invariant", || (self.check)(world))) {
            Ok(true) => return Ok(()),
            Ok(false) => String::new(),
            Err(panic) => format!("It panicked at {}: {}\n", panic.location, panic.message),
        };
        let seen: String = world.seen.take().iter().map(|(name, value)| format!("  {name}: {value}\n")).collect();
        let what = format!("the invariant at {}:{} does not hold", self.place.file(), self.place.line());
        Err(Fault::new(what, format!("{panicked}At {}, it saw\n{seen}", timestamp(world.now))))
    }
}
