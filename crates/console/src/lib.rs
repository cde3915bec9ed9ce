//! The console: pages that show what happened in a stack, and why.
//!
//! Invariants:
//! - A page reads only what it shows. Its cost does not depend on how many events an aggregate has.
//! - What people wrote is text, never markup. Pages load nothing from other hosts, and run no script but their own.
//! - A request of another site changes nothing: the host and the origin are checked, and each form carries a token.
//! - The console of a stack on AWS only reads, unless writes are allowed: the other routes do not exist.
//! - Everything can be read without the script.
//!
//! In reading order:
//! - `console`: the [`Console`] and what it needs: the event store with the aggregate types, the views with the
//!   projections, and which pages the kind of the stack has. [`stack`]: everything else that the pages get from a stack,
//!   over the trait [`StackSource`](stack::StackSource).
//! - `router`: the pages by path. `guard`: which requests are admitted. `access`: from where.
//! - `paths`: the addresses of the pages, for links.
//! - `pages`: one file for each page. `failure`: the page of a request that fails.
//! - `query`: the path and the query of an address. `form`: the fields of a posted form. `schema_fields`: the
//!   form of a command, from its JSON Schema.
//! - `difference`: what differs between two states. `test_source`: a test as Rust source.
//! - `markup`: what the pages share: their frame, times, and JSON. `assets`: the stylesheet, the script and the icon.

mod access;
mod assets;
mod console;
mod difference;
mod failure;
mod form;
mod guard;
mod markup;
mod pages;
mod paths;
mod query;
mod router;
mod schema_fields;
pub mod stack;
mod test_source;

pub use access::{Access, new_token};
pub use console::{Console, StackKind};
pub use router::router;
