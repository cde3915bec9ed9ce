//! Daybook, an event-sourcing suite for AWS: what the code of a project needs, in one dependency.
//!
//! Invariant: without features, this crate contains only the pure kernels, which perform no I/O and use no AWS crate. So the
//! crates with the aggregates and the projections compile quickly, and their tests need no database. The `daybook` command
//! is a crate of its own, `daybook-cli`: Cargo enables a feature for all crates that it builds together, so as a feature
//! here, it would bring its database engine into the build of the functions.
//!
//! In reading order:
//! - [`Aggregate`]: the trait of an aggregate, with the types of its methods; [`Registry`]: the aggregates of a project.
//! - [`given`]: given/when/then for the tests beside an aggregate.
//! - `golden` (feature `golden`): tests that stored events and states stay readable.
//! - [`mod@projection`]: read models, with tests of the same form.
//! - `simulation` (feature `simulation`): tests of the project under races, crashes, repeats and delays.
//! - `command_handler`, `stream_relay`, `snapshotter`, `projector`, `reactor` (feature `functions`): `run`, the `main` of each
//!   function.
//! - `consumer` (feature `consumer`): applies each message once and in order, in a service that receives messages.
//!
//! # Example
//!
//! An aggregate with one command and one event, without the attributes [`macro@state`], [`macro@commands`], [`macro@events`] and
//! [`macro@aggregate`], which write what stands here above the types, and the constants and types of the implementation:
//!
//! ```
//! use daybook::given::given;
//! use daybook::{Aggregate, Commands, Context, Decision, EventType, Registry, Rejection};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// The aggregate `door`.
//! struct Door;
//!
//! /// The state of a door.
//! #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
//! struct State {
//!     label: String,
//! }
//!
//! /// The commands of a door.
//! #[derive(Clone, Deserialize, JsonSchema)]
//! #[serde(tag = "command", content = "data", deny_unknown_fields)]
//! enum Command {
//!     Build { label: String },
//! }
//!
//! /// The events of a door.
//! #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
//! #[serde(tag = "type", content = "data")]
//! enum Event {
//!     DoorBuilt { label: String },
//! }
//!
//! impl Aggregate for Door {
//!     const TYPE: &'static str = "door";
//!     const STATE_VERSION: u32 = 1;
//!     const COMMANDS: Commands = Commands { create: "Build", update: None, delete: None };
//!     const EVENTS: &'static [EventType] = &[EventType::new("DoorBuilt", 1)];
//!
//!     type State = State;
//!     type Command = Command;
//!     type Event = Event;
//!
//!     fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
//!         let Command::Build { label } = command;
//!         if label.is_empty() {
//!             return Err(Rejection::new("LabelMissing", "a door needs a label"));
//!         }
//!         Ok(vec![Event::DoorBuilt { label }])
//!     }
//!
//!     fn evolve(_: State, event: &Event) -> State {
//!         let Event::DoorBuilt { label } = event.clone();
//!         State { label }
//!     }
//! }
//!
//! Registry::new().with::<Door>()?;
//! let built = Event::DoorBuilt { label: "front".into() };
//! given::<Door>([]).when(Command::Build { label: "front".into() }).then([built]).announces(["DoorBuilt"]);
//! given::<Door>([]).when(Command::Build { label: String::new() }).then_rejected("LabelMissing", []);
//! # Ok::<(), daybook::RegistrationError>(())
//! ```

#![warn(missing_docs)]

#[cfg(feature = "consumer")]
pub mod consumer;
#[cfg(doctest)]
mod mistakes;

pub use daybook_decider::given;
pub use daybook_decider::{
    Access, Aggregate, Answer, Authorization, Caller, Claim, CommandRejection, Commands, Context, Deadline, Decision,
    Dispatch, EventType, FollowedEvent, IamIdentity, Json, Message, Meta, Personal, PoolUser, Reacts, RecordedEvent,
    RegistrationError, Registry, Rejection, Sources, StoredEvent, Upcast,
};
#[cfg(feature = "golden")]
#[doc(inline)]
pub use daybook_golden as golden;
pub use daybook_macros::{aggregate, commands, events, projection, state};
#[doc(inline)]
pub use daybook_projection as projection;
#[cfg(feature = "simulation")]
#[doc(inline)]
pub use daybook_simulation as simulation;
/// Times and durations: `now` of a command, and the time of a [`Deadline`].
pub use jiff;

/// The function behind the HTTP API.
#[cfg(feature = "functions")]
pub mod command_handler {
    pub use daybook_command_handler::run;
}

/// The function that folds new events into the rows of views.
#[cfg(feature = "functions")]
pub mod projector {
    pub use daybook_projector::{EventTarget, Projector, TargetError, TargetEvent, run, run_with};
}

/// The function that sends aggregates the commands of their deadlines that are due.
#[cfg(feature = "functions")]
pub mod reactor {
    pub use daybook_reactor::run;
}

/// The function that takes snapshots of aggregates with many events.
#[cfg(feature = "functions")]
pub mod snapshotter {
    pub use daybook_snapshotter::run;
}

/// The function that publishes the messages of new events to the bus.
#[cfg(feature = "functions")]
pub mod stream_relay {
    pub use daybook_stream_relay::run;
}
