//! What the operator's verbs share.
//!
//! Invariants:
//! - Standard output holds one line for each thing that was found, sent or taken, and a summary at its end; everything
//!   else goes to standard error.
//! - A verb that sends says first what it would send, and does it only with `--yes`.
//! - Ctrl-C ends a verb between two things, never within one, and what is said then is how to go on. A closed pipe behind
//!   the output ends it too, once nothing is left half done.
//!
//! In reading order:
//! - [`target`]: which table, bus and queue.
//! - [`selection`]: which aggregates.
//! - [`pacing`], [`progress`], [`interrupt`]: how fast, how far, and until when.
//! - `walk`: over aggregates, with all of these.
//! - `unsent`: what the bus did not take.

pub(crate) mod dead_letter_queue;
pub mod interrupt;
pub mod pacing;
pub mod progress;
pub mod selection;
pub mod target;
pub(crate) mod unsent;
pub(crate) mod walk;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Subcommand;
use daybook_decider::{RegistrationError, Registry};
use daybook_event_store::StoreError;
use daybook_settings::{Environment, SettingError};
use serde_json::{Value, json};

pub use interrupt::Interrupt;

use self::target::HELP;
use crate::commands::{dlq, republish, snapshot, verify};

/// What an operator can ask for.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Check the rows of aggregates against each other and against the code, and change nothing.
    ///
    /// Numbers without gap or duplicate, metadata equal to the last event, messages gapless and as announced, ids unique, index
    /// keys right, every event readable, snapshots equal to the fold of their events. Prints a line for each thing that is
    /// wrong, `TYPE/ID ROW KIND: what`, and a summary.
    ///
    /// Costs strongly consistent reads of everything that is checked. Aggregates are found by their first events in the index,
    /// without a scan of the table; one whose first event is lost or has lost its index keys is not found that way, and
    /// `--scan` finds it. Messages may be gone two days after their events, when their time to live may have passed.
    #[command(after_long_help = HELP)]
    Verify(verify::Options),
    /// Look at what the relay parked, and send it again.
    ///
    /// SQS has no way to look at a message without receiving it: whoever lists hides the messages from others for that moment,
    /// and counts as one who received them. The messages are put back at once, and at the latest when their time is up.
    /// What another reader has at that moment is not seen, and a standard queue does not promise that a message is seen only
    /// once, or at all, by one look.
    #[command(subcommand)]
    Dlq(dlq::Verb),
    /// Send the messages of a window of time again, with the same ids and the same bytes, from the outbox rows in the table.
    ///
    /// For the day when the stream was not read for longer than it keeps its records (24 hours): then the rows are still in the
    /// table, for as long as OUTBOX_TTL_DAYS says. Says what it would send; `--yes` sends it. Consumers that saw a message
    /// before know it by its message id.
    ///
    /// The events of the window are found in the index, by the time of their ids; the table is not scanned. Clocks of writers
    /// differ, so begin a little before and end a little after. Each aggregate's messages go in their order, beside those
    /// of others. Messages whose rows are gone are counted and named by their events.
    #[command(after_long_help = HELP)]
    Republish(republish::Options),
    /// Take snapshots ahead of time.
    #[command(subcommand)]
    Snapshot(snapshot::Verb),
}

impl Verb {
    /// Carries it out.
    ///
    /// # Errors
    ///
    /// See [`OperateError`].
    pub async fn run(self, operator: &mut Operator) -> Result<Exit, OperateError> {
        match self.carry_out(operator).await {
            Err(OperateError::Output(fault)) => Ok(Exit::of_output(Err(fault))?),
            ended => ended,
        }
    }

    async fn carry_out(self, operator: &mut Operator) -> Result<Exit, OperateError> {
        match self {
            Self::Verify(options) => verify::run(options, operator).await,
            Self::Dlq(verb) => dlq::run(verb, operator).await,
            Self::Republish(options) => republish::run(options, operator).await,
            Self::Snapshot(verb) => snapshot::run(verb, operator).await,
        }
    }
}

/// How a verb ended. The numbers are what scripts go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and nothing is wrong.
    Clean,
    /// 1: done, and something is wrong or left over, which was printed.
    Findings,
    /// 130: ended by Ctrl-C.
    Interrupted,
    /// 141: ended because nobody reads the output any more, as a shell counts a closed pipe.
    Unread,
}

impl Exit {
    /// Clean, unless the output could not be written.
    pub(crate) fn of_output(written: io::Result<()>) -> io::Result<Self> {
        match written {
            Err(fault) if fault.kind() == io::ErrorKind::BrokenPipe => Ok(Self::Unread),
            written => written.map(|()| Self::Clean),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Clean => Self::SUCCESS,
            Exit::Findings => Self::FAILURE,
            Exit::Interrupted => Self::from(130),
            Exit::Unread => Self::from(141),
        }
    }
}

/// Why a verb could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A setting is missing or wrong.
    #[error("{fault}; the stack's output OperatorEnvironment has it{or_give}")]
    Setting {
        /// The option that does the same, if there is one.
        or_give: String,
        /// Which setting.
        fault: SettingError,
    },
    /// The aggregates.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The table.
    #[error("{doing}")]
    Store {
        /// What was being done, and how to go on.
        doing: String,
        /// Why not.
        source: StoreError,
    },
    /// The queue.
    #[error("the queue does not {doing}: {cause}")]
    Queue {
        /// What it was asked to do.
        doing: &'static str,
        /// Its answer.
        cause: String,
    },
    /// The bus.
    #[error("the bus takes nothing more: {cause}; {next}")]
    Bus {
        /// Its last answer.
        cause: String,
        /// How to go on.
        next: String,
    },
    /// Standard output takes nothing more.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl OperateError {
    /// 2 for what the person who typed it can put right on the command line, 3 for what stands in the way.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Setting { .. } => 2,
            Self::Registration(_) | Self::Store { .. } | Self::Queue { .. } | Self::Bus { .. } | Self::Output(_) => 3,
        }
    }
}

/// What a verb works with.
pub struct Operator {
    /// The settings.
    pub environment: Environment,
    /// The aggregates.
    pub registry: Registry,
    /// Standard output.
    pub out: Box<dyn Write + Send>,
    /// Whether somebody wants it to end.
    pub interrupt: Interrupt,
}

impl Operator {
    /// The last line of the output: the summary, in words or as `{"summary": …}`, and how to go on where there is more.
    pub(crate) fn sum_up(&mut self, as_json: bool, text: &str, summary: Value, go_on: Option<&str>) -> io::Result<()> {
        let Some(go_on) = go_on else {
            return if as_json {
                writeln!(self.out, "{}", json!({ "summary": summary }))
            } else {
                writeln!(self.out, "{text}")
            };
        };
        if as_json {
            return writeln!(self.out, "{}", json!({ "summary": summary, "goOn": go_on }));
        }
        writeln!(self.out, "{text}; ended before the end, {go_on}")
    }

    /// At a terminal, or wherever this process runs.
    ///
    /// # Errors
    ///
    /// When the aggregates cannot be registered.
    pub fn of_process() -> Result<Self, OperateError> {
        Ok(Self {
            environment: Environment::of_process(),
            registry: aggregates::registry()?,
            out: Box::new(io::stdout()),
            interrupt: Interrupt::on_ctrl_c(),
        })
    }
}
