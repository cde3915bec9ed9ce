//! `daybook forget`: ends the key of the personal values about an aggregate.

use daybook_operations::forget::{ForgetOptions, forget};
use daybook_operations::verify::VerifyFinding;

use crate::operator::{Ended, Session};

pub(super) async fn run(options: ForgetOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let forgotten = forget(&stack, &options).await?;
    for VerifyFinding { item, kind, detail } in &forgotten.findings {
        out.print_text(&format!("{} {item} {kind}: {detail}", forgotten.aggregate))?;
    }
    let (aggregate, command, version) =
        (&forgotten.aggregate, forgotten.command.unwrap_or_default(), forgotten.version);
    let text = match (forgotten.dry_run, forgotten.was_forgotten) {
        (true, true) => format!("{aggregate} is forgotten since before event {version}; --yes ends its key again"),
        (true, false) => format!("{aggregate} would get {command}; this was a dry run, --yes sends it"),
        (false, true) => format!("{aggregate} was forgotten before; its key has ended"),
        (false, false) => format!("{aggregate} is forgotten since event {version}"),
    };
    let is_clean = forgotten.findings.is_empty();
    out.finish(&text, &forgotten, None, is_clean)
}
