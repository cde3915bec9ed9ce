//! Attributes for the parts of an aggregate and for a projection, so that each name stands in one place.
//!
//! Invariant: each writes exactly what can be written by hand instead, and reports an error at the user's line.
//!
//! In reading order:
//! - `enums`: what the attributes of the two enums write.
//! - `implementations`: what is added to the implementation of an aggregate or a projection.

mod enums;
mod implementations;

use proc_macro::TokenStream;
use quote::quote;

/// The implementation of an aggregate: its name and its state version, and what is the same for most.
///
/// ```text
/// #[daybook::aggregate("counter", state_version = 2)]
/// impl Aggregate for Counter {
///     fn decide(…) … // and the other functions
/// }
///
/// // writes
///
/// impl Aggregate for Counter {
///     const TYPE: &'static str = "counter";
///     const STATE_VERSION: u32 = 2;
///     const COMMANDS: Commands = Command::COMMANDS;
///     const EVENTS: &'static [EventType] = Event::EVENTS;
///     type State = State;
///     type Command = Command;
///     type Event = Event;
///     …
/// }
/// ```
///
/// Without `state_version`, it is 1. If the implementation itself contains one of these items besides `TYPE`, such as `type State`,
/// that one is not written.
#[proc_macro_attribute]
pub fn aggregate(names: TokenStream, item: TokenStream) -> TokenStream {
    implementations::aggregate(names.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The implementation of a projection: its name, its version, and the aggregates that it follows.
///
/// ```text
/// #[daybook::projection("orders-by-day", version = 2, of = [Order])]
/// impl Projection for OrdersByDay {
///     fn apply(…) …
/// }
///
/// // writes
///
/// impl Projection for OrdersByDay {
///     const NAME: &'static str = "orders-by-day";
///     const VERSION: u32 = 2;
///     fn sources() -> Vec<Source<Self>> {
///         vec![Source::of::<Order>()]
///     }
///     type Row = Row;
///     type Change = Change;
///     …
/// }
/// ```
///
/// Without `version`, it is 1. If the implementation itself contains `VERSION`, `Row` or `Change`, that one is not written.
#[proc_macro_attribute]
pub fn projection(names: TokenStream, item: TokenStream) -> TokenStream {
    implementations::projection(names.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The state of an aggregate, or a type in it: it writes
/// `#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]`.
#[proc_macro_attribute]
pub fn state(nothing: TokenStream, item: TokenStream) -> TokenStream {
    let (nothing, item) = (proc_macro2::TokenStream::from(nothing), proc_macro2::TokenStream::from(item));
    if !nothing.is_empty() {
        return syn::Error::new_spanned(nothing, "this attribute has no arguments").into_compile_error().into();
    }
    quote! {
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #item
    }
    .into()
}

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
    enums::commands(names.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
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
    enums::events(nothing.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
