//! Why the local stack does not start.

use std::io;
use std::path::PathBuf;

use daybook_consumer::TableError;
use daybook_decider::RegistrationError;
use daybook_event_source_mapping::template::TemplateError;
use daybook_event_store::StoreError;
use daybook_settings::SettingError;
use daybook_stream_relay::NoSuchBus;

use crate::aws::DYNAMODB_ENDPOINT;

/// Why the local stack does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// There is nothing to run.
    #[error(
        "this `daybook` contains no aggregates; run `cargo run` in the folder of your project, or create one with \
         `daybook new`"
    )]
    NoAggregates,
    /// The template cannot be read.
    #[error(
        "cannot read the template {path}; run `daybook` in the folder of your project, or name another with --template"
    )]
    ReadTemplate {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The template is not valid.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A function is missing from the template.
    #[error("the template has no function with Metadata.BuildProperties.Binary: {binary}")]
    NoFunction { binary: &'static str },
    /// Rules need the stack's own bus and queues.
    #[error("--rule needs the stack's own EventBridge and SQS; unset {variable}")]
    RuleWithoutBus {
        /// The variable that names an external service.
        variable: &'static str,
    },
    /// Two functions would share the messages of a queue.
    #[error("the queue {queue} has two targets; give each --rule with another function a queue of another name")]
    TwoFunctions {
        /// Its name.
        queue: String,
    },
    /// The table of the function of a rule cannot be created.
    #[error("cannot create the table {table} for the function of a rule")]
    ConsumerTable {
        /// Its name.
        table: String,
        /// Why.
        source: TableError,
    },
    /// A function's setting is missing or wrong.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The aggregates cannot be registered.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The projections cannot be registered.
    #[error(transparent)]
    Projections(#[from] daybook_projection::ProjectionRegistrationError),
    /// A port is in use.
    #[error(
        "cannot listen on {address} ({option}); if another stack is running, choose other ports with --port, \
         --dynamodb-port and --bus-port"
    )]
    Listen {
        /// Host and port.
        address: String,
        /// The option that changes the port.
        option: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The embedded DynamoDB does not start.
    #[error(transparent)]
    Database(#[from] daybook_local_aws::dynamodb::StartError),
    /// The state in the data file cannot be read.
    #[error(transparent)]
    State(#[from] daybook_local_aws::state::StateError),
    /// The table cannot be created.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The table cannot be created at the endpoint that the environment names.
    #[error("cannot use the DynamoDB at {DYNAMODB_ENDPOINT}={url}; unset the variable to use the stack's own")]
    Elsewhere {
        /// The variable's value.
        url: String,
        /// Why.
        source: StoreError,
    },
    /// The bus does not exist at the endpoint that the environment names.
    #[error(transparent)]
    Bus(#[from] NoSuchBus),
    /// The functions cannot be run in a process of their own.
    #[error("cannot run the functions in a process of their own; --no-restart runs them in this one")]
    Functions(#[source] io::Error),
    /// The process of the functions has ended, or does not respond.
    #[error("the process of the functions ended, or did not start within a minute; see the output above")]
    FunctionsNotStarted,
    /// The sources of the binary are not known.
    #[error("--build-command needs cargo's list of the sources of this binary, and {} does not exist", list.display())]
    UnknownSources {
        /// The file.
        list: PathBuf,
    },
    /// The handlers of Ctrl-C and SIGTERM cannot be installed.
    #[error("cannot handle Ctrl-C")]
    Signals(#[source] io::Error),
    /// Standard output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    /// The table's stream cannot be read.
    #[error("cannot read the table's stream")]
    Stream(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DevError {
    pub(crate) fn stream(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stream(error.into())
    }
}
