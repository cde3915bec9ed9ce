//! AWS clients for the relay, and the check of the bus. The clients do not retry by themselves, because the relay retries
//! entry by entry.

use std::time::Duration;

use aws_sdk_eventbridge::error::{ProvideErrorMetadata, SdkError};
use aws_types::SdkConfig;
use daybook_function_runtime::with_causes;
use daybook_queue::{SqsClient, without_retries};

use crate::settings::RelaySettings;

/// Time limit for a check of the bus: initialization must not wait for a service that does not respond.
pub(crate) const WARM: Duration = Duration::from_secs(1);

pub fn eventbridge(config: &SdkConfig) -> aws_sdk_eventbridge::Client {
    aws_sdk_eventbridge::Client::new(&without_retries(config))
}

pub fn sqs(config: &SdkConfig) -> SqsClient {
    SqsClient::new(config)
}

/// Checks that the bus of a function exists. The call also resolves credentials and opens a connection, so that the
/// first batch does not have to. Only a bus that certainly does not exist is an error: a missing permission or a bus
/// that does not respond must not stop a relay that could work. Returns whether the bus was found.
pub async fn warm(bus: &aws_sdk_eventbridge::Client, settings: &RelaySettings) -> Result<bool, NoSuchBus> {
    match check_bus(bus, &settings.event_bus_name, WARM).await {
        BusCheck::Exists => Ok(true),
        BusCheck::Missing(missing) => Err(missing),
        BusCheck::NotAllowed(reason) | BusCheck::Failed(reason) => {
            tracing::warn!(reason, "the event bus could not be checked");
            Ok(false)
        }
    }
}

/// The result of a check. `PutEvents` returns event ids for a bus that does not exist and drops the messages, so only another
/// call can detect a wrong name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusCheck {
    Exists,
    Missing(NoSuchBus),
    /// The caller may not check the bus, or it is of another account. Contains the reason.
    NotAllowed(String),
    /// There is no result: the call was throttled, failed or took too long. Contains the reason.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the event bus {name:?} does not exist, and EventBridge would drop every message to it: create the bus, or correct \
     EVENT_BUS_NAME"
)]
pub struct NoSuchBus {
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
