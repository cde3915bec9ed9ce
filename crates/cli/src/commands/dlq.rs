//! `daybook dlq`: the messages that the relay could not send.
//!
//! In reading order: `list`, `show`, `redrive`.

mod list;
mod redrive;
mod show;

use clap::Subcommand;

use self::list::DlqListArgs;
pub use self::redrive::{DlqRedriveArgs, redrive};
use self::show::DlqShowArgs;
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Read the messages that the relay could not send, and send them again.
///
/// SQS can only read a message by receiving it. These commands therefore hide the messages from other readers while they read,
/// and increase the receive counts. At the end they make the messages visible again; after a killed run, the messages become
/// visible when their visibility time-out ends. Messages that another reader has received are not visible. A standard queue
/// may deliver a message more than once, and one read may miss messages.
#[derive(Clone, Debug, Subcommand)]
pub enum DlqCommand {
    List(DlqListArgs),
    Show(DlqShowArgs),
    Redrive(DlqRedriveArgs),
}

impl DlqCommand {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// See [`OperatorError`].
    pub async fn run(self, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::List(args) => list::run(args, context).await,
            Self::Show(args) => show::run(args, context).await,
            Self::Redrive(args) => redrive::run(args, context).await,
        }
    }
}
