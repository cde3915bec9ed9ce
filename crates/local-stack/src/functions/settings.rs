//! What the functions get from the stack: their environment variables, and the endpoints of its services.

use std::net::SocketAddr;

use daybook_console::Access;
use daybook_event_source_mapping::Template;
use daybook_local_aws::clock::LocalClock;
use daybook_stream_relay::changes_queue;
use serde::{Deserialize, Serialize};

use crate::environment::{self, Variables};
use crate::error::DevError;
use crate::services::Services;

/// The settings of all functions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FunctionSettings {
    pub(crate) command_handler: Variables,
    pub(crate) stream_relay: Variables,
    pub(crate) snapshotter: Variables,
    /// `None` if there are no read models.
    pub(crate) projector: Option<Variables>,
    /// The URL of the stack's own DynamoDB; `None` if it is external.
    pub(crate) dynamodb_url: Option<String>,
    /// The URL of the stack's own EventBridge and SQS; `None` if both are external.
    pub(crate) bus_url: Option<String>,
    pub(crate) console: ConsoleSettings,
    /// The clock of the stack. In another process, it is a copy.
    pub(crate) clock: LocalClock,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConsoleSettings {
    /// The HTTP interface of the stack.
    pub(crate) stack: SocketAddr,
    pub(crate) access: Access,
    /// Every version accepts the forms of those before it.
    pub(crate) form_token: String,
}

impl FunctionSettings {
    /// The settings that a template gives its functions.
    pub(crate) fn read(template: &Template, services: &Services, console: ConsoleSettings) -> Result<Self, DevError> {
        let variables = |binary| Ok::<_, DevError>(environment::function(template, binary, &services.sqs)?.1);
        let stream_relay = variables("stream-relay")?;
        let has_read_models = queue_of_projector(&stream_relay).is_some();
        Ok(Self {
            command_handler: variables("command-handler")?,
            stream_relay,
            snapshotter: variables("snapshotter")?,
            projector: has_read_models.then(|| variables("projector")).transpose()?,
            dynamodb_url: services.dynamodb_url().map(str::to_owned),
            bus_url: services.bus_url().map(str::to_owned),
            console,
            clock: services.clock.clone(),
        })
    }
}

/// The queue that the relay sends changes to, for the projector; `None` if there are no read models.
pub(crate) fn queue_of_projector(relay: &Variables) -> Option<String> {
    changes_queue(&environment::of(relay))
}
