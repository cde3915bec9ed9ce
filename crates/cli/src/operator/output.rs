//! The output of a command.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::progress::ProgressLine;

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

    /// Prints a line.
    pub(crate) fn print(&mut self, json: Value, text: String) -> io::Result<()> {
        self.print_text(&if self.as_json { json.to_string() } else { text })
    }

    /// Prints a text that is the same with `--json`.
    pub(crate) fn print_text(&mut self, text: &str) -> io::Result<()> {
        let Self { out, bar, .. } = self;
        bar.suspend(|| writeln!(out, "{text}").and_then(|()| out.flush()))
    }

    /// Prints an object with its outcome: `OUTCOME TEXT`.
    pub(crate) fn print_outcome(&mut self, outcome: &str, mut json: Value, text: &str) -> io::Result<()> {
        json["outcome"] = outcome.into();
        self.print(json, format!("{outcome} {text}"))
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
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
