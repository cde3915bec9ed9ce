//! Why the local stack does not start.

use std::io;
use std::path::PathBuf;

use daybook_aws_clients::DYNAMODB_ENDPOINT;
use daybook_consumer::TableError;
use daybook_decider::RegistrationError;
use daybook_event_source_mapping::template::TemplateError;
use daybook_event_store::StoreError;
use daybook_settings::SettingError;

#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error(
        "this `daybook` contains no aggregates; run `cargo run` in the folder of your project, or create one with \
         `daybook new`"
    )]
    NoAggregates,
    #[error(
        "cannot read the template {path}; run `daybook` in the folder of your project, or name another with --template"
    )]
    ReadTemplate { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("the template has no function with Metadata.BuildProperties.Binary: {binary}")]
    NoFunction { binary: &'static str },
    #[error("the queue {queue} has two targets; give each --rule with another function a queue of another name")]
    TwoFunctions { queue: String },
    #[error("cannot create the table {table} for the function of a rule")]
    ConsumerTable { table: String, source: TableError },
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    #[error(transparent)]
    Projections(#[from] daybook_projection::ProjectionRegistrationError),
    #[error(
        "cannot listen on {address} ({option}); if another stack is running, choose other ports with --port, \
         --dynamodb-port and --bus-port"
    )]
    Listen { address: String, option: &'static str, source: io::Error },
    #[error(transparent)]
    Database(#[from] daybook_local_aws::dynamodb::StartError),
    #[error(transparent)]
    State(#[from] daybook_local_aws::state::DataFileError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the table is not in the DynamoDB of the stack; unset {DYNAMODB_ENDPOINT}")]
    OtherTable,
    #[error("cannot create the keys table")]
    KeysTable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot run the functions in a process of their own; --no-restart runs them in this one")]
    Functions(#[source] io::Error),
    #[error("the process of the functions ended, or did not start within a minute; see the output above")]
    FunctionsNotStarted,
    #[error("--build-command needs cargo's list of the sources of this binary, and {} does not exist", list.display())]
    UnknownSources { list: PathBuf },
    #[error("cannot handle Ctrl-C")]
    Signals(#[source] io::Error),
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    #[error("cannot read the table's stream")]
    Stream(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl DevError {
    pub(crate) fn stream(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Stream(error.into())
    }
}
