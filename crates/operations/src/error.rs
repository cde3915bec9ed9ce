//! Why an operator command fails.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use daybook_decider::RegistrationError;
use daybook_event_store::StoreError;
use daybook_projection::ProjectionRegistrationError;
use daybook_settings::SettingError;
use daybook_stream_relay::NoSuchBus;

/// Why an operator command failed. The message is for the person who ran it.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// An argument is not valid.
    #[error("{0}")]
    Usage(String),
    /// A setting is missing or wrong.
    #[error("{error}; the stack's output OperatorEnvironment has it{or_give}")]
    Setting { or_give: String, error: SettingError },
    /// The aggregates cannot be registered.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The projections cannot be registered.
    #[error(transparent)]
    Projections(#[from] ProjectionRegistrationError),
    /// The table cannot be read or written.
    #[error("{doing}")]
    Store { doing: String, source: StoreError },
    /// The table could be read, but what was read cannot be printed.
    #[error("cannot read it: {cause}")]
    Read { cause: String },
    #[error(
        "the table {table:?} does not exist in the region {region}, at {endpoint}; check TABLE_NAME or --table, AWS_REGION and \
         AWS_ENDPOINT_URL_DYNAMODB"
    )]
    MissingTable { table: String, region: String, endpoint: String },
    /// A call to SQS failed.
    #[error("cannot {doing}: {cause}")]
    Queue { doing: &'static str, cause: String },
    /// A call to another service failed.
    #[error("cannot call {service} at {endpoint}: {cause}")]
    Call { service: &'static str, endpoint: String, cause: String },
    /// A stack cannot be deployed, or does not work.
    #[error("{0}")]
    Deployment(String),
    /// The bus does not exist.
    #[error("{0}; nothing was sent")]
    NoSuchBus(NoSuchBus),
    /// Whether the bus exists is unknown.
    #[error("cannot check that the event bus exists: {reason}; nothing was sent, run it again")]
    BusNotChecked { reason: String },
    /// The bus accepts no more messages.
    #[error("the bus accepts no more messages: {cause}; {next}")]
    Bus { cause: String, next: String },
    /// A file cannot be written or read.
    #[error("{doing}")]
    File { doing: String, source: io::Error },
    /// A checkpoint file cannot be read, written or deleted.
    #[error("cannot use the checkpoint {}", file.display())]
    Checkpoint { file: PathBuf, source: io::Error },
    /// The port is not free, or the address is not one of this machine.
    #[error("cannot listen on {address}; choose another port with --port, or check --host")]
    Listen { address: SocketAddr, source: io::Error },
    /// A command that the console runs has panicked, which is an error of the code.
    #[error("the command panicked: {0}; this is a bug. Load the page again to see which messages it has handled")]
    Panicked(String),
    /// The API does not respond.
    #[error("the API at {url} does not respond: {cause}; check --url")]
    Api { url: String, cause: String },
    /// Standard output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}
