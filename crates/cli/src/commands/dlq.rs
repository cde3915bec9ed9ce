//! `daybook dlq`: the messages that the relay could not send.
//!
//! In reading order: `list`, `show`, `redrive`.

mod list;
mod redrive;
mod show;

use clap::Subcommand;

use self::list::DlqListArgs;
use self::redrive::DlqRedriveArgs;
use self::show::DlqShowArgs;
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Read the messages that the relay could not send, and send them again.
///
/// SQS has no way to read a message without receiving it: these commands hide the messages from other readers meanwhile, and
/// count as readers that received them. The messages are put back at once, and at the latest when their time-out ends.
/// Messages that another reader has received are not seen, and a standard queue does not promise that a message is received
/// only once, or at all.
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
