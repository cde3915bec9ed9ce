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
//!   projections, which pages the kind of the stack has, and from where they can be used. [`stack`]: everything else that
//!   the pages get from a stack, over the trait [`StackSource`](stack::StackSource).
//! - `guard`: which requests are admitted.
//! - `paths`: the addresses of the pages, for links. `request`: what a page reads from a request.
//! - `pages`: the pages by path, one file for each. `schema_fields`: the form of a command,
//!   from its JSON Schema.
//! - What the pages share: `frame`, with the files that they load and the page of a request that fails, `time`
//!   and `json`.

mod console;
mod frame;
mod guard;
mod json;
mod pages;
mod paths;
mod request;
mod schema_fields;
pub mod stack;
mod time;

pub use console::{Console, ConsoleAccess, StackKind, Views, new_token};
pub use guard::is_of_this_machine;
pub use pages::router;
