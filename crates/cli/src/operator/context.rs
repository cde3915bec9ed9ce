//! The environment of a command.

use std::io::{self, Write};
use std::pin::Pin;

use clap::Args;
use daybook_local_stack::Project;
use daybook_local_stack::termination::TerminationSignals;
use daybook_operations::{Interrupt, OperatorError, Stack};
use daybook_settings::Environment;

use super::exit::{Ended, Exit};
use super::local;
use super::output::{Output, ProgressLine};
use super::target::{STACK_HELP, StackArgs};

/// The stack that the environment names, and the terminal of a command.
pub struct OperatorContext {
    pub stack: Stack,
    pub out: Box<dyn Write + Send>,
}

// Without a documentation comment: it would replace the help text of the command that contains the options.
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

pub(crate) struct Session<'a> {
    pub(crate) stack: Stack,
    pub(crate) out: Output<'a>,
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
        if !args.name_a_stack(&self.stack.environment)
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

/// A command that runs. Boxed, because the future of all commands together would be too large for the stack of a test.
pub(crate) type CommandFuture<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

// The options of a command that has only those that select the stack. A documentation comment would be the help text of a
// command without one.
#[derive(Clone, Copy, Debug, Args)]
pub struct NoArgs {}

impl<A: Args + 'static> OnStack<A> {
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

    /// Runs a command for which the local stack is not selected by itself, such as one that only a deployed stack has.
    pub(crate) fn run_on_named<'a>(
        self,
        context: &'a mut OperatorContext,
        command: impl AsyncFnOnce(A, Session<'_>) -> Ended + 'a,
    ) -> CommandFuture<'a> {
        let Self { args, json, stack } = self;
        Box::pin(async move { context.run(&stack, json, async |session| command(args, session).await).await })
    }
}

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
