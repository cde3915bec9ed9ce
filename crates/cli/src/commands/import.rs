//! `daybook import`.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use daybook_function_runtime::with_causes;
use daybook_operations::history::source::{LineError, MAX_ERRORS};
use daybook_operations::import::{ImportCounts, ImportEnd, ImportOptions, ImportOutcome, Imported, import};
use serde_json::json;

use crate::operator::args::CheckpointArgs;
use crate::operator::output::Output;
use crate::operator::{Exit, OperatorError, Session};

/// Write the events of a history file into the table, with their numbers, times, ids and data.
///
/// FILE is a file of `daybook export`, or the history of another system as lines of JSON; `-` is standard input. A line needs
/// aggregateType, aggregateId, eventType and data: {"aggregateType":"todo","aggregateId":"1","eventType":"TodoCreated",
/// "data":{…},"occurredAt":"2026-11-21T10:00:00.123Z"}. docs/operating.md describes all members.
///
/// A dry run by default: it checks the file and compares it with the table. `--yes` writes the events. Nothing is written if a
/// line is wrong or if the code cannot read an event. An aggregate that contradicts the file is reported and left as it
/// is. Afterwards every event is read back and compared, and the rows are checked as by `daybook verify`.
///
/// A run that was ended, even by a crash, can be repeated: it compares the events that are in the table and writes the
/// others. The stream functions see imported events: snapshots are taken, and messages are sent with `--publish`. Readers
/// of feeds who are past the times of the events do not see them.
#[derive(Clone, Debug, Args)]
pub struct ImportArgs {
    /// The file, or `-` for standard input.
    file: String,
    /// Publish the messages of the events, as if the events had just been appended.
    #[arg(long, required_unless_present = "no_publish", conflicts_with = "no_publish")]
    publish: bool,
    /// Publish no messages: consumers have received them already, or must not receive them.
    #[arg(long)]
    pub no_publish: bool,
    /// Write the events; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
    /// Maximum transactions per second, each of up to 100 rows and 4 MB.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    concurrency: NonZeroUsize,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
}

pub(super) async fn run(args: ImportArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let ImportArgs { file, publish, yes, rate, concurrency, checkpoint, .. } = args;
    let options =
        ImportOptions { file, publishes: publish, writes: yes, rate, concurrency, checkpoint: checkpoint.checkpoint };
    let imported = import(&stack, &options, |key, events, outcome| {
        let of_all = |in_table| format!("{in_table} of its {events} events are in the table as they are in the file");
        let (outcome_name, what) = match outcome {
            ImportOutcome::Done(Imported { new: 0, .. }) => return Ok(()),
            ImportOutcome::Done(Imported { new, known: 0, .. }) => ("imported", format!("{new} events")),
            ImportOutcome::Done(Imported { new, known, .. }) => ("continued", format!("{new} events after {known}")),
            ImportOutcome::Skipped { reason } => ("skipped", format!("the export could not read it: {reason}")),
            ImportOutcome::Different { in_table, reason } => ("different", format!("{reason}; {}", of_all(*in_table))),
            ImportOutcome::Failed { in_table, reason } => ("failed", format!("{reason}; {}", of_all(*in_table))),
            ImportOutcome::TableFailed { in_table, source } => {
                ("failed", format!("{}; {}", with_causes(source), of_all(*in_table)))
            }
        };
        let would_be = if matches!(outcome, ImportOutcome::Done(_)) && !yes { "would be " } else { "" };
        let json = json!({"aggregate": key.to_string(), "outcome": outcome_name, "what": what});
        out.print(json, format!("{would_be}{outcome_name} {key}: {what}"))
    });
    let (counts, how_to_go_on, file_goes_on) = match imported.await? {
        ImportEnd::WrongLines(errors) => return print_wrong_lines(&options, &mut out, errors),
        ImportEnd::NothingWritten => {
            let counts = ImportCounts { dry_run: !yes, ..ImportCounts::default() };
            return Ok(out.finish("nothing was written", &counts, Some("run it again"), true)?);
        }
        ImportEnd::Done { counts, how_to_go_on, file_goes_on } => (counts, how_to_go_on, file_goes_on),
    };
    let ImportCounts { imported, equal, different, failed, skipped, events, messages, .. } = counts;
    let verb = if yes { "imported and verified" } else { "dry run: would import" };
    let published = if publish { "to publish" } else { "not published" };
    let part = file_goes_on
        .map(|next| format!("; the file has only a part, because its export stopped early: {next}"))
        .unwrap_or_default();
    let text = format!(
        "{verb} {imported} aggregates with {events} events and {messages} messages {published}; {equal} were in the table \
         already, {different} are different there, {failed} failed, {skipped} were not exported{part}"
    );
    Ok(out.finish(&text, &counts, how_to_go_on.as_deref(), different + failed + skipped == 0)?)
}

fn print_wrong_lines(
    options: &ImportOptions,
    out: &mut Output<'_>,
    errors: Vec<LineError>,
) -> Result<Exit, OperatorError> {
    for LineError { line, reason } in &errors {
        let json = json!({"line": line, "outcome": "wrong", "what": reason});
        out.print(json, format!("line {line}: {reason}"))?;
    }
    let (wrong, file) = (errors.len(), &options.file);
    let more = if wrong == MAX_ERRORS { " or more" } else { "" };
    let counts = json!({"dryRun": !options.writes, "wrongLines": wrong});
    let text = format!("{wrong}{more} lines of {file} are wrong; nothing was written");
    Ok(out.finish(&text, &counts, None, false)?)
}
