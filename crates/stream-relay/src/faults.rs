//! What an answer of EventBridge means for each entry of the request.
//!
//! The line that matters runs between a fault of the message and a fault of the deployment. A message that cannot be sent
//! is parked, and the shard moves on. Where the deployment is at fault, parking would drain the stream into the
//! dead-letter queue one good message after the other: there the relay stops and says so, and the stream waits.

use aws_sdk_eventbridge::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_eventbridge::operation::put_events::{PutEventsError, PutEventsOutput};
use aws_sdk_eventbridge::types::PutEventsResultEntry;
use daybook_function_runtime::with_causes;

use crate::lanes::Verdict;
use crate::message::EntryError;

/// A message that failed with undocumented codes so often is parked.
const MAX_UNKNOWN_FAILURES: u32 = 5;

/// Whose fault a failure is, by what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It passes: send the entry again.
    Transient,
    /// A code that nobody has documented, for one entry. Send it again a few times, then park it: waiting for ever would
    /// block the shard for one message, parking at once would give up on what may pass.
    Unknown,
    /// The message can never be sent: park it.
    Permanent,
    /// The request was refused for what it holds, and it holds several entries: send each alone to find the one.
    Suspect,
    /// Permissions, credentials, the bus or its policy: send nothing more, and alarm.
    Deployment,
}

/// Why an entry was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    pub(crate) refusal: EntryError,
}

impl Failure {
    fn new(fault: Fault, code: &str, text: impl Into<String>) -> Self {
        Self { fault, refusal: EntryError::new(code, text) }
    }

    /// What it means for its entry, of which `unknown` counts the failures with undocumented codes; `again` where it is to be
    /// sent once more.
    pub(crate) fn verdict(&self, unknown: &mut u32, again: Verdict) -> Verdict {
        *unknown += u32::from(self.fault == Fault::Unknown);
        match self.fault {
            Fault::Transient | Fault::Deployment => again,
            Fault::Unknown if *unknown < MAX_UNKNOWN_FAILURES => again,
            Fault::Unknown | Fault::Permanent => Verdict::Refused,
            Fault::Suspect => Verdict::Alone,
        }
    }
}

/// What became of each of the `sent` entries.
pub(crate) fn judge(
    sent: usize,
    response: Result<PutEventsOutput, SdkError<PutEventsError>>,
) -> Vec<Result<(), Failure>> {
    match response {
        Ok(output) => of_entries(sent, &output),
        Err(error) => vec![Err(of_request(sent, &error)); sent],
    }
}

/// Only an event id says that an entry was taken. An answer that contradicts itself says nothing about any: what was
/// sent may have arrived, and is sent again.
fn of_entries(sent: usize, output: &PutEventsOutput) -> Vec<Result<(), Failure>> {
    let results: Vec<_> = output.entries().iter().map(of_entry).collect();
    let failed = results.iter().filter(|result| result.is_err()).count();
    if results.len() != sent || i32::try_from(failed) != Ok(output.failed_entry_count()) {
        let text = format!(
            "{sent} entries sent, {} results, {failed} of them failures, FailedEntryCount {}",
            results.len(),
            output.failed_entry_count()
        );
        return vec![Err(Failure::new(Fault::Transient, "InconsistentAnswer", text)); sent];
    }
    results
}

fn of_entry(result: &PutEventsResultEntry) -> Result<(), Failure> {
    let text = result.error_message().unwrap_or_default();
    match (result.error_code(), result.event_id()) {
        (Some(code), _) => Err(Failure::new(of_code(code).unwrap_or(Fault::Unknown), code, text)),
        (None, Some(event_id)) if !event_id.is_empty() => Ok(()),
        (None, _) => Err(Failure::new(Fault::Transient, "NoResult", "neither an event id nor an error code")),
    }
}

fn of_request(sent: usize, error: &SdkError<PutEventsError>) -> Failure {
    let service = match error {
        SdkError::ServiceError(service) => service,
        // Nothing went out, and nothing will: the client is not set up.
        SdkError::ConstructionFailure(_) => {
            return Failure::new(Fault::Deployment, "ConstructionFailure", with_causes(error));
        }
        // No connection, a lost one, no answer in time, or none that can be read.
        _ => return Failure::new(Fault::Transient, "NoAnswer", with_causes(error)),
    };
    let status = service.raw().status().as_u16();
    let code = service.err().code().unwrap_or("UnknownError");
    let fault = match of_status(status).or_else(|| of_code(code)) {
        Some(Fault::Permanent) if sent > 1 => Fault::Suspect,
        Some(fault) => fault,
        // Refused as a whole, and not known to be for what one entry holds. Every request would be.
        None => Fault::Deployment,
    };
    Failure::new(fault, code, service.err().message().map_or_else(|| format!("status {status}"), str::to_owned))
}

/// What a status says by itself, whatever the code.
fn of_status(status: u16) -> Option<Fault> {
    match status {
        429 | 500.. => Some(Fault::Transient),
        401 | 403 => Some(Fault::Deployment),
        413 => Some(Fault::Permanent),
        _ => None,
    }
}

/// The codes that are documented for entries of `PutEvents` and, as common errors, for all calls.
fn of_code(code: &str) -> Option<Fault> {
    match code {
        "InternalFailure"
        | "InternalException"
        | "InternalServerError"
        | "ServiceUnavailable"
        | "ServiceUnavailableException"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequestsException"
        | "RequestLimitExceeded"
        | "RequestTimeout"
        | "RequestTimeoutException" => Some(Fault::Transient),

        "MalformedDetail"
        | "InvalidArgument"
        | "RedactionFailure"
        | "ValidationException"
        | "ValidationError"
        | "SerializationException" => Some(Fault::Permanent),

        // Source and bus are settings; which detail types the bus takes from us is its policy. All of them are put right
        // by a deployment, and then every message goes through.
        "NotAuthorizedForSourceException"
        | "NotAuthorizedForDetailTypeException"
        | "InvalidAccountIdException"
        | "ResourceNotFoundException"
        | "AccessDenied"
        | "AccessDeniedException"
        | "NotAuthorized"
        | "OptInRequired"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "IncompleteSignature"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "InvalidAction"
        | "UnknownOperationException" => Some(Fault::Deployment),

        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(failed: i32, results: impl IntoIterator<Item = PutEventsResultEntry>) -> PutEventsOutput {
        PutEventsOutput::builder().failed_entry_count(failed).set_entries(Some(results.into_iter().collect())).build()
    }

    fn taken() -> PutEventsResultEntry {
        PutEventsResultEntry::builder().event_id("e").build()
    }

    fn failed(code: &str) -> PutEventsResultEntry {
        PutEventsResultEntry::builder().error_code(code).error_message("why").build()
    }

    fn faults(sent: usize, output: &PutEventsOutput) -> Vec<Option<Fault>> {
        of_entries(sent, output).into_iter().map(|result| result.err().map(|failure| failure.fault)).collect()
    }

    #[test]
    fn every_documented_code_of_an_entry_has_its_fault() {
        for (code, fault) in [
            ("InternalFailure", Fault::Transient),
            ("ThrottlingException", Fault::Transient),
            ("MalformedDetail", Fault::Permanent),
            ("InvalidArgument", Fault::Permanent),
            ("RedactionFailure", Fault::Permanent),
            ("AccessDeniedException", Fault::Deployment),
            ("InvalidAccountIdException", Fault::Deployment),
            ("NotAuthorizedForSourceException", Fault::Deployment),
            ("NotAuthorizedForDetailTypeException", Fault::Deployment),
            ("SomethingNew", Fault::Unknown),
        ] {
            assert_eq!(faults(2, &output(1, [taken(), failed(code)])), [None, Some(fault)], "{code}");
        }
        let failure = of_entry(&failed("MalformedDetail")).unwrap_err();
        assert_eq!(failure.refusal, EntryError::new("MalformedDetail", "why"));
    }

    #[test]
    fn an_entry_without_an_event_id_was_not_taken() {
        for empty in [PutEventsResultEntry::builder().build(), PutEventsResultEntry::builder().event_id("").build()] {
            assert_eq!(faults(2, &output(1, [taken(), empty])), [None, Some(Fault::Transient)]);
        }
        let both = PutEventsResultEntry::builder().event_id("e").error_code("InternalFailure").build();
        assert_eq!(faults(1, &output(1, [both])), [Some(Fault::Transient)]);
    }

    #[test]
    fn an_answer_that_contradicts_itself_settles_nothing() {
        for contradiction in [
            output(0, []),
            output(0, [taken()]),
            output(0, [taken(), taken(), taken()]),
            output(1, [taken(), taken()]),
            output(0, [taken(), failed("InternalFailure")]),
        ] {
            assert_eq!(faults(2, &contradiction), [Some(Fault::Transient); 2], "{contradiction:?}");
        }
    }

    #[test]
    fn a_request_that_was_refused_for_its_status_or_code_has_its_fault() {
        let fault = |status, code| of_status(status).or_else(|| of_code(code));
        for (status, code, expected) in [
            (500, "InternalFailure", Some(Fault::Transient)),
            (503, "ValidationException", Some(Fault::Transient)),
            (400, "ThrottlingException", Some(Fault::Transient)),
            (429, "", Some(Fault::Transient)),
            (400, "InternalException", Some(Fault::Transient)),
            (400, "ValidationException", Some(Fault::Permanent)),
            (413, "", Some(Fault::Permanent)),
            (400, "AccessDeniedException", Some(Fault::Deployment)),
            (400, "ResourceNotFoundException", Some(Fault::Deployment)),
            (400, "ExpiredTokenException", Some(Fault::Deployment)),
            (400, "UnrecognizedClientException", Some(Fault::Deployment)),
            (403, "SomethingNew", Some(Fault::Deployment)),
            (400, "SomethingNew", None),
        ] {
            assert_eq!(fault(status, code), expected, "{status} {code}");
        }
    }
}
