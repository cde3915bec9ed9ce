//! The shared parts of operator commands.
//!
//! Invariants:
//! - Standard output contains one line for each finding, message or snapshot, and a summary as its last line; everything else
//!   goes to standard error.
//! - Commands that send or delete messages, or write events, default to a dry run; `--yes` executes them.
//! - Ctrl-C ends a command between two aggregates or two batches of messages, never within one, and the summary then
//!   describes how to go on. A closed output pipe also ends a command. `dlq redrive` first deletes every message that
//!   was sent, and puts the others back.
//!
//! In reading order:
//! - `context`, `error`, `exit`: the environment of a command, its errors, and its exit status.
//! - [`target`]: which table, bus and queue. `credentials`: the account that they are in.
//! - [`moment`]: times on the command line.
//! - `table_check`: whether `EVENT_TYPE_SHARDS` fits the table.
//! - `selection`, `listing`: which aggregates, and their pages.
//! - `stack_reads`: reads of the table with the code of the API.
//! - `pacing`, `progress`, `interrupt`: rate limit, progress on the terminal, Ctrl-C.
//! - [`checkpoint`]: the file from which a later run continues.
//! - `walk`: visits the aggregates of a listing, with all of these.
//! - `history`: files with the events of aggregates.
//! - `dead_letter_message`, `dead_letter_queue`: which dead-letter messages, and the queue that holds them. `queue_reading`:
//!   reads that queue to its end.
//! - `changes_queue`: the queue of the projector. `call_usage`: counts the calls and the units of a command.
//! - `discarded_objects`: the records that event source mappings discarded.
//! - `unsent`: messages that the bus did not accept.
//! - `signed_calls`: calls to services without an SDK client. `relay_state`, `alarms`: what they return about the relay and
//!   the alarms.

pub(crate) mod alarms;
pub(crate) mod call_usage;
pub(crate) mod changes_queue;
pub mod checkpoint;
mod context;
mod credentials;
pub(crate) mod dead_letter_message;
pub(crate) mod dead_letter_queue;
pub(crate) mod discarded_objects;
mod error;
mod exit;
pub(crate) mod history;
mod interrupt;
pub(crate) mod listing;
pub mod moment;
pub(crate) mod pacing;
pub(crate) mod progress;
pub(crate) mod queue_reading;
pub(crate) mod relay_state;
pub(crate) mod selection;
pub(crate) mod signed_calls;
pub(crate) mod stack_reads;
mod table_check;
pub mod target;
pub(crate) mod unsent;
pub(crate) mod walk;

pub use context::OperatorContext;
pub(crate) use context::output_line;
pub use dead_letter_queue::DeadLetterQueue;
pub use error::OperatorError;
pub use exit::Exit;
pub use interrupt::Interrupt;
pub(crate) use table_check::check_shards;
