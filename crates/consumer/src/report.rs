//! Gaps and stopped aggregates: which messages are missing, since when, and how to get them.

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use metrics::histogram;
use serde::Serialize;

use crate::error::TableError;
use crate::message::{AggregateId, Number};
use crate::order::{Missing, missing, next_messages};
use crate::rows::now;
use crate::table::ConsumerTable;

/// Maximum aggregates of a report: those that wait for the longest time.
const MAX_LISTED: usize = 100;

/// Maximum aggregates that are read concurrently.
const CONCURRENCY: usize = 8;

/// The aggregates whose messages wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The number of aggregates.
    pub total: usize,
    /// Those that wait for the longest time.
    pub aggregates: Vec<Incomplete>,
}

/// An aggregate whose messages wait: for missing messages, or behind a message that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Incomplete {
    /// The aggregate.
    pub aggregate: AggregateId,
    /// The last message that was applied or skipped.
    pub last: Number,
    /// The missing messages.
    pub missing: Vec<Missing>,
    /// When the first of the waiting messages was stored, RFC 3339.
    pub since: String,
    /// The number of waiting messages.
    pub waiting: u64,
    /// The message that cannot be applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
    /// The command that sends missing messages again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A message that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The id of the message.
    pub message_id: String,
    /// Its name.
    pub message_type: String,
    /// Its number.
    pub number: Number,
    /// The number of attempts.
    pub attempts: u32,
    /// Whether no further attempt is made until an operator resumes the aggregate.
    pub is_stopped: bool,
    /// The last error.
    pub error: String,
}

/// Reads and logs the aggregates whose messages wait, and records the metrics of them.
pub(crate) async fn report(table: &ConsumerTable, max_attempts: u32) -> Result<Report, TableError> {
    let mut incomplete = table.incomplete().await?;
    incomplete.sort_by(|(_, one), (_, other)| one.cmp(other));
    let total = incomplete.len();
    incomplete.truncate(MAX_LISTED);
    let read = incomplete.into_iter().map(|(aggregate, _)| read(table, aggregate, max_attempts));
    let aggregates: Vec<Option<Incomplete>> = stream::iter(read).buffered(CONCURRENCY).try_collect().await?;
    let aggregates: Vec<_> = aggregates.into_iter().flatten().collect();

    let is_stopped = |one: &&Incomplete| one.failed.as_ref().is_some_and(|failed| failed.is_stopped);
    let ages = aggregates.iter().filter(|one| !is_stopped(one) || !one.missing.is_empty()).map(|one| age(&one.since));
    // No gauges: an instance would write the last value again with each later batch, when it may be out of date.
    histogram!("OldestGapSeconds").record(ages.fold(0.0, f64::max));
    let stopped = u32::try_from(aggregates.iter().filter(is_stopped).count()).unwrap_or(u32::MAX);
    histogram!("AggregatesStopped").record(f64::from(stopped));
    for Incomplete { aggregate, missing, since, failed, command, .. } in &aggregates {
        if let Some(Failed { message_id, error, attempts, .. }) = failed {
            tracing::warn!(%aggregate, since, message_id, attempts, error, "an aggregate waits behind a message that cannot be applied");
        }
        if !missing.is_empty() {
            let missing = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            tracing::warn!(%aggregate, since, missing, command, "messages are missing");
        }
    }
    Ok(Report { total, aggregates })
}

/// `None` if nothing of the aggregate waits any more.
async fn read(
    table: &ConsumerTable,
    aggregate: AggregateId,
    max_attempts: u32,
) -> Result<Option<Incomplete>, TableError> {
    let position = table.position(&aggregate).await?;
    if position.waiting == 0 {
        return Ok(None);
    }
    let waiting = table.waiting(&aggregate, position.epoch).await?;
    let last = position.number();
    let next = next_messages(last, &waiting.messages);
    let failed = next.first().filter(|_| position.attempts > 0).map(|message| Failed {
        message_id: message.metadata.message_id.clone(),
        message_type: message.message_type.clone(),
        number: message.number(),
        attempts: position.attempts,
        is_stopped: position.attempts >= max_attempts,
        error: position.error.clone().unwrap_or_default(),
    });
    let missing = missing(last, &waiting.messages);
    let command = (!missing.is_empty()).then(|| format!("daybook republish --aggregate {aggregate} --from 7d --yes"));
    let (since, waiting) = (waiting.since.unwrap_or_default(), position.waiting);
    Ok(Some(Incomplete { aggregate, last, missing, since, waiting, failed, command }))
}

fn age(since: &str) -> f64 {
    let since = since.parse::<Timestamp>();
    since.map_or(0.0, |since| now().duration_since(since).as_secs_f64())
}
