//! `daybook discarded`: the records that an event source mapping discarded.

mod list;
mod redrive;

use clap::Subcommand;

use self::list::DiscardedListArgs;
use self::redrive::DiscardedRedriveArgs;
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Read the records that an event source mapping discarded to the bucket, and send their messages.
#[derive(Clone, Debug, Subcommand)]
pub enum DiscardedCommand {
    List(DiscardedListArgs),
    Redrive(DiscardedRedriveArgs),
}

impl DiscardedCommand {
    /// Runs the command.
    pub async fn run(self, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::List(args) => list::run(args, context).await,
            Self::Redrive(args) => redrive::run(args, context).await,
        }
    }
}
