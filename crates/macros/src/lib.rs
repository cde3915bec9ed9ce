//! Attributes for the commands and the events of an aggregate, so that each name stands in one place.
//!
//! Invariant: each writes exactly what can be written by hand instead, and reports an error at the user's line.
//!
//! In reading order:
//! - `commands`, `events`: what the attributes write.

mod commands;
mod events;

use proc_macro::TokenStream;

/// The commands of an aggregate: an enum with the attributes of serde, and `COMMANDS`, which names those that create, update and
/// delete.
///
/// ```text
/// #[daybook::commands(create = Start, delete = Stop)]
/// pub enum Command {
///     Start { from: u32 },
///     Tick {},
///     Stop {},
/// }
///
/// // writes
///
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
/// #[serde(tag = "command", content = "data", deny_unknown_fields)]
/// pub enum Command { … }
///
/// impl Command {
///     pub const COMMANDS: Commands = Commands { create: "Start", update: None, delete: Some("Stop") };
/// }
/// ```
#[proc_macro_attribute]
pub fn commands(names: TokenStream, item: TokenStream) -> TokenStream {
    commands::expand(names.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The events of an aggregate: an enum with the attributes of serde, and `EVENTS`, which has the stored name and version of each. The
/// first variant is the event that creates.
///
/// ```text
/// #[daybook::events]
/// pub enum Event {
///     #[event("CounterStarted", version = 2)]
///     Started { from: u32 },
///     #[event("CounterTicked")]
///     Ticked {},
/// }
///
/// // writes
///
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
/// #[serde(tag = "type", content = "data")]
/// pub enum Event {
///     #[serde(rename = "CounterStarted")]
///     Started { from: u32 },
///     …
/// }
///
/// impl Event {
///     pub const EVENTS: &'static [EventType] = &[EventType::new("CounterStarted", 2), EventType::new("CounterTicked", 1)];
/// }
/// ```
///
/// `version` is that of the form that is written, 1 if it is left out. `reads = 3` adds `.reads(3)`, the latest form that is read, and
/// `also = [("Begun", 1)]` adds `.also_stored_as(&[("Begun", 1)])`, its earlier and coming names. The crates `serde` and `schemars` must
/// be dependencies under these names.
#[proc_macro_attribute]
pub fn events(nothing: TokenStream, item: TokenStream) -> TokenStream {
    events::expand(nothing.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
