//! `daybook dlq`: the messages that the relay could not send.
//!
//! In reading order: `list`, `show`, `stats`, `export`, `redrive`, `delete`. `body_file`: the bodies of messages while they are
//! sent.

mod body_file;
mod delete;
mod export;
mod list;
mod redrive;
mod show;
mod stats;

use clap::Subcommand;

pub(super) use self::delete::DlqDeleteArgs;
use self::export::DlqExportArgs;
use self::list::DlqListArgs;
pub use self::redrive::{DlqRedriveArgs, redrive};
use self::show::DlqShowArgs;
use self::stats::DlqStatsArgs;
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Read the messages that the relay could not send, send them again, or delete them.
///
/// SQS can only read a message by receiving it. These commands therefore hide the messages from other readers while they read,
/// and increase the receive counts. At the end they make the messages visible again; after a killed run, the messages become
/// visible when their visibility time-out ends. Messages that another reader has received cannot be read. If SQS counts more
/// messages than a run received, the run prints how many it did not see, and ends with status 1.
#[derive(Clone, Debug, Subcommand)]
pub enum DlqCommand {
    List(DlqListArgs),
    Show(DlqShowArgs),
    Stats(DlqStatsArgs),
    Export(DlqExportArgs),
    Redrive(DlqRedriveArgs),
    Delete(DlqDeleteArgs),
}

impl DlqCommand {
    /// Runs the command.
    pub async fn run(self, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::List(args) => list::run(args, context).await,
            Self::Show(args) => show::run(args, context).await,
            Self::Stats(args) => stats::run(args, context).await,
            Self::Export(args) => export::run(args, context).await,
            Self::Redrive(args) => redrive::run(args, context).await,
            Self::Delete(args) => delete::run(args, context).await,
        }
    }
}
