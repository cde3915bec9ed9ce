//! The output of a command, its progress on standard error, if that is a terminal, and its exit status.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use daybook_event_store::UnreadableRow;
use daybook_operations::messages::MessageOutcome;
use daybook_operations::{OperatorError, Progress};
use daybook_table::keys::partition_name;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

/// Standard output, as text or as JSON, and a progress bar that is hidden while a line is printed.
pub(crate) struct Output<'a> {
    pub(crate) as_json: bool,
    out: &'a mut (dyn Write + Send),
    bar: ProgressLine,
}

impl<'a> Output<'a> {
    pub(crate) fn new(as_json: bool, out: &'a mut (dyn Write + Send), bar: ProgressLine) -> Self {
        Self { as_json, out, bar }
    }

    /// Standard output itself, for a file that is printed.
    pub(crate) fn writer(&mut self) -> &mut (dyn Write + Send) {
        self.out
    }

    pub(crate) fn print(&mut self, json: Value, text: String) -> io::Result<()> {
        self.print_text(&if self.as_json { json.to_string() } else { text })
    }

    pub(crate) fn print_text(&mut self, text: &str) -> io::Result<()> {
        let Self { out, bar, .. } = self;
        bar.0.suspend(|| writeln!(out, "{text}").and_then(|()| out.flush()))
    }

    /// Prints an object with its outcome: `OUTCOME TEXT`.
    pub(crate) fn print_outcome(&mut self, outcome: &str, mut json: Value, text: &str) -> io::Result<()> {
        json["outcome"] = outcome.into();
        self.print(json, format!("{outcome} {text}"))
    }

    pub(crate) fn print_message(&mut self, outcome: &MessageOutcome, mut json: Value, text: &str) -> io::Result<()> {
        json["detail"] = json!(outcome.reason());
        let reason = outcome.reason().map(|reason| format!(" ({reason})")).unwrap_or_default();
        self.print_outcome(outcome.name(), json, &format!("{text}{reason}"))
    }

    pub(crate) fn print_unreadable(&mut self, UnreadableRow { pk, sk, reason }: &UnreadableRow) -> io::Result<()> {
        let aggregate = partition_name(pk);
        let json = json!({"aggregate": aggregate, "item": sk, "detail": reason});
        self.print_outcome("unreadable", json, &format!("{aggregate} {sk}: {reason}"))
    }

    /// Prints the last line of the output: the summary, as text or as `{"summary": counts}`. `how_to_go_on` is set if
    /// the command stopped early.
    pub(crate) fn print_summary(
        &mut self,
        text: &str,
        counts: &impl Serialize,
        how_to_go_on: Option<&str>,
    ) -> io::Result<()> {
        match how_to_go_on {
            None => self.print(json!({ "summary": counts }), text.to_owned()),
            Some(next) => {
                self.print(json!({ "summary": counts, "goOn": next }), format!("{text}; stopped early, {next}"))
            }
        }
    }

    /// Prints the summary as [`print_summary`](Self::print_summary), and returns the exit status.
    pub(crate) fn finish(
        &mut self,
        text: &str,
        counts: &impl Serialize,
        how_to_go_on: Option<&str>,
        is_clean: bool,
    ) -> Ended {
        self.print_summary(text, counts, how_to_go_on)?;
        Ok(Exit::of(how_to_go_on.is_some(), is_clean))
    }
}

const STEPS: u64 = 1000;

/// A progress bar, or a spinner as long as no fraction is known; dropping it clears it.
#[derive(Debug)]
pub(crate) struct ProgressLine(ProgressBar);

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self(ProgressBar::new_spinner().with_style(style("{elapsed_precise} {spinner} {msg}")))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1000")]
    pub(crate) fn progress(&self) -> Progress {
        let bar = self.0.clone();
        Arc::new(move |fraction: Option<f64>, doing| {
            if let Some(fraction) = fraction {
                if bar.length().is_none() {
                    bar.set_length(STEPS);
                    bar.set_style(style("{elapsed_precise} [{bar:30}] {percent:>3}%  {msg}"));
                }
                bar.set_position((fraction.clamp(0.0, 1.0) * STEPS as f64) as u64);
            }
            bar.set_message(doing);
            bar.tick();
        })
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// How a command ended. Scripts depend on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command is done, and nothing is wrong.
    Clean = 0,
    /// The command is done, and has printed findings or items that it could not process.
    Findings = 1,
    /// The command is done, and nothing is wrong with what it could check, but it could not check everything.
    Incomplete = 3,
    Interrupted = 130,
    /// The reader of the output has closed it; shells report the same number for a closed pipe.
    Unread = 141,
}

pub(crate) type Ended = Result<Exit, OperatorError>;

impl Exit {
    pub(crate) fn of(interrupted: bool, is_clean: bool) -> Self {
        match (interrupted, is_clean) {
            (true, _) => Self::Interrupted,
            (false, true) => Self::Clean,
            (false, false) => Self::Findings,
        }
    }

    /// Clean, or unread if the output is a closed pipe.
    pub(crate) fn of_output(written: io::Result<()>) -> io::Result<Self> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Self::Unread),
            written => written.map(|()| Self::Clean),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
