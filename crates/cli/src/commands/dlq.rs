//! `daybook dlq`: what the relay parked, and the way back.
//!
//! In reading order:
//! - [`list`], [`show`], [`redrive`]: the verbs.

pub mod list;
pub mod redrive;
pub mod show;

use clap::Subcommand;

use crate::operator::target::HELP;
use crate::operator::{Exit, OperateError, Operator};

/// What can be done with the dead-letter queue.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List what is in the dead-letter queue, a line each, by aggregate and number.
    ///
    /// A line holds SQS's id, the aggregate, the message's number, name and id, and why it was parked. The messages are hidden
    /// from others while this looks, and then shown again; nothing is deleted. SQS promises neither that one look sees all
    /// messages nor that its counts are exact, and what another reader has just received is not seen.
    #[command(after_long_help = HELP)]
    List(list::Options),
    /// Show one letter whole: the outbox row or the stream record, the error, the attempts, and where it was in the stream.
    #[command(after_long_help = HELP)]
    Show(show::Options),
    /// Send parked messages again, with the same ids and the same bytes, and delete from the queue what the bus took.
    ///
    /// Says what it would do; `--yes` does it. Each aggregate's messages go in their order, as far as they are in the queue.
    /// What the bus refuses again stays in the queue, and so does what is no whole message, such as a record that could not be
    /// read. A run that ends before its end has lost nothing: what was sent and not yet deleted is sent again by the next run,
    /// and consumers know it by its message id.
    #[command(after_long_help = HELP)]
    Redrive(redrive::Options),
}

/// Carries the verb out.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn run(verb: Verb, operator: &mut Operator) -> Result<Exit, OperateError> {
    match verb {
        Verb::List(options) => list::run(options, operator).await,
        Verb::Show(options) => show::run(options, operator).await,
        Verb::Redrive(options) => redrive::run(options, operator).await,
    }
}
