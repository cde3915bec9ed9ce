//! `daybook projection`: fills views, lets readers use another version of one, and resumes suspended aggregates.

mod drop;
mod named;
mod rebuild;
mod resume;
mod status;
mod suspended;
mod switch;

use clap::Subcommand;
use daybook_projection::Projections;

use self::drop::ProjectionDropArgs;
use self::rebuild::ProjectionRebuildArgs;
use self::resume::ProjectionResumeArgs;
use self::status::ProjectionStatusArgs;
use self::suspended::ProjectionSuspendedArgs;
use self::switch::ProjectionSwitchArgs;
use crate::operator::target::StackArgs;
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Fill a view, switch its readers to another version, and resume suspended aggregates.
///
/// A view has a name and a version. To change a projection without downtime, register the new version beside the old one,
/// deploy, then run `rebuild`, `switch`, and, after a release without the old version, `drop`. docs/read-models.md describes
/// each step.
#[derive(Clone, Debug, Subcommand)]
pub enum ProjectionCommand {
    Rebuild(ProjectionRebuildArgs),
    Status(ProjectionStatusArgs),
    Switch(ProjectionSwitchArgs),
    Drop(ProjectionDropArgs),
    Suspended(ProjectionSuspendedArgs),
    Resume(ProjectionResumeArgs),
}

impl ProjectionCommand {
    /// Runs the command, with the projections that the code registers.
    pub async fn run(self, projections: &Projections, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::Rebuild(args) => rebuild::run(args, projections, context).await,
            Self::Status(args) => status::run(args, projections, context).await,
            Self::Switch(args) => switch::run(args, projections, context).await,
            Self::Drop(args) => drop::run(args, projections, context).await,
            Self::Suspended(args) => suspended::run(args, context).await,
            Self::Resume(args) => resume::run(args, projections, context).await,
        }
    }

    /// The stack, if the command reads the table of events.
    pub(super) fn stack(&self) -> Option<&StackArgs> {
        match self {
            Self::Rebuild(args) => Some(&args.stack),
            Self::Status(_) | Self::Switch(_) | Self::Drop(_) | Self::Suspended(_) | Self::Resume(_) => None,
        }
    }
}
