//! Limits and the two codes of an error, which several operations share.

use std::ops::RangeInclusive;

use crate::json_protocol::CallError;

/// Maximum time that a message stays hidden, in seconds: twelve hours.
const MAX_VISIBILITY_TIMEOUT: u64 = 12 * 60 * 60;
/// Maximum time that a call waits for a message, in seconds.
const MAX_WAIT_TIME: u64 = 20;

pub(crate) fn check_visibility_timeout(seconds: u64) -> Result<(), CallError> {
    check_range("VisibilityTimeout", seconds, 0..=MAX_VISIBILITY_TIMEOUT)
}

pub(crate) fn check_wait_time(seconds: u64) -> Result<(), CallError> {
    check("WaitTimeSeconds", seconds, 0..=MAX_WAIT_TIME, "Must be >= 0 and <= 20, if provided.")
}

pub(crate) fn check_range(parameter: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), CallError> {
    let reason = format!("Must be between {} and {}, if provided.", range.start(), range.end());
    check(parameter, value, range, &reason)
}

fn check(parameter: &str, value: u64, range: RangeInclusive<u64>, reason: &str) -> Result<(), CallError> {
    if range.contains(&value) {
        return Ok(());
    }
    let message = format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}");
    Err(CallError::bad_request("InvalidParameterValueException", &message))
}

/// The error in its JSON form, and the value of the header.
pub(crate) fn error(error: CallError) -> (CallError, Option<String>) {
    let Some(query_code) = query_code(&error.code) else { return (error, None) };
    let code = format!("com.amazonaws.sqs#{}", error.code);
    (CallError { code, ..error }, Some(format!("{query_code};Sender")))
}

/// The code of an error of SQS in the Query protocol; `None` for an error of all services, or an injected one.
pub(crate) fn query_code(name: &str) -> Option<&'static str> {
    Some(match name {
        "BatchEntryIdsNotDistinct" => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        "EmptyBatchRequest" => "AWS.SimpleQueueService.EmptyBatchRequest",
        "InvalidBatchEntryId" => "AWS.SimpleQueueService.InvalidBatchEntryId",
        "InvalidMessageContents" => "InvalidMessageContents",
        "InvalidParameterValueException" => "InvalidParameterValue",
        "MissingRequiredParameterException" => "MissingParameter",
        "OverLimit" => "OverLimit",
        "QueueDoesNotExist" => "AWS.SimpleQueueService.NonExistentQueue",
        "ReceiptHandleIsInvalid" => "ReceiptHandleIsInvalid",
        "TooManyEntriesInBatchRequest" => "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        _ => return None,
    })
}
