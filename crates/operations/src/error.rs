//! Why an operator command fails.

use std::io;

use daybook_decider::RegistrationError;
use daybook_event_store::StoreError;
use daybook_projection::ProjectionRegistrationError;
use daybook_settings::SettingError;
use daybook_stream_relay::NoSuchBus;

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("{0}")]
    Usage(String),
    #[error("{0}; the stack's output OperatorEnvironment has it")]
    Setting(SettingError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error(transparent)]
    Projections(#[from] ProjectionRegistrationError),
    /// The table cannot be read or written.
    #[error("{doing}")]
    Store { doing: String, source: StoreError },
    #[error("cannot {doing}: {cause}")]
    Queue { doing: &'static str, cause: String },
    #[error("cannot call {service} at {endpoint}: {cause}")]
    Call { service: &'static str, endpoint: String, cause: String },
    #[error("{0}; nothing was sent")]
    NoSuchBus(NoSuchBus),
    #[error("the bus accepts no more messages: {cause}; {next}")]
    Bus { cause: String, next: String },
    /// A file or an address cannot be used.
    #[error("{doing}")]
    File { doing: String, source: io::Error },
    /// Something else, which is not wrong in the arguments.
    #[error("{0}")]
    Failed(String),
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl OperatorError {
    /// The exit status of a command that fails with it: 2 for errors in options and settings, 3 for all others.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage(_) | Self::Setting(_)) { 2 } else { 3 }
    }

    /// The error of an operation that cannot do this, because of the table.
    pub(crate) fn store(doing: &str) -> impl Fn(StoreError) -> Self {
        move |source| Self::Store { doing: doing.to_owned(), source }
    }
}
