//! `daybook get`, `daybook events` and `daybook feed`.

use std::collections::BTreeSet;

use clap::Args;
use daybook_decider::{AggregateKey, Model};
use daybook_operations::check_shards;
use daybook_operations::moment::Moment;
use daybook_operations::reads::{EventPage, ReadProblem, StackReads, event_text};
use daybook_operations::stack::SETTINGS_TO_REPUBLISH;
use jiff::Timestamp;
use serde_json::{Value, json};
use ulid::Ulid;

use crate::operator::output::Output;
use crate::operator::{Ended, Exit, OperatorError, Session};

/// The events of a page. The API's maximum is 1,000.
const PAGE: u64 = 100;

/// Print the state of an aggregate, current or at an earlier version.
///
/// The command reads the table with your AWS credentials and folds the events with this build's aggregate code. With `--json`, it
/// prints the body that `GET /TYPE/ID` of the API returns. The aggregate types' rules about callers do not apply: an operator
/// who can read the table can read every aggregate.
#[derive(Clone, Debug, Args)]
pub struct GetArgs {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    aggregate: AggregateKey,
    /// The state after this many events. Default: the current state.
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Fold the state from the first event, without the snapshot.
    #[arg(long)]
    rebuild: bool,
}

/// Print the events of an aggregate in order, one per line.
///
/// With `--json`, a line is an event as `GET /TYPE/ID/events` of the API returns it, with `meta`. The events of a deleted
/// aggregate are printed too. The aggregate types' rules about callers do not apply: an operator who can read the table can
/// read every aggregate.
#[derive(Clone, Debug, Args)]
pub struct EventsArgs {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    aggregate: AggregateKey,
    /// Begin after the event with this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Maximum number of events. Default: all.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

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
    limit: u64,
}

pub(super) async fn get(args: GetArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let reads = StackReads::connect(&stack, &[]).await?;
    let key = &args.aggregate;
    let version = args.version.map(|version| format!("&version={version}")).unwrap_or_default();
    let body = match reads.get(&format!("/{key}?rebuild={}{version}", args.rebuild)).await? {
        Err(problem) => return print_missing(&mut out, &key.to_string(), &problem),
        Ok(body) if out.as_json => body,
        Ok(body) => {
            let body: Value = serde_json::from_str(&body)
                .map_err(|error| OperatorError::Failed(format!("cannot read it: {error}")))?;
            format!("{key} version {}\n{:#}", body["version"], body["state"])
        }
    };
    out.print_text(&body)?;
    Ok(Exit::Clean)
}

pub(super) async fn events(args: EventsArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let reads = StackReads::connect(&stack, &[]).await?;
    let key = &args.aggregate;
    let (mut after, mut printed) = (args.after, Printed::default());
    while printed.goes_on(args.limit.unwrap_or(u64::MAX)) && !stack.interrupt.is_cancelled() {
        let limit = PAGE.min(args.limit.unwrap_or(u64::MAX) - printed.events);
        let page = match reads.events(&format!("/{key}/events?after={after}&limit={limit}")).await? {
            Ok(page) => page,
            Err(problem) => return print_missing(&mut out, &key.to_string(), &problem),
        };
        printed.add(&mut out, &page)?;
        after = page.cursor.as_u64().unwrap_or(after);
    }
    let text = printed.text();
    let summary = json!({"events": printed.events, "unreadable": printed.unreadable});
    printed.finish(&mut out, &text, &summary, stack.interrupt.is_cancelled(), &after.to_string())
}

pub(super) async fn feed(args: FeedArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let reads = StackReads::connect(&stack, SETTINGS_TO_REPUBLISH).await?;
    let from = args.from.map(|from| from.resolve(Timestamp::now()));
    let mut after = from.map(cursor_before).transpose()?.or(args.after);
    let mut names: Vec<_> = args.event_types.iter().map(String::as_str).collect();
    if names.is_empty() {
        // Several types may have had an event of one name.
        let all: BTreeSet<_> = stack.registry.iter().flat_map(Model::stored_events).map(|(name, _)| name).collect();
        names.extend(all);
    }
    check_shards(&reads.store, &names).await?;
    let (mut printed, mut settled_up_to) = (Printed::default(), None);
    while printed.goes_on(args.limit) && !stack.interrupt.is_cancelled() {
        let limit = usize::try_from(PAGE.min(args.limit - printed.events)).unwrap_or(usize::MAX);
        let page = match reads.feed(&names, after.as_deref(), limit).await? {
            Ok(page) => page,
            Err(problem) => return Err(OperatorError::Usage(problem.detail)),
        };
        printed.add(&mut out, &page)?;
        after = page.cursor.as_str().map(str::to_owned).or(after);
        settled_up_to = page.settled_up_to;
    }
    let (after, settled_up_to) = (after.unwrap_or_default(), settled_up_to.unwrap_or_default());
    let text = printed.text();
    let text = format!("{text}; the feed is complete up to {settled_up_to}; later events: --after {after}");
    let Printed { events, unreadable, has_all } = printed;
    let summary = json!({
        "events": events, "unreadable": unreadable, "settledUpTo": settled_up_to, "cursor": after, "more": !has_all,
    });
    printed.finish(&mut out, &text, &summary, stack.interrupt.is_cancelled(), &after)
}

#[derive(Clone, Copy, Default)]
struct Printed {
    events: u64,
    unreadable: usize,
    /// Whether the list has no further page.
    has_all: bool,
}

impl Printed {
    fn goes_on(&self, limit: u64) -> bool {
        !self.has_all && self.events < limit
    }

    /// Prints the events of a page, and its rows that cannot be read.
    fn add(&mut self, out: &mut Output<'_>, page: &EventPage) -> Result<(), OperatorError> {
        for event in &page.events {
            // The unchanged JSON of the API.
            let text = if out.as_json { event.get().to_owned() } else { event_text(event)? };
            out.print_text(&text)?;
        }
        let print = |row| out.print(json!({ "unreadable": row }), format!("unreadable {row}"));
        page.unreadable.iter().try_for_each(print)?;
        self.events += page.events.len() as u64;
        self.unreadable += page.unreadable.len();
        self.has_all = !page.has_next;
        Ok(())
    }

    fn text(&self) -> String {
        format!("{} events, {} unreadable", self.events, self.unreadable)
    }

    fn finish(self, out: &mut Output<'_>, text: &str, summary: &Value, interrupted: bool, after: &str) -> Ended {
        let how_to_go_on = (!self.has_all).then(|| format!("go on with --after {after}"));
        out.print_summary(text, summary, how_to_go_on.as_deref())?;
        Ok(Exit::of(interrupted && !self.has_all, self.unreadable == 0))
    }
}

fn print_missing(out: &mut Output<'_>, key: &str, problem: &ReadProblem) -> Ended {
    if out.as_json {
        out.print_text(&problem.body)?;
    }
    eprintln!("{key}: {}", problem.detail);
    Ok(Exit::Findings)
}

/// The cursor after which the events of a time begin.
fn cursor_before(from: Timestamp) -> Result<String, OperatorError> {
    let millis = u64::try_from(from.as_millisecond()).ok().and_then(|millis| millis.checked_sub(1));
    let millis = millis.ok_or_else(|| OperatorError::Usage(format!("--from is {from}, expected a time after 1970")))?;
    Ok(Ulid::from_parts(millis, u128::MAX).to_string())
}
