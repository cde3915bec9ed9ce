//! `daybook relay`: the state of the relay.

mod status;

use clap::Subcommand;

use self::status::RelayStatusArgs;
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Print the state of the relay and of its event source mapping.
#[derive(Clone, Debug, Subcommand)]
pub enum RelayCommand {
    Status(RelayStatusArgs),
}

impl RelayCommand {
    /// Runs the command.
    pub async fn run(self, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::Status(args) => status::run(args, context).await,
        }
    }
}
