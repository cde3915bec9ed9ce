//! The outcome of an invocation, and its meaning for the batch.

use serde_json::Value;

use crate::record::Record;
use daybook_stream_batch::SequenceNumber;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationOutcome {
    /// The function returned. Contains the JSON text of its response; empty if there is none.
    Returned(String),
    /// The function returned an error, timed out or crashed.
    FunctionError,
    /// The function could not be invoked (throttled, for example). The whole batch is retried, and no retry is used up.
    NotInvoked,
}

impl InvocationOutcome {
    /// The number of records that are done, before the first that is retried; `None` if the function was not invoked
    /// with them. Without `ReportBatchItemFailures` the response is not read: a function that returned has succeeded.
    pub(crate) fn done(&self, records: &[Record], report_batch_item_failures: bool) -> Option<usize> {
        match self {
            Self::FunctionError => Some(0),
            Self::NotInvoked => None,
            Self::Returned(_) if !report_batch_item_failures => Some(records.len()),
            Self::Returned(response) => Some(reported(response, records)),
        }
    }
}

/// The number of records that are done, by the rules of `ReportBatchItemFailures`:
/// - no response, `null`, an object without `batchItemFailures`, and a null or empty list are success;
/// - otherwise the failure with the lowest sequence number is the checkpoint;
/// - a response that cannot be read, and an identifier that is missing, null, empty or of a record outside this batch,
///   fail the whole batch, because it is unknown which records are done.
fn reported(response: &str, records: &[Record]) -> usize {
    let all = records.len();
    if response.trim().is_empty() {
        return all;
    }
    let failures = match serde_json::from_str(response) {
        Ok(Value::Null) => return all,
        Ok(Value::Object(mut response)) => match response.remove("batchItemFailures") {
            None | Some(Value::Null) => return all,
            Some(Value::Array(failures)) => failures,
            Some(_) => return 0,
        },
        Ok(_) | Err(_) => return 0,
    };
    let position_of = |failure: &Value| {
        let number = SequenceNumber::parse(failure.get("itemIdentifier")?.as_str()?)?;
        records.iter().position(|record| *record.sequence_number() == number)
    };
    let positions: Option<Vec<_>> = failures.iter().map(position_of).collect();
    // Records are in the order of their numbers, so the lowest number is the first position.
    positions.map_or(0, |positions| positions.into_iter().min().unwrap_or(all))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Numbers 98 to 101: the number of digits changes, so text order would be wrong.
    fn records() -> Vec<Record> {
        (98..=101)
            .map(|number: u32| {
                let change = json!({"SequenceNumber": number.to_string(), "Keys": {"pk": {"S": "a"}},
                    "ApproximateCreationDateTime": 0});
                Record::from_stream(json!({"dynamodb": change}), "arn").unwrap()
            })
            .collect()
    }

    fn done(response: &str) -> usize {
        InvocationOutcome::Returned(response.to_owned()).done(&records(), true).unwrap()
    }

    #[test]
    fn null_and_empty_responses_are_a_complete_success() {
        for response in
            ["", " ", "null", "{}", r#"{"batchItemFailures":[]}"#, r#"{"batchItemFailures":null}"#, r#"{"other":1}"#]
        {
            assert_eq!(done(response), 4, "{response:?}");
        }
    }

    #[test]
    fn the_lowest_sequence_number_is_the_checkpoint() {
        let response =
            r#"{"batchItemFailures":[{"itemIdentifier":"101"},{"itemIdentifier":"99"},{"itemIdentifier":"100"}]}"#;
        assert_eq!(done(response), 1);
        assert_eq!(done(r#"{"batchItemFailures":[{"itemIdentifier":"98"}]}"#), 0);
    }

    #[test]
    fn identifier_outside_the_batch_fails_the_whole_batch() {
        for identifier in [r#""""#, "null", r#""102""#, r#""abc""#, "100", "{}"] {
            let response =
                format!(r#"{{"batchItemFailures":[{{"itemIdentifier":"101"}},{{"itemIdentifier":{identifier}}}]}}"#);
            assert_eq!(done(&response), 0, "{response}");
        }
        assert_eq!(done(r#"{"batchItemFailures":[{"ItemIdentifier":"101"}]}"#), 0);
    }

    #[test]
    fn a_response_that_cannot_be_read_fails_the_whole_batch() {
        for response in
            ["{", "ok", r#""ok""#, "[]", "1", r#"{"batchItemFailures":"101"}"#, r#"{"batchItemFailures":["101"]}"#]
        {
            assert_eq!(done(response), 0, "{response}");
        }
    }

    #[test]
    fn the_response_is_not_read_without_report_batch_item_failures() {
        for response in [r#"{"batchItemFailures":[{"itemIdentifier":"99"}]}"#, "{", ""] {
            assert_eq!(InvocationOutcome::Returned(response.to_owned()).done(&records(), false), Some(4));
        }
    }

    #[test]
    fn an_error_fails_the_whole_batch_whatever_is_configured() {
        for report in [true, false] {
            assert_eq!(InvocationOutcome::FunctionError.done(&records(), report), Some(0));
        }
    }
}
