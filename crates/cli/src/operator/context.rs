//! The environment of a command.

use std::io::{self, Write};
use std::pin::Pin;

use clap::Args;
use daybook_decider::Registry;
use daybook_local_stack::Project;
use daybook_local_stack::termination::TerminationSignals;
use daybook_operations::{Interrupt, OperatorError, Stack};
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::Environment;

use super::exit::{Ended, Exit};
use super::local;
use super::output::{Output, ProgressLine};
use super::target::{STACK_HELP, StackArgs};

/// The settings, aggregates and terminal of a command.
pub struct OperatorContext {
    pub environment: Environment,
    pub registry: Registry,
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    pub out: Box<dyn Write + Send>,
    pub interrupt: Interrupt,
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
        Ok(Self {
            environment: Environment::of_process(),
            registry: (project.aggregates)()?,
            projections: project.projections,
            out: Box::new(io::stdout()),
            interrupt: interrupt_on_signals(),
        })
    }

    /// If neither options nor variables name a stack, selects the local stack of the project that contains the current folder. Of the
    /// given variables, only those of its settings stay: credentials, a region and other endpoints belong to other stacks.
    async fn select(&mut self, args: &StackArgs) -> Result<(), OperatorError> {
        if !args.name_a_stack(&self.environment)
            && let Some((url, variables)) = local::find().await?
        {
            eprintln!("daybook: on the local stack at {url}");
            let given = |(name, value): (String, String)| {
                let is_setting = !name.starts_with("AWS_");
                let given = self.environment.optional(&name).filter(|_| is_setting);
                (name, given.unwrap_or(value))
            };
            self.environment = variables.into_iter().map(given).collect();
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
        let Self { environment, registry, projections, out, interrupt } = self;
        let line = ProgressLine::new();
        let mut stack = Stack::new(args.over(environment), registry.clone(), *projections, interrupt.clone());
        stack.progress = line.progress();
        let session = Session { stack: stack.clone(), out: Output::new(as_json, &mut **out, line) };
        // Boxed for `daybook console`, which does not run in a `CommandFuture`.
        match Box::pin(command(session)).await {
            Err(OperatorError::Output(error)) => Ok(Exit::of_output(Err(error))?),
            Err(OperatorError::Store { source, .. }) if source.is_missing_table() => Err(stack.missing_table().await),
            ended => ended,
        }
    }
}

/// A command that runs. Boxed, because the future of all commands together would be too large for the stack of a test.
type CommandFuture<'a> = Pin<Box<dyn Future<Output = Ended> + 'a>>;

impl<A: Args> OnStack<A> {
    pub(crate) fn run<'a>(
        self,
        context: &'a mut OperatorContext,
        command: impl AsyncFnOnce(A, Session<'_>) -> Ended + 'a,
    ) -> CommandFuture<'a>
    where
        A: 'a,
    {
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
    ) -> CommandFuture<'a>
    where
        A: 'a,
    {
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
