//! `daybook feed`.

use std::collections::BTreeSet;

use clap::Args;
use daybook_decider::{Model, Registry};
use daybook_operations::moment::Moment;
use daybook_operations::reads::{ReadResult, StackReads};
use daybook_operations::stack::SETTINGS_TO_REPUBLISH;
use jiff::Timestamp;
use serde_json::json;
use ulid::Ulid;

use super::events::print_page;
use crate::operator::{Exit, OperatorError, Session};

/// The events of a page. The API's maximum is 1,000.
const PAGE: usize = 100;

/// Print the events of some or all types across all aggregates, in order of time, one per line.
///
/// With `--json`, a line is an event as `GET /events` of the API returns it, with `meta`. The feed ends FEED_DELAY_MS before
/// now: later events may not be complete. The summary contains the cursor to continue from. The aggregate types' rules about
/// callers do not apply: an operator who can read the table can read every aggregate.
#[derive(Clone, Debug, Args)]
pub struct FeedArgs {
    /// Only events of this type, such as TodoCreated, by the name under which they were stored; can be repeated. Default: all
    /// event types that the code declares.
    #[arg(long = "type", value_name = "NAME")]
    event_types: Vec<String>,
    /// The beginning, included: 2026-11-20T08:00:00Z, or a duration before now, such as 30m, 2h or 7d. Default: the first event.
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Go on after this cursor, which an earlier run printed.
    #[arg(long, value_name = "CURSOR", conflicts_with = "from")]
    after: Option<String>,
    /// Maximum number of events.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
}

pub(super) async fn run(args: FeedArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let reads = StackReads::connect(&stack, SETTINGS_TO_REPUBLISH).await?;
    let from = args.from.map(|from| from.resolve(Timestamp::now()));
    let mut after = from.map(cursor_before).transpose()?.or(args.after);
    let names = event_types(&args.event_types, &stack.registry);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    reads.check_shards(&names).await?;
    let (mut printed, mut unreadable, mut more, mut settled_up_to) = (0, 0, true, None);
    while more && printed < args.limit && !stack.interrupt.is_set() {
        let page = match reads.feed(&names, after.as_deref(), PAGE.min(args.limit - printed)).await? {
            ReadResult::Found(page) => page,
            ReadResult::Missing(problem) => return Err(OperatorError::Usage(problem.detail)),
        };
        print_page(&mut out, &page)?;
        printed += page.events.len();
        unreadable += page.unreadable.len();
        after = page.cursor.as_str().map(str::to_owned).or(after);
        (more, settled_up_to) = (page.has_next, page.settled_up_to);
    }
    let (after, settled_up_to) = (after.unwrap_or_default(), settled_up_to.unwrap_or_default());
    let text = format!(
        "{printed} events, {unreadable} unreadable; the feed is complete up to {settled_up_to}; later events: --after {after}"
    );
    let summary = json!({
        "events": printed, "unreadable": unreadable, "settledUpTo": settled_up_to, "cursor": after, "more": more,
    });
    let interrupted = stack.interrupt.is_set() && more;
    let how_to_go_on = more.then(|| format!("go on with --after {after}"));
    out.print_summary(&text, &summary, how_to_go_on.as_deref())?;
    Ok(Exit::of(interrupted, unreadable == 0))
}

/// The event types of the options, or all that the code declares.
fn event_types(named: &[String], registry: &Registry) -> Vec<String> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let names = registry.iter().flat_map(Model::stored_events).map(|(name, _)| name.to_owned());
    // Several types may have had an event of one name.
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The cursor after which the events of a time begin.
fn cursor_before(from: Timestamp) -> Result<String, OperatorError> {
    let millis = u64::try_from(from.as_millisecond()).ok().and_then(|millis| millis.checked_sub(1));
    let millis = millis.ok_or_else(|| OperatorError::Usage(format!("--from is {from}, expected a time after 1970")))?;
    Ok(Ulid::from_parts(millis, u128::MAX).to_string())
}
