//! Mistakes that the compiler reports. The first aggregate has none, and each other one differs from it in one place.
//!
//! ```
//! use daybook::{Aggregate, Context, Decision};
//! struct Door;
//! #[daybook::state]
//! struct State { open: bool }
//! #[daybook::commands(create = Build)]
//! enum Command { Build {} }
//! #[daybook::events]
//! enum Event { #[event("DoorBuilt")] Built {}, #[event("DoorOpened")] Opened {} }
//! #[daybook::aggregate("door")]
//! impl Aggregate for Door {
//!     fn decide(_: &State, _: Command, _: &Context<'_, Event>) -> Decision<Event> { Ok(vec![Event::Built {}]) }
//!     fn evolve(_: State, event: &Event) -> State {
//!         match event { Event::Built {} => State { open: false }, Event::Opened {} => State { open: true } }
//!     }
//! }
//! ```
//!
//! An event that `evolve` does not handle:
//!
//! ```compile_fail,E0004
//! use daybook::{Aggregate, Context, Decision};
//! struct Door;
//! #[daybook::state]
//! struct State { open: bool }
//! #[daybook::commands(create = Build)]
//! enum Command { Build {} }
//! #[daybook::events]
//! enum Event { #[event("DoorBuilt")] Built {}, #[event("DoorOpened")] Opened {} }
//! #[daybook::aggregate("door")]
//! impl Aggregate for Door {
//!     fn decide(_: &State, _: Command, _: &Context<'_, Event>) -> Decision<Event> { Ok(vec![Event::Built {}]) }
//!     fn evolve(_: State, event: &Event) -> State {
//!         match event { Event::Built {} => State { open: false } }
//!     }
//! }
//! ```
//!
//! A state without its attribute, and one that cannot be stored:
//!
//! ```compile_fail,E0277
//! use daybook::{Aggregate, Context, Decision};
//! struct Door;
//! struct State { open: bool }
//! #[daybook::commands(create = Build)]
//! enum Command { Build {} }
//! #[daybook::events]
//! enum Event { #[event("DoorBuilt")] Built {} }
//! #[daybook::aggregate("door")]
//! impl Aggregate for Door {
//!     fn decide(_: &State, _: Command, _: &Context<'_, Event>) -> Decision<Event> { Ok(vec![Event::Built {}]) }
//!     fn evolve(_: State, _: &Event) -> State { State { open: false } }
//! }
//! ```
//!
//! ```compile_fail,E0277
//! #[derive(Clone, Debug, Default, PartialEq)]
//! struct Hinge;
//! #[daybook::state]
//! struct State { open: bool, hinge: Hinge }
//! ```
//!
//! A command that creates, and does not exist; an event without a stored name; an attribute in the wrong place:
//!
//! ```compile_fail
//! #[daybook::commands(create = Biuld)]
//! enum Command { Build {} }
//! ```
//!
//! ```compile_fail
//! #[daybook::events]
//! enum Event { #[event("DoorBuilt")] Built {}, Opened {} }
//! ```
//!
//! ```compile_fail
//! #[daybook::aggregate("door")]
//! struct Door;
//! ```
