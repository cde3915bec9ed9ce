//! The environment of an operator command.

use std::io::{self, Write};

use daybook_decider::Registry;
use daybook_local_stack::Project;
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::Environment;
use serde::Serialize;
use serde_json::{Value, json};

use super::error::OperatorError;
use super::interrupt::Interrupt;

/// The settings, aggregates and terminal of an operator command.
pub struct OperatorContext {
    /// The settings.
    pub environment: Environment,
    /// The aggregates.
    pub registry: Registry,
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    /// Standard output.
    pub out: Box<dyn Write + Send>,
    /// Whether the command must end.
    pub interrupt: Interrupt,
}

impl OperatorContext {
    /// The context of this process.
    pub fn of_process(project: Project) -> Result<Self, OperatorError> {
        Ok(Self {
            environment: Environment::of_process(),
            registry: (project.aggregates)()?,
            projections: project.projections,
            out: Box::new(io::stdout()),
            interrupt: Interrupt::on_signals(),
        })
    }

    /// Prints the last line of the output: the summary, as text or as `{"summary": counts}`. `how_to_go_on` is set if
    /// the command stopped early.
    pub(crate) fn print_summary(
        &mut self,
        as_json: bool,
        text: &str,
        counts: &impl Serialize,
        how_to_go_on: Option<&str>,
    ) -> io::Result<()> {
        let (json, text) = match how_to_go_on {
            None => (json!({ "summary": counts }), text.to_owned()),
            Some(next) => (json!({ "summary": counts, "goOn": next }), format!("{text}; stopped early, {next}")),
        };
        writeln!(self.out, "{}", output_line(as_json, json, text))
    }
}

pub(crate) fn output_line(as_json: bool, json: Value, text: String) -> String {
    if as_json { json.to_string() } else { text }
}
