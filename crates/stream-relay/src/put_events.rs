//! The result of each entry, from a response of `PutEvents`.
//!
//! Errors of a message are distinguished from errors of the deployment. A message that cannot be sent goes to the
//! dead-letter queue, and its aggregate continues. An error of the deployment fails every message: sending them all to
//! the dead-letter queue would drain the stream into it. So publishing stops, and the records stay in the stream. A
//! code alone does not prove that an error is about the message; [`breaker`](crate::breaker) has the rule.
//!
//! A response that cannot be read, such as an HTML page of a proxy or a response that breaks off, contains no decision
//! of the bus. It counts as a transient failure, whatever its status.

use aws_sdk_eventbridge::config::http::HttpResponse;
use aws_sdk_eventbridge::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_eventbridge::operation::put_events::{PutEventsError, PutEventsOutput};
use aws_sdk_eventbridge::types::PutEventsResultEntry;
use daybook_function_runtime::{tls_error, with_causes};

use crate::message::EntryError;

/// The code of a connection that failed in TLS: a certificate that is not trusted, or a server that speaks no TLS.
const TLS_FAILURE: &str = "TlsFailure";
const MAX_EXCERPT: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A transient error: the entry is sent again.
    Transient,
    /// The bus throttles, which never depends on the entry: it is sent again.
    Throttled,
    /// An undocumented code of one entry. The entry is sent again a few times and then counts as unsendable. Endless
    /// retries would block the shard because of one message. Without a retry, a transient error would send the message
    /// to the dead-letter queue.
    Unknown,
    /// The bus rejects the entry: it is not sent again.
    Permanent,
    /// The request was rejected because of the contents of one of its entries. Each entry is sent alone to find that
    /// one.
    Suspect,
    /// An error of permissions, credentials, the bus or its policy: sending stops, and an alarm is raised.
    Deployment,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) error: EntryError,
}

impl Failure {
    fn new(kind: FailureKind, code: &str, text: impl Into<String>) -> Self {
        Self { kind, error: EntryError::new(code, text) }
    }
}

pub(crate) fn is_tls_failure(result: &Result<(), Failure>) -> bool {
    result.as_ref().is_err_and(|failure| failure.error.code == TLS_FAILURE)
}

pub(crate) fn entry_results(
    sent: usize,
    response: Result<PutEventsOutput, SdkError<PutEventsError>>,
) -> Vec<Result<(), Failure>> {
    match response {
        Ok(output) => of_entries(sent, &output),
        Err(error) => vec![Err(of_request(sent, &error)); sent],
    }
}

/// Only an event id means that an entry was accepted. A response that contradicts itself settles no entry: the entries
/// may have arrived, and are sent again.
fn of_entries(sent: usize, output: &PutEventsOutput) -> Vec<Result<(), Failure>> {
    let results: Vec<_> = output.entries().iter().map(of_entry).collect();
    let failed = results.iter().filter(|result| result.is_err()).count();
    if results.len() != sent || i32::try_from(failed) != Ok(output.failed_entry_count()) {
        let text = format!(
            "{sent} entries sent, {} results, {failed} of them failures, FailedEntryCount {}",
            results.len(),
            output.failed_entry_count()
        );
        return vec![Err(Failure::new(FailureKind::Transient, "InconsistentResponse", text)); sent];
    }
    results
}

fn of_entry(result: &PutEventsResultEntry) -> Result<(), Failure> {
    let text = result.error_message().unwrap_or_default();
    match (result.error_code(), result.event_id()) {
        (Some(code), _) => Err(Failure::new(of_code(code).unwrap_or(FailureKind::Unknown), code, text)),
        (None, Some(event_id)) if !event_id.is_empty() => Ok(()),
        (None, _) => Err(Failure::new(FailureKind::Transient, "NoResult", "neither an event id nor an error code")),
    }
}

fn of_request(sent: usize, error: &SdkError<PutEventsError>) -> Failure {
    let service = match error {
        SdkError::ServiceError(service) => service,
        // Nothing was sent, and nothing can be: the client is misconfigured.
        SdkError::ConstructionFailure(_) => {
            return Failure::new(FailureKind::Deployment, "ConstructionFailure", with_causes(error));
        }
        SdkError::ResponseError(response) => {
            let text = format!("{}: {}", with_causes(error), excerpt(response.raw()));
            return Failure::new(FailureKind::Transient, "UnreadableResponse", text);
        }
        // There was no connection, it was lost, or no response arrived in time.
        _ => {
            let tls = tls_error(error);
            let code = if tls.is_some() { TLS_FAILURE } else { "NoResponse" };
            return Failure::new(FailureKind::Transient, code, tls.unwrap_or_else(|| with_causes(error)));
        }
    };
    let status = service.raw().status().as_u16();
    let code = match (service.err().code(), status) {
        (Some(code), _) => code,
        (None, 413) => "OversizedEntry",
        (None, _) => return Failure::new(FailureKind::Transient, "UnreadableResponse", excerpt(service.raw())),
    };
    let kind = match kind_of(status, code) {
        Some(FailureKind::Permanent) if sent > 1 => FailureKind::Suspect,
        Some(kind) => kind,
        // The request was rejected as a whole, and the code is not known to be about the contents of an entry. The bus
        // would reject every request.
        None => FailureKind::Deployment,
    };
    Failure::new(kind, code, service.err().message().map_or_else(|| format!("status {status}"), str::to_owned))
}

/// The status and the beginning of a response that cannot be read.
fn excerpt(response: &HttpResponse) -> String {
    let body = String::from_utf8_lossy(response.body().bytes().unwrap_or_default())
        .chars()
        .take(MAX_EXCERPT)
        .collect::<String>();
    format!("status {}, {body:?}", response.status())
}

/// The kind of failure that a status means on its own, whatever the code, or else the code.
fn kind_of(status: u16, code: &str) -> Option<FailureKind> {
    let of_code = of_code(code);
    match status {
        429 => Some(FailureKind::Throttled),
        408 | 500.. if of_code != Some(FailureKind::Throttled) => Some(FailureKind::Transient),
        401 | 403 => Some(FailureKind::Deployment),
        413 => Some(FailureKind::Permanent),
        _ => of_code,
    }
}

/// The codes that AWS documents for entries of `PutEvents` and, as common errors, for all calls, and those that its SDKs
/// treat as throttling.
fn of_code(code: &str) -> Option<FailureKind> {
    match code {
        "InternalFailure"
        | "InternalException"
        | "InternalServerError"
        | "ServiceUnavailable"
        | "ServiceUnavailableException"
        | "RequestTimeout"
        | "RequestTimeoutException" => Some(FailureKind::Transient),

        "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "TooManyRequestsException"
        | "RequestLimitExceeded" => Some(FailureKind::Throttled),

        "MalformedDetail"
        | "InvalidArgument"
        | "RedactionFailure"
        | "ValidationException"
        | "ValidationError"
        | "SerializationException" => Some(FailureKind::Permanent),

        // Source and bus are settings, and the policy of the bus decides which detail types it accepts. A deployment
        // corrects all of them, and then every message can be sent.
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
        | "UnknownOperationException" => Some(FailureKind::Deployment),

        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(failed: i32, results: impl IntoIterator<Item = PutEventsResultEntry>) -> PutEventsOutput {
        PutEventsOutput::builder().failed_entry_count(failed).set_entries(Some(results.into_iter().collect())).build()
    }

    fn accepted() -> PutEventsResultEntry {
        PutEventsResultEntry::builder().event_id("e").build()
    }

    fn failed(code: &str) -> PutEventsResultEntry {
        PutEventsResultEntry::builder().error_code(code).error_message("why").build()
    }

    fn kinds(sent: usize, output: &PutEventsOutput) -> Vec<Option<FailureKind>> {
        of_entries(sent, output).into_iter().map(|result| result.err().map(|failure| failure.kind)).collect()
    }

    #[test]
    fn every_documented_code_of_an_entry_has_a_kind_of_failure() {
        for (code, kind) in [
            ("InternalFailure", FailureKind::Transient),
            ("ThrottlingException", FailureKind::Throttled),
            ("ThrottledException", FailureKind::Throttled),
            ("TooManyRequestsException", FailureKind::Throttled),
            ("MalformedDetail", FailureKind::Permanent),
            ("InvalidArgument", FailureKind::Permanent),
            ("RedactionFailure", FailureKind::Permanent),
            ("AccessDeniedException", FailureKind::Deployment),
            ("InvalidAccountIdException", FailureKind::Deployment),
            ("NotAuthorizedForSourceException", FailureKind::Deployment),
            ("NotAuthorizedForDetailTypeException", FailureKind::Deployment),
            ("SomethingNew", FailureKind::Unknown),
        ] {
            assert_eq!(kinds(2, &output(1, [accepted(), failed(code)])), [None, Some(kind)], "{code}");
        }
        let failure = of_entry(&failed("MalformedDetail")).unwrap_err();
        assert_eq!(failure.error, EntryError::new("MalformedDetail", "why"));
    }

    #[test]
    fn an_entry_without_an_event_id_was_not_accepted() {
        for empty in [PutEventsResultEntry::builder().build(), PutEventsResultEntry::builder().event_id("").build()] {
            assert_eq!(kinds(2, &output(1, [accepted(), empty])), [None, Some(FailureKind::Transient)]);
        }
        let both = PutEventsResultEntry::builder().event_id("e").error_code("InternalFailure").build();
        assert_eq!(kinds(1, &output(1, [both])), [Some(FailureKind::Transient)]);
    }

    #[test]
    fn response_that_contradicts_itself_settles_nothing() {
        for contradiction in [
            output(0, []),
            output(0, [accepted()]),
            output(0, [accepted(), accepted(), accepted()]),
            output(1, [accepted(), accepted()]),
            output(0, [accepted(), failed("InternalFailure")]),
        ] {
            assert_eq!(kinds(2, &contradiction), [Some(FailureKind::Transient); 2], "{contradiction:?}");
        }
    }

    #[test]
    fn rejected_request_has_the_kind_of_failure_of_its_status_or_code() {
        for (status, code, expected) in [
            (500, "InternalFailure", Some(FailureKind::Transient)),
            (503, "ValidationException", Some(FailureKind::Transient)),
            (400, "ThrottlingException", Some(FailureKind::Throttled)),
            (503, "SlowDown", Some(FailureKind::Throttled)),
            (429, "", Some(FailureKind::Throttled)),
            (400, "InternalException", Some(FailureKind::Transient)),
            (400, "ValidationException", Some(FailureKind::Permanent)),
            (413, "", Some(FailureKind::Permanent)),
            (408, "", Some(FailureKind::Transient)),
            (400, "AccessDeniedException", Some(FailureKind::Deployment)),
            (400, "ResourceNotFoundException", Some(FailureKind::Deployment)),
            (400, "ExpiredTokenException", Some(FailureKind::Deployment)),
            (400, "UnrecognizedClientException", Some(FailureKind::Deployment)),
            (403, "SomethingNew", Some(FailureKind::Deployment)),
            (400, "SomethingNew", None),
        ] {
            assert_eq!(kind_of(status, code), expected, "{status} {code}");
        }
    }
}
