//! Whether the bus exists. `PutEvents` returns event ids for a bus that does not exist and drops the messages, so only
//! another call can detect a wrong name.

use std::time::Duration;

use aws_sdk_eventbridge::error::{ProvideErrorMetadata, SdkError};
use daybook_function_runtime::with_causes;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusCheck {
    /// The bus exists.
    Exists,
    /// EventBridge has no bus of this name.
    Missing(NoSuchBus),
    /// The caller may not check the bus, or it is of another account. Contains the reason.
    NotAllowed(String),
    /// There is no result: the call was throttled, failed or took too long. Contains the reason.
    Failed(String),
}

/// The bus does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the event bus {name:?} does not exist, and EventBridge would drop every message to it: create the bus, or correct \
     EVENT_BUS_NAME"
)]
pub struct NoSuchBus {
    /// The value of `EVENT_BUS_NAME`.
    pub name: String,
}

/// Checks the bus of this name or ARN, within a time limit.
pub async fn check_bus(bus: &aws_sdk_eventbridge::Client, name: &str, limit: Duration) -> BusCheck {
    let call = bus.describe_event_bus().name(name).send();
    let Ok(response) = tokio::time::timeout(limit, call).await else {
        return BusCheck::Failed(format!("no response within {limit:?}"));
    };
    let Err(error) = response else { return BusCheck::Exists };
    let status = error.raw_response().map(|response| response.status().as_u16());
    let code = error.code().unwrap_or_default();
    let reason = match &error {
        SdkError::ServiceError(service) => format!("{code}: {}", service.err().message().unwrap_or_default()),
        _ => with_causes(&error),
    };
    match code {
        // EventBridge may search the caller's account for the bus of another account.
        "ResourceNotFoundException" if name.starts_with("arn:") => BusCheck::NotAllowed(reason),
        "ResourceNotFoundException" => BusCheck::Missing(NoSuchBus { name: name.to_owned() }),
        "AccessDeniedException" | "AccessDenied" | "NotAuthorized" => BusCheck::NotAllowed(reason),
        _ if matches!(status, Some(401 | 403)) => BusCheck::NotAllowed(reason),
        _ => BusCheck::Failed(reason),
    }
}
