//! `daybook export` and `daybook import`: write and read history files.

use clap::Args;
use daybook_decider::AggregateKey;
use daybook_function_runtime::with_causes;
use daybook_operations::export::{Exported, HistoryTarget, export};
use daybook_operations::history::line::HistorySummary;
use daybook_operations::history::source::{LineError, MAX_ERRORS};
use daybook_operations::import::{
    ImportCounts, ImportEnd, ImportFailure, ImportOptions, ImportOutcome, Imported, import,
};
use daybook_operations::walk::{WalkFinding, WalkOptions};
use serde_json::json;

use crate::operator::output::Output;
use crate::operator::{Ended, Exit, Session};

/// Write the events of aggregates to a file, as lines of JSON that `daybook import` reads.
///
/// The lines of an aggregate stand together, in the order of its events. They end with an append that was complete when the
/// aggregate was read, even if commands are accepted meanwhile. The last line is a summary with counts and a digest, so that an
/// import notices a file that is not complete. docs/operating.md describes the lines.
///
/// The file contains events only. States and snapshots are derived from them. Outbox rows and the stored responses of
/// idempotency keys are not exported.
///
/// After Ctrl-C, the file contains the aggregates so far, and the summary describes how to export the others to another file.
/// A file that a crash ended has no summary, so no import accepts it: delete it, and export again.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("rate", |rate| rate.help("Maximum reads per second, each of one aggregate or of 1 MB of a large one")))]
pub struct ExportArgs {
    /// The file, which must not exist, or `-` for standard output.
    file: String,
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after"])]
    aggregates: Vec<AggregateKey>,
    #[command(flatten)]
    walk: WalkOptions,
}

pub(super) async fn run_export(args: ExportArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let (file, options) = (args.file, args.walk.of(args.aggregates));
    let as_json = out.as_json;
    let line = |WalkFinding { kind, name, reason }: WalkFinding| match as_json {
        true => json!({"aggregate": name, "outcome": kind, "detail": reason}).to_string(),
        false => format!("{kind} {name}: {reason}"),
    };
    let is_to_stdout = file == "-";
    let Exported { summary, unreadable } = if is_to_stdout {
        let report = |found| {
            eprintln!("daybook: {}", line(found));
            Ok(())
        };
        export(&stack, &options, HistoryTarget::Writer(out.writer()), report).await?
    } else {
        export(&stack, &options, HistoryTarget::File(&file), |found| out.print_text(&line(found))).await?
    };
    let HistorySummary { aggregates, events, incomplete, go_on, .. } = &summary;
    let rows = if unreadable > 0 { format!(", {unreadable} rows of the index cannot be read") } else { String::new() };
    let text = format!(
        "exported {aggregates} aggregates and {events} events; {incomplete} aggregates could not be exported{rows}"
    );
    if is_to_stdout {
        // Standard output has the summary of the file as its last line.
        let next = go_on.as_ref().map_or(String::new(), |next| format!("; stopped early, {next}"));
        eprintln!("daybook: {text}{next}");
    } else {
        out.print_summary(&text, &summary, go_on.as_deref())?;
    }
    Ok(Exit::of(go_on.is_some(), incomplete + unreadable == 0))
}

pub(super) async fn run_import(options: ImportOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let (publishes, writes) = (options.publish, options.yes);
    let imported = import(&stack, &options, |key, events, outcome| {
        let (outcome_name, detail) = match outcome {
            ImportOutcome::Done(Imported { new: 0, .. }) => return Ok(()),
            ImportOutcome::Done(Imported { new, known: 0, .. }) => ("imported", format!("{new} events")),
            ImportOutcome::Done(Imported { new, known, .. }) => ("continued", format!("{new} events after {known}")),
            ImportOutcome::Skipped { reason } => ("skipped", format!("the export could not read it: {reason}")),
            ImportOutcome::Failed { in_table, failure } => {
                let (name, reason) = match failure {
                    ImportFailure::Different(reason) => ("different", reason.clone()),
                    ImportFailure::Failed(reason) => ("failed", reason.clone()),
                    ImportFailure::Table(source) => ("failed", with_causes(source)),
                };
                (name, format!("{reason}; {in_table} of its {events} events are in the table as they are in the file"))
            }
        };
        let would_be = if matches!(outcome, ImportOutcome::Done(_)) && !writes { "would be " } else { "" };
        let json = json!({"aggregate": key.to_string(), "outcome": outcome_name, "detail": detail});
        out.print(json, format!("{would_be}{outcome_name} {key}: {detail}"))
    });
    let (counts, how_to_go_on, file_goes_on) = match imported.await? {
        ImportEnd::WrongLines(errors) => return print_wrong_lines(&options, &mut out, errors),
        ImportEnd::NothingWritten => {
            let counts = ImportCounts { dry_run: !writes, ..ImportCounts::default() };
            return out.finish("nothing was written", &counts, Some("run it again"), true);
        }
        ImportEnd::Done { counts, how_to_go_on, file_goes_on } => (counts, how_to_go_on, file_goes_on),
    };
    let ImportCounts { imported, equal, different, failed, skipped, events, messages, .. } = counts;
    let verb = if writes { "imported and verified" } else { "dry run: would import" };
    let published = if publishes { "to publish" } else { "not published" };
    let part = file_goes_on
        .map(|next| format!("; the file has only a part, because its export stopped early: {next}"))
        .unwrap_or_default();
    let text = format!(
        "{verb} {imported} aggregates with {events} events and {messages} messages {published}; {equal} were in the table \
         already, {different} are different there, {failed} failed, {skipped} were not exported{part}"
    );
    out.finish(&text, &counts, how_to_go_on, different + failed + skipped == 0)
}

fn print_wrong_lines(options: &ImportOptions, out: &mut Output<'_>, errors: Vec<LineError>) -> Ended {
    for LineError { line, reason } in &errors {
        let json = json!({"line": line, "outcome": "wrong", "detail": reason});
        out.print(json, format!("line {line}: {reason}"))?;
    }
    let (wrong, file) = (errors.len(), &options.file);
    let more = if wrong == MAX_ERRORS { " or more" } else { "" };
    let counts = json!({"dryRun": !options.yes, "wrongLines": wrong});
    let text = format!("{wrong}{more} lines of {file} are wrong; nothing was written");
    out.finish(&text, &counts, None, false)
}
