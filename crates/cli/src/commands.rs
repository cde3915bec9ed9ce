//! The command line: parses a command, runs it, and sets the exit status. Only the entry in `lib.rs` imports this file.

mod console;
mod deadlines;
mod deployment;
mod dev;
mod discarded;
mod dlq;
pub mod documents;
mod forget;
mod history;
mod load;
mod process;
mod project;
mod projection;
mod reads;
mod rebuild;
mod relay;
mod restore;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use daybook_local_stack::{DevError, Project};
use daybook_operations::forget::ForgetOptions;
use daybook_operations::import::ImportOptions;
use daybook_operations::republish::RepublishOptions;
use daybook_operations::restore::RestoreOptions;
use daybook_scaffold::ScaffoldError;

use self::deadlines::DeadlinesCommand;
use self::dev::{DevCommandArgs, DevFunctionsArgs};
use self::discarded::DiscardedCommand;
use self::dlq::DlqCommand;
use self::process::ProcessCommand;
use self::projection::ProjectionCommand;
use self::rebuild::{ClaimsCommand, SnapshotCommand};
use self::relay::RelayCommand;
use crate::operator::{CommandFuture, Ended, Exit, OnStack, OperatorContext, OperatorError, StackArgs};

/// Event sourcing on DynamoDB: the local stack, and the operator commands for a deployed or local stack
#[derive(Debug, Parser)]
#[command(name = "daybook", version = env!("DAYBOOK_VERSION"), args_conflicts_with_subcommands = true)]
pub struct DaybookArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    dev: DevCommandArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the local stack: table, API, relay, snapshotter and bus (the default).
    Dev(DevCommandArgs),
    #[command(hide = true)]
    DevFunctions(DevFunctionsArgs),
    /// Print the OpenAPI 3.1 document of the API; `docs/openapi.json` is a copy.
    Openapi,
    Schemas(documents::SchemasArgs),
    Completions(documents::CompletionsArgs),
    New(project::NewArgs),
    #[command(subcommand)]
    Add(project::AddCommand),
    Upgrade(project::UpgradeArgs),
    #[command(flatten)]
    Operator(Box<OperatorCommand>),
}

#[derive(Clone, Debug, Subcommand)]
pub enum OperatorCommand {
    Get(OnStack<reads::GetArgs>),
    Events(OnStack<reads::EventsArgs>),
    Feed(OnStack<reads::FeedArgs>),
    Console(console::ConsoleArgs),
    Verify(OnStack<verify::VerifyArgs>),
    #[command(subcommand)]
    Claims(ClaimsCommand),
    #[command(subcommand)]
    Deadlines(DeadlinesCommand),
    #[command(subcommand)]
    Dlq(DlqCommand),
    Republish(OnStack<RepublishOptions>),
    Restore(OnStack<RestoreOptions>),
    #[command(subcommand)]
    Discarded(DiscardedCommand),
    #[command(subcommand)]
    Relay(RelayCommand),
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    Load(OnStack<load::LoadArgs>),
    Deploy(deployment::DeployArgs),
    CheckDeployment(OnStack<deployment::CheckDeploymentArgs>),
    Export(OnStack<history::ExportArgs>),
    Import(OnStack<ImportOptions>),
    Forget(OnStack<ForgetOptions>),
    #[command(subcommand)]
    Projection(ProjectionCommand),
    #[command(subcommand)]
    Process(ProcessCommand),
}

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Dev(#[from] DevError),
    #[error(transparent)]
    Scaffold(#[from] ScaffoldError),
    #[error(transparent)]
    Operator(#[from] OperatorError),
}

impl CliError {
    /// The exit status of the process: 1 for the local stack, 2 or 3 for the other commands.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Dev(_) => ExitCode::FAILURE,
            Self::Scaffold(_) => ExitCode::from(2),
            Self::Operator(error) => ExitCode::from(error.exit_code()),
        }
    }
}

impl DaybookArgs {
    /// The collector that gets the traces of the local stack. The other commands record none.
    pub fn collector(&self) -> Option<&str> {
        match &self.command {
            Some(Command::Dev(args)) => args.stack.otlp.as_deref(),
            Some(Command::DevFunctions(args)) => args.otlp.as_deref(),
            Some(_) => None,
            None => self.dev.stack.otlp.as_deref(),
        }
    }

    /// Runs the command, or the local stack when there is none.
    pub async fn run(self, project: Project) -> Result<Exit, CliError> {
        match self.command.unwrap_or(Command::Dev(self.dev)) {
            Command::Dev(args) => Ok(dev::run(args, project).await?),
            Command::DevFunctions(_) => Ok(dev::run_functions(project).await?),
            Command::Openapi => Ok(documents::print_openapi(project)?),
            Command::Schemas(args) => Ok(documents::run(&args, &(project.aggregates)().map_err(OperatorError::from)?)?),
            Command::Completions(args) => Ok(documents::print_completions(args, Self::command())?),
            Command::New(args) => Ok(project::create(&args)?),
            Command::Add(command) => Ok(command.run(project)?),
            Command::Upgrade(args) => Ok(project::upgrade(&args)?),
            Command::Operator(command) => Ok(command.run(&mut OperatorContext::of_process(project)?).await?),
        }
    }
}

impl OperatorCommand {
    pub async fn run(self, context: &mut OperatorContext) -> Ended {
        let command: CommandFuture<'_> = match self {
            Self::Get(command) => command.run(context, reads::get),
            Self::Events(command) => command.run(context, reads::events),
            Self::Feed(command) => command.run(context, reads::feed),
            Self::Console(args) => Box::pin(async move {
                let stack = args.stack.clone();
                context.run(&stack, false, async |session| console::run(args, session).await).await
            }),
            Self::Verify(command) => command.run(context, verify::run),
            Self::Claims(command) => command.run(context),
            Self::Deadlines(command) => command.run(context),
            Self::Dlq(command) => command.run(context),
            Self::Discarded(command) => command.run(context),
            Self::Relay(command) => command.run(context),
            Self::Republish(command) => command.run(context, restore::run_republish),
            Self::Restore(command) => command.run_on_named(context, restore::run_restore),
            Self::Snapshot(command) => command.run(context),
            Self::Load(command) => command.run_on_named(context, load::run),
            Self::Deploy(args) => Box::pin(async move {
                context.run(&StackArgs::default(), false, async |session| deployment::deploy(args, session).await).await
            }),
            Self::CheckDeployment(command) => command.run_on_named(context, deployment::check),
            Self::Export(command) => command.run(context, history::run_export),
            Self::Import(command) => command.run(context, history::run_import),
            Self::Forget(command) => command.run(context, forget::run),
            Self::Projection(command) => command.run(context),
            Self::Process(command) => command.run(context),
        };
        command.await
    }
}
