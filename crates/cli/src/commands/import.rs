//! `daybook import`.

use daybook_function_runtime::with_causes;
use daybook_operations::history::source::{LineError, MAX_ERRORS};
use daybook_operations::import::{
    ImportCounts, ImportEnd, ImportFailure, ImportOptions, ImportOutcome, Imported, import,
};
use serde_json::json;

use crate::operator::output::Output;
use crate::operator::{Ended, Session};

pub(super) async fn run(options: ImportOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let (publishes, writes) = (options.publishes, options.writes);
    let imported = import(&stack, &options, |key, events, outcome| {
        let (outcome_name, what) = match outcome {
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
        let json = json!({"aggregate": key.to_string(), "outcome": outcome_name, "what": what});
        out.print(json, format!("{would_be}{outcome_name} {key}: {what}"))
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
        let json = json!({"line": line, "outcome": "wrong", "what": reason});
        out.print(json, format!("line {line}: {reason}"))?;
    }
    let (wrong, file) = (errors.len(), &options.file);
    let more = if wrong == MAX_ERRORS { " or more" } else { "" };
    let counts = json!({"dryRun": !options.writes, "wrongLines": wrong});
    let text = format!("{wrong}{more} lines of {file} are wrong; nothing was written");
    out.finish(&text, &counts, None, false)
}
