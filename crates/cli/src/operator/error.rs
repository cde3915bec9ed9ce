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
    Setting {
        /// The text that names the option for the same setting; empty if there is none.
        or_give: String,
        /// Which setting, and what is wrong with it.
        error: SettingError,
    },
    /// The aggregates cannot be registered.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The projections cannot be registered.
    #[error(transparent)]
    Projections(#[from] ProjectionRegistrationError),
    /// The table cannot be read or written.
    #[error("{doing}")]
    Store {
        /// What was being done, and how to go on.
        doing: String,
        /// Why it failed.
        source: StoreError,
    },
    /// The table could be read, but what was read cannot be printed.
    #[error("cannot read it: {cause}")]
    Read {
        /// Why.
        cause: String,
    },
    /// The table does not exist.
    #[error(
        "the table {table:?} does not exist in the region {region}, at {endpoint}; check TABLE_NAME or --table, AWS_REGION and \
         AWS_ENDPOINT_URL_DYNAMODB"
    )]
    MissingTable {
        /// Its name.
        table: String,
        /// The region of the calls.
        region: String,
        /// The endpoint of the calls.
        endpoint: String,
    },
    /// A call to SQS failed.
    #[error("cannot {doing}: {cause}")]
    Queue {
        /// What the call should have done.
        doing: &'static str,
        /// The error that it returned.
        cause: String,
    },
    /// A call to another service failed.
    #[error("cannot call {service} at {endpoint}: {cause}")]
    Call {
        service: &'static str,
        /// Its URL.
        endpoint: String,
        /// The error that it returned.
        cause: String,
    },
    /// The bus does not exist.
    #[error("{0}; nothing was sent")]
    NoSuchBus(NoSuchBus),
    /// Whether the bus exists is unknown.
    #[error("cannot check that the event bus exists: {reason}; nothing was sent, run it again")]
    BusNotChecked {
        /// Why it could not be checked.
        reason: String,
    },
    /// The bus accepts no more messages.
    #[error("the bus accepts no more messages: {cause}; {next}")]
    Bus {
        /// The last error that it returned.
        cause: String,
        /// How to go on.
        next: String,
    },
    /// A file cannot be written or read.
    #[error("{doing}")]
    File {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A checkpoint file cannot be read, written or deleted.
    #[error("cannot use the checkpoint {}", file.display())]
    Checkpoint {
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The port is not free, or the address is not one of this machine.
    #[error("cannot listen on {address}; choose another port with --port, or check --host")]
    Listen {
        /// The address and the port.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A command that the console runs has panicked, which is an error of the code.
    #[error("the command panicked: {0}; this is a bug. Load the page again to see which messages it has handled")]
    Panicked(String),
    /// The API does not respond.
    #[error("the API at {url} does not respond: {cause}; check --url")]
    Api {
        url: String,
        /// Why.
        cause: String,
    },
    /// Standard output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl OperatorError {
    /// The exit status: 2 for errors in options and settings, 3 for all others.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Setting { .. } => 2,
            Self::Registration(_)
            | Self::Projections(_)
            | Self::Store { .. }
            | Self::Read { .. }
            | Self::MissingTable { .. }
            | Self::Queue { .. }
            | Self::Call { .. }
            | Self::NoSuchBus(_)
            | Self::BusNotChecked { .. }
            | Self::Bus { .. }
            | Self::File { .. }
            | Self::Checkpoint { .. }
            | Self::Listen { .. }
            | Self::Panicked(_)
            | Self::Api { .. }
            | Self::Output(_) => 3,
        }
    }
}
