//! What the commands that work on a stack share: the options and variables that select it, and how they run on it. What they do is
//! in the crate `daybook-operations`.
//!
//! Invariants:
//! - Standard output contains one line for each finding, message or snapshot, and a summary as its last line; everything else
//!   goes to standard error.
//! - Commands that send or delete messages, or write events, default to a dry run; `--yes` executes them.
//! - After Ctrl-C, the summary describes how to go on. A closed output pipe also ends a command.

pub(crate) mod local;
pub(crate) mod output;

use std::io::{self, Write};
use std::pin::Pin;

use clap::Args;
use daybook_aws_clients::DYNAMODB_ENDPOINT;
use daybook_local_stack::Project;
use daybook_local_stack::termination::TerminationSignals;
pub use daybook_operations::{Interrupt, OperatorError, Stack, StackQueue};
use daybook_settings::Environment;

pub(crate) use self::output::Ended;
pub use self::output::Exit;
use self::output::{Output, ProgressLine};

// The options of a command, and those that select its stack. A documentation comment would replace the help text of the command.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct OnStack<A: Args> {
    #[command(flatten)]
    args: A,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    stack: StackArgs,
}

// The options of a command that has only those that select the stack. A documentation comment would be the help text of a
// command without one.
#[derive(Clone, Copy, Debug, Args)]
pub struct NoArgs {}

/// What a command works with: the stack, and the output.
pub(crate) struct Session<'a> {
    pub(crate) stack: Stack,
    pub(crate) out: Output<'a>,
}

/// A command that runs. Boxed, because the future of all commands together would be too large for the stack of a test.
pub(crate) type CommandFuture<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

impl<A: Args + 'static> OnStack<A> {
    /// Runs a command on the stack that options and variables name, or if none do, on the local stack of the project.
    pub(crate) fn run<'a>(
        self,
        context: &'a mut OperatorContext,
        command: impl AsyncFnOnce(A, Session<'_>) -> Ended + 'a,
    ) -> CommandFuture<'a> {
        Box::pin(async move {
            context.select(&self.stack).await?;
            self.run_on_named(context, command).await
        })
    }

    /// Runs a command on the stack that options and variables name. Without them, it selects no local stack: most of these commands
    /// are for a deployed one.
    pub(crate) fn run_on_named<'a>(
        self,
        context: &'a mut OperatorContext,
        command: impl AsyncFnOnce(A, Session<'_>) -> Ended + 'a,
    ) -> CommandFuture<'a> {
        let Self { args, json, stack } = self;
        Box::pin(async move { context.run(&stack, json, async |session| command(args, session).await).await })
    }
}

/// The stack that the environment names, and the terminal of a command.
pub struct OperatorContext {
    pub stack: Stack,
    pub out: Box<dyn Write + Send>,
}

impl OperatorContext {
    pub fn of_process(project: Project) -> Result<Self, OperatorError> {
        let (environment, registry) = (Environment::of_process(), (project.aggregates)()?);
        let stack = Stack::new(environment, registry, project.projections, interrupt_on_signals());
        Ok(Self { stack, out: Box::new(io::stdout()) })
    }

    /// If neither options nor variables name a stack, selects the local stack of the project that contains the current folder. Of the
    /// given variables, only those of its settings stay: credentials, a region and other endpoints belong to other stacks.
    async fn select(&mut self, args: &StackArgs) -> Result<(), OperatorError> {
        let environment = args.over(&self.stack.environment);
        if STACK_VARIABLES.iter().all(|name| environment.optional(name).is_none())
            && let Some((url, variables)) = local::find().await?
        {
            eprintln!("daybook: on the local stack at {url}");
            let given = |(name, value): (String, String)| {
                let is_setting = !name.starts_with("AWS_");
                let given = self.stack.environment.optional(&name).filter(|_| is_setting);
                (name, given.unwrap_or(value))
            };
            self.stack.environment = variables.into_iter().map(given).collect();
        }
        Ok(())
    }

    /// Runs a command on the stack that options and variables name.
    pub(crate) async fn run(
        &mut self,
        args: &StackArgs,
        as_json: bool,
        command: impl AsyncFnOnce(Session<'_>) -> Ended,
    ) -> Ended {
        let (line, environment) = (ProgressLine::new(), args.over(&self.stack.environment));
        let stack = Stack { environment, progress: line.progress(), ..self.stack.clone() };
        let session = Session { stack: stack.clone(), out: Output::new(as_json, &mut *self.out, line) };
        // Boxed here too, so that the future of this function is small.
        match Box::pin(command(session)).await {
            Err(OperatorError::Output(error)) => Ok(Exit::of_output(Err(error))?),
            Err(OperatorError::Store { source, .. }) if source.is_missing_table() => Err(stack.missing_table().await),
            ended => ended,
        }
    }
}

/// The variables that name a stack, or a part of it.
const STACK_VARIABLES: [&str; 13] = [
    "STACK",
    "TABLE_NAME",
    "EVENT_TYPE_SHARDS",
    "EVENT_BUS_NAME",
    "EVENT_SOURCE",
    "DLQ_URL",
    "VIEWS_TABLE_NAME",
    "CHANGES_QUEUE_URL",
    "REACTIONS_QUEUE_URL",
    "DISCARDED_RECORDS_BUCKET",
    "STREAM_RELAY_NAME",
    "STREAM_RELAY_LOGS",
    DYNAMODB_ENDPOINT,
];

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Default, Args)]
pub struct StackArgs {
    /// The table.
    #[arg(long, env = "TABLE_NAME", value_name = "NAME", hide_env_values = true, help_heading = "Which stack")]
    table: Option<String>,
    /// The name of the stack, for its alarms, and for `restore`.
    #[arg(long, env = "STACK", value_name = "NAME", hide_env_values = true, help_heading = "Which stack")]
    stack: Option<String>,
}

impl StackArgs {
    /// The environment, with the options in place of their variables.
    fn over(&self, environment: &Environment) -> Environment {
        environment.clone().with("TABLE_NAME", self.table.clone()).with("STACK", self.stack.clone())
    }
}

pub(crate) const STACK_HELP: &str = "\
To select the stack:
  A deployed stack: its output OperatorEnvironment contains all settings. Load them into a separate shell that has access
  keys as credentials (docs/runbook.md, \"Before you begin\"):
    export STACK=daybook-prod
    export STACK $(aws cloudformation describe-stacks --stack-name $STACK --output text \\
      --query \"Stacks[0].Outputs[?OutputKey=='OperatorEnvironment'].OutputValue\")
  The local stack of `daybook dev`, in another shell than the one that runs it: most commands find it in the folder of its
  project and below, if no option and no variable names a stack. This selects it for all of them, and one of several:
    eval \"$(curl -s localhost:3000/_dev/environment)\"

Exit status: 0 success, and nothing is wrong; 1 something is wrong or left over, and was printed; 2 a wrong option or
setting, or no region or credentials; 3 AWS did not allow or complete the operation or part of it, or the output could not
be written; 130 Ctrl-C or SIGTERM ended the command; 141 the reader of the output has closed it.";

/// An interrupt that Ctrl-C or SIGTERM sets: the first lets a command finish its current items, the second ends the process at
/// once.
fn interrupt_on_signals() -> Interrupt {
    let interrupt = Interrupt::new();
    // Without a signal handler, the signal itself ends the process.
    let Ok(mut signals) = TerminationSignals::listen() else { return interrupt };
    let set = interrupt.clone();
    tokio::spawn(async move {
        signals.next().await;
        eprintln!("daybook: finishing the current items; press Ctrl-C again to end at once");
        set.cancel();
        signals.next().await;
        std::process::exit(130);
    });
    interrupt
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stack: StackArgs,
    }

    #[test]
    fn each_option_replaces_its_variable() {
        let args = Line::parse_from(["daybook", "--table", "t", "--stack", "s"]).stack;
        let environment = args.over(&[("TABLE_NAME", "other"), ("EPOCH", "3")].into_iter().collect());
        for (name, expected) in [("TABLE_NAME", "t"), ("STACK", "s"), ("EPOCH", "3")] {
            assert_eq!(environment.optional(name).as_deref(), Some(expected));
        }
    }
}
