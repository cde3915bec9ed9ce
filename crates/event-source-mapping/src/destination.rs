//! What the on-failure destination is sent.

use std::time::Duration;

use serde_json::{Value, json};

use crate::event::{self, Record};
use crate::lane::Work;
use crate::outcome::Outcome;

/// Records that were given up.
#[derive(Clone, Debug, PartialEq)]
pub struct Discarded {
    /// At least one, in the order of their sequence numbers.
    pub records: Vec<Record>,
    /// Why.
    pub reason: Reason,
    /// How often the function was invoked with them.
    pub invocations: u32,
    /// When, as time since 1970.
    pub at: Duration,
    /// Whether the last invocation ended in a function error; `None` when they were not invoked with last.
    function_error: Option<bool>,
}

/// Why records were given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Retries are used up.
    RetryAttemptsExhausted,
    /// They are older than the mapping's maximum.
    RecordAgeExceeded,
}

impl Reason {
    /// The `condition` in the document.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAttemptsExhausted => "RetryAttemptsExhausted",
            Self::RecordAgeExceeded => "RecordAgeExceeded",
        }
    }
}

/// Whose records they were.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The function's ARN.
    pub function_arn: &'a str,
    /// The stream's ARN.
    pub stream_arn: &'a str,
    /// The shard.
    pub shard_id: &'a str,
    /// The id of the last invocation.
    pub request_id: &'a str,
}

impl Discarded {
    pub(crate) fn new(work: Work, reason: Reason, at: Duration, outcome: Option<Outcome>) -> Self {
        let function_error = outcome.map(|outcome| outcome == Outcome::FunctionError);
        Self { records: work.records, reason, invocations: work.invocations, at, function_error }
    }

    /// The document that an SQS or SNS destination gets: where the records are in the stream, not the records.
    pub fn metadata(&self, source: &Source<'_>) -> Value {
        let number_of = |record: Option<&Record>| record.map(|record| record.sequence_number().to_string());
        let arrival_of = |record: Option<&Record>| record.map(|record| rfc3339(record.created(), Precision::Seconds));
        let (first, last) = (self.records.first(), self.records.last());
        let mut document = json!({
            "requestContext": {
                "requestId": source.request_id,
                "functionArn": source.function_arn,
                "condition": self.reason.as_str(),
                "approximateInvokeCount": self.invocations,
            },
            "version": "1.0",
            "timestamp": rfc3339(self.at, Precision::Milliseconds),
            "DDBStreamBatchInfo": {
                "shardId": source.shard_id,
                "startSequenceNumber": number_of(first),
                "endSequenceNumber": number_of(last),
                "approximateArrivalOfFirstRecord": arrival_of(first),
                "approximateArrivalOfLastRecord": arrival_of(last),
                "batchSize": self.records.len(),
                "streamArn": source.stream_arn,
            },
        });
        if let Some(function_error) = self.function_error {
            document["responseContext"] = json!({"statusCode": 200, "executedVersion": "$LATEST"});
            if function_error {
                document["responseContext"]["functionError"] = "Unhandled".into();
            }
        }
        document
    }

    /// The document that an S3 destination gets: the metadata, and the whole event as text in `payload`.
    pub fn metadata_with_payload(&self, source: &Source<'_>) -> Value {
        let mut document = self.metadata(source);
        document["payload"] = event::payload(&self.records).into();
        document
    }
}

#[derive(Clone, Copy)]
enum Precision {
    Seconds,
    Milliseconds,
}

/// A time since 1970 in UTC.
fn rfc3339(at: Duration, precision: Precision) -> String {
    const SECONDS_PER_DAY: u64 = 86_400;
    let (year, month, day) = civil(at.as_secs() / SECONDS_PER_DAY);
    let second = at.as_secs() % SECONDS_PER_DAY;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = match precision {
        Precision::Seconds => String::new(),
        Precision::Milliseconds => format!(".{:03}", at.subsec_millis()),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Year, month and day of a day since 1970-01-01. Years begin in March here, so that a leap day is the last of its year.
fn civil(day: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    let day = day + 719_468;
    let (era, day_of_era) = (day / DAYS_PER_ERA, day % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_month)
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
            assert_eq!(rfc3339(Duration::from_secs(seconds), Precision::Seconds), text);
        }
        let at = Duration::from_millis(1_573_690_429_007);
        assert_eq!(rfc3339(at, Precision::Milliseconds), "2019-11-14T00:13:49.007Z");
    }
}
