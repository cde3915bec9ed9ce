//! Limits that several operations share.

use std::ops::RangeInclusive;

use crate::messaging::protocol::CallError;

/// Maximum time that a message stays hidden, in seconds: twelve hours.
const MAX_VISIBILITY_TIMEOUT: u64 = 12 * 60 * 60;

pub(crate) fn check_visibility_timeout(seconds: u64) -> Result<(), CallError> {
    check_range("VisibilityTimeout", seconds, 0..=MAX_VISIBILITY_TIMEOUT)
}

pub(crate) fn check_range(parameter: &str, value: u64, range: RangeInclusive<u64>) -> Result<(), CallError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    let message = format!(
        "Value {value} for parameter {parameter} is invalid. Reason: Must be between {least} and {most}, if provided."
    );
    Err(CallError::bad_request("InvalidParameterValue", &message))
}
