//! The document that the on-failure destination receives.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::outcome::InvocationOutcome;
use crate::record::{self, Record};
use crate::record_queue::PendingBatch;

#[derive(Clone, Debug, PartialEq)]
pub struct Discarded {
    /// At least one, in the order of their sequence numbers.
    pub records: Vec<Record>,
    pub reason: DiscardReason,
    pub invocations: u32,
    /// The time of the discard, since 1970.
    at: Duration,
    /// Whether the last invocation ended in a function error; `None` if the records are discarded without an invocation
    /// before.
    function_error: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum DiscardReason {
    RetryAttemptsExhausted,
    RecordAgeExceeded,
}

#[derive(Clone, Copy, Debug)]
pub struct DiscardContext<'a> {
    pub function_arn: &'a str,
    pub stream_arn: &'a str,
    pub shard_id: &'a str,
    /// The id of the last invocation.
    pub request_id: &'a str,
}

impl Discarded {
    pub(crate) fn new(
        batch: PendingBatch,
        reason: DiscardReason,
        at: Duration,
        outcome: Option<InvocationOutcome>,
    ) -> Self {
        let function_error = outcome.map(|outcome| outcome == InvocationOutcome::FunctionError);
        Self { records: batch.records, reason, invocations: batch.invocations, at, function_error }
    }

    /// The document that an S3 destination receives: the position of the records in the stream, and in `payload` the
    /// records themselves as the function's event. An SQS or SNS destination receives the same without `payload`.
    pub fn document(&self, context: &DiscardContext<'_>) -> Value {
        let number_of = |record: Option<&Record>| record.map(|record| record.sequence_number().to_string());
        let arrival_of = |record: Option<&Record>| record.map(|record| rfc3339(record.created, 0));
        let (first, last) = (self.records.first(), self.records.last());
        let mut document = json!({
            "requestContext": {
                "requestId": context.request_id,
                "functionArn": context.function_arn,
                "condition": self.reason,
                "approximateInvokeCount": self.invocations,
            },
            "version": "1.0",
            "timestamp": rfc3339(self.at, 3),
            "DDBStreamBatchInfo": {
                "shardId": context.shard_id,
                "startSequenceNumber": number_of(first),
                "endSequenceNumber": number_of(last),
                "approximateArrivalOfFirstRecord": arrival_of(first),
                "approximateArrivalOfLastRecord": arrival_of(last),
                "batchSize": self.records.len(),
                "streamArn": context.stream_arn,
            },
            "payload": record::payload(&self.records),
        });
        if let Some(function_error) = self.function_error {
            document["responseContext"] = json!({"statusCode": 200, "executedVersion": "$LATEST"});
            if function_error {
                document["responseContext"]["functionError"] = "Unhandled".into();
            }
        }
        document
    }
}

/// A time since 1970 in UTC, with this number of digits for fractions of a second.
fn rfc3339(since_1970: Duration, digits: usize) -> String {
    let milliseconds = i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX);
    format!("{:.digits$}", Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_573_690_429, "2019-11-14T00:13:49Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds), 0), text);
        }
        let at = Duration::from_millis(1_573_690_429_007);
        assert_eq!(rfc3339(at, 3), "2019-11-14T00:13:49.007Z");
        assert_eq!(rfc3339(Duration::from_millis(1_573_690_429_999), 0), "2019-11-14T00:13:49Z");
    }
}
