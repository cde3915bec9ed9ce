//! The requests of an operator, who invokes the function with them as the payload: `{"request": "report"}`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::consumer::Consumer;
use crate::error::TableError;
use crate::message::{AggregateId, MAX_MESSAGE_SEQ, Number};
use crate::order::Messages;
use crate::receive::{PositionChange, Receiver};
use crate::report::report;
use crate::rows::now;
use crate::table::ConsumerTable;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Lists the aggregates whose messages wait, and records the metrics of them.
    Report {},
    /// Attempts the next message of a stopped aggregate again, and applies the messages after it.
    Resume {
        /// The aggregate.
        aggregate: AggregateId,
    },
    /// Skips the messages of an aggregate up to a number, and applies those after it.
    Skip {
        /// The aggregate.
        aggregate: AggregateId,
        /// The number of the last message to skip.
        through: u64,
        /// Its epoch; that of the last applied message by default.
        epoch: Option<u32>,
    },
    /// Begins with the first stored message of each aggregate of which nothing was applied yet, if it has waited for this
    /// time: for aggregates that are older than the consumer.
    Begin {
        /// The time.
        waiting_seconds: u32,
    },
}

pub(crate) async fn execute<C: Consumer>(
    consumer: &C,
    table: &ConsumerTable,
    request: Request,
    cutoff: Instant,
) -> Result<Value, TableError> {
    let change = async |aggregate: AggregateId, change: PositionChange| {
        let receiver = Receiver { consumer, table, aggregate: &aggregate, cutoff };
        let received = receiver.receive(Some(change), &Messages::new()).await?;
        tracing::info!(%aggregate, ?change, applied = received.applied, "an operator has changed the position");
        Ok::<_, TableError>(received)
    };
    match request {
        Request::Report {} => Ok(json!(report(table, C::MAX_ATTEMPTS).await?)),
        Request::Resume { aggregate } => {
            let received = change(aggregate, PositionChange::Resume).await?;
            Ok(json!({"applied": received.applied, "failed": received.failed}))
        }
        Request::Skip { aggregate, through, epoch } => {
            let known = table.position(&aggregate).await?.epoch.max(1);
            let through = Number { epoch: epoch.unwrap_or(known), message_seq: through.min(MAX_MESSAGE_SEQ) };
            let received = change(aggregate, PositionChange::Skip(through)).await?;
            Ok(json!({"applied": received.applied, "failed": received.failed}))
        }
        Request::Begin { waiting_seconds } => {
            let latest =
                now() - SignedDuration::try_from(Duration::from_secs(waiting_seconds.into())).unwrap_or_default();
            let (mut aggregates, mut applied) = (0, 0);
            for (aggregate, since) in table.incomplete().await? {
                let has_position = table.position(&aggregate).await?.number() != Number::default();
                if has_position || since.parse().is_ok_and(|since: Timestamp| since > latest) {
                    continue;
                }
                let waiting = table.waiting(&aggregate, 0).await?;
                let Some(&Number { epoch, message_seq }) = waiting.messages.keys().next() else { continue };
                let before = Number { epoch, message_seq: message_seq - 1 };
                applied += change(aggregate, PositionChange::Skip(before)).await?.applied;
                aggregates += 1;
            }
            Ok(json!({"aggregates": aggregates, "applied": applied}))
        }
    }
}
