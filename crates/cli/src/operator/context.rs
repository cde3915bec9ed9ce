//! The environment of a command.

use std::io::{self, Write};

use clap::Args;
use daybook_decider::Registry;
use daybook_local_stack::Project;
use daybook_local_stack::termination::TerminationSignals;
use daybook_operations::{Interrupt, OperatorError, Stack};
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::Environment;

use super::exit::{Ended, Exit};
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

    /// Runs a command on the stack that the options select, and explains its error.
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
        // Boxed, because the future of all commands would have the size of the largest one, too large for the stack of a test.
        match Box::pin(command(session)).await {
            Err(OperatorError::Output(error)) => Ok(Exit::of_output(Err(error))?),
            Err(OperatorError::Store { source, .. }) if source.is_missing_table() => Err(stack.missing_table().await),
            ended => ended.map_err(|error| args.explain(error, environment)),
        }
    }
}

impl<A: Args> OnStack<A> {
    pub(crate) async fn run(
        self,
        context: &mut OperatorContext,
        command: impl AsyncFnOnce(A, Session<'_>) -> Ended,
    ) -> Ended {
        let Self { args, json, stack } = self;
        context.run(&stack, json, async |session| command(args, session).await).await
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
