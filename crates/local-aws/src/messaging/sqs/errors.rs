//! The two codes of an error. SQS once used the Query protocol. In a JSON response, `__type` has the name of the error,
//! and the header `x-amzn-query-error` the code of the Query protocol, which SDKs report. The error of one entry of a
//! batch also has the code of the Query protocol.

use crate::messaging::protocol::CallError;

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
