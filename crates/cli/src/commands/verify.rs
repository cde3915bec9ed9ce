//! `daybook verify`: whether the rows of aggregates are what appends and snapshots leave behind.

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use daybook_decider::Model;
use daybook_event_store::admin::Verified;
use daybook_event_store::{EventStore, StoreError};
use jiff::Timestamp;
use serde_json::json;

use crate::operator::pacing::Pacer;
use crate::operator::selection::{AggregateName, Found, Listing, Selection};
use crate::operator::target::{TO_FIND, TableOptions};
use crate::operator::walk::Walk;
use crate::operator::{Exit, OperateError, Operator};

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Aggregates to check; all when none is named.
    #[arg(value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after"])]
    pub aggregates: Vec<AggregateName>,
    /// Which of all.
    #[command(flatten)]
    pub selection: Selection,
    /// Read the whole table for aggregates instead of the index: finds those that have lost their first events, and rows
    /// that belong to none.
    #[arg(long, conflicts_with_all = ["aggregates", "types", "event_types", "after"])]
    pub scan: bool,
    /// Aggregates a second at most.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Aggregates side by side.
    #[arg(long, value_name = "N", default_value = "8")]
    pub concurrency: NonZeroUsize,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
    /// Which table.
    #[command(flatten)]
    pub table: TableOptions,
}

/// What was found of all.
#[derive(Default)]
struct Summary {
    aggregates: u64,
    events: u64,
    messages: u64,
    snapshots: u64,
    outdated: u64,
    findings: u64,
    wrong: u64,
}

/// Checks.
///
/// # Errors
///
/// When the table cannot be read.
pub async fn run(options: Options, operator: &mut Operator) -> Result<Exit, OperateError> {
    let store = options.table.connect(&operator.environment, TO_FIND).await?;
    let listing = if options.scan {
        Listing::scan(&store)
    } else {
        options.selection.list(&store, &operator.registry, &options.aggregates)?
    };
    let named = !options.aggregates.is_empty();
    let pacer = Pacer::new(options.rate, operator.interrupt.clone());
    let look = async |found: &Found, model: Option<&dyn Model>| {
        pacer.turn().await?;
        Some(check(&store, model, found).await)
    };
    let mut summary = Summary::default();
    let tell = |found: &Found, verified| {
        let lines = lines(found, &verified, named, options.json);
        summary.add(&verified, lines.len() as u64);
        lines
    };
    let walk = Walk { listing, after: options.selection.after.clone(), concurrency: options.concurrency };
    let go_on = walk.run(operator, look, tell).await?;
    summary.print(operator, options.json, go_on.as_deref())?;
    if go_on.is_some() {
        return Ok(Exit::Interrupted);
    }
    Ok(if summary.findings == 0 { Exit::Clean } else { Exit::Findings })
}

/// `None` for what no code can check.
async fn check(store: &EventStore, model: Option<&dyn Model>, found: &Found) -> Result<Option<Verified>, StoreError> {
    match (model, &found.key) {
        (Some(model), Some(key)) => store.admin().verify(model, key, Timestamp::now()).await.map(Some),
        _ => Ok(None),
    }
}

/// What is wrong, a line each.
fn lines(found: &Found, verified: &Option<Verified>, named: bool, as_json: bool) -> Vec<String> {
    let line = |item: &str, kind: &str, what: String| {
        if as_json {
            json!({"aggregate": found.name, "item": item, "kind": kind, "what": what}).to_string()
        } else {
            format!("{} {item} {kind}: {what}", found.name)
        }
    };
    match verified {
        None => vec![line("*", "unregistered", "no aggregate of this type is registered".to_owned())],
        Some(verified) if verified.rows == 0 && named => vec![line("*", "missing", "it does not exist".to_owned())],
        Some(verified) => {
            let wrong = verified.findings.iter();
            wrong
                .map(|finding| line(&finding.item, finding.discrepancy.code(), finding.discrepancy.to_string()))
                .collect()
        }
    }
}

impl Summary {
    fn add(&mut self, verified: &Option<Verified>, findings: u64) {
        self.aggregates += 1;
        self.findings += findings;
        self.wrong += u64::from(findings > 0);
        if let Some(verified) = verified {
            self.events += verified.events;
            self.messages += verified.messages;
            self.snapshots += verified.snapshots;
            self.outdated += verified.outdated;
        }
    }

    fn print(&self, operator: &mut Operator, as_json: bool, go_on: Option<&str>) -> io::Result<()> {
        let Self { aggregates, events, messages, snapshots, outdated, findings, wrong } = self;
        let result = match findings {
            0 => "nothing is wrong".to_owned(),
            _ => format!("{findings} findings in {wrong} aggregates"),
        };
        let text = format!(
            "verified {aggregates} aggregates: {events} events, {messages} messages, {snapshots} snapshots and {outdated} \
             of another state version; {result}"
        );
        let summary = json!({
            "aggregates": aggregates, "events": events, "messages": messages, "snapshots": snapshots,
            "outdatedSnapshots": outdated, "findings": findings, "aggregatesWithFindings": wrong,
        });
        operator.sum_up(as_json, &text, summary, go_on)
    }
}
