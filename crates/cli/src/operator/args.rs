//! The options that select aggregates and messages, and the file of the progress.

use std::path::PathBuf;

use clap::Args;
use daybook_operations::dead_letter_message::MessageFilter;
use daybook_operations::listing::Cursor;
use daybook_operations::selection::{AggregateName, Selection};

/// Which aggregates.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SelectionArgs {
    /// Only aggregates of this type; can be repeated. Default: all types.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) types: Vec<String>,
    /// A type of first events that the table contains and the code no longer declares; can be repeated.
    #[arg(long = "event-type", value_name = "NAME")]
    pub(crate) event_types: Vec<String>,
    /// Go on where an earlier run ended: the cursor that it printed.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<Cursor>,
}

/// Where the progress is stored.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CheckpointArgs {
    /// Store the progress in this file. If the file exists, continue where the run that wrote it ended, with the same options.
    /// The file is deleted when the command is done.
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
}

/// Which dead-letter messages; all if no option is given.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MessageFilterArgs {
    /// Only messages of aggregates of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) aggregate_type: Option<String>,
    /// Only messages of this aggregate.
    #[arg(long, value_name = "TYPE/ID")]
    pub(crate) aggregate: Option<AggregateName>,
    /// Only messages of this type.
    #[arg(long, value_name = "NAME")]
    pub(crate) message_type: Option<String>,
    /// Only messages that failed with this error.
    #[arg(long, value_name = "CODE")]
    pub(crate) error_code: Option<String>,
    /// Only this message, by its message id or by SQS's; can be repeated.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Vec<String>,
    /// Only messages that cannot be sent: they contain an unreadable record, are damaged, or are not from the relay.
    #[arg(long)]
    pub(crate) unreadable: bool,
}

impl SelectionArgs {
    /// The aggregates of these names; if there are none, those that the options select.
    pub(crate) fn with(self, aggregates: Vec<AggregateName>) -> Selection {
        let Self { types, event_types, after } = self;
        Selection { types, event_types, aggregates, after }
    }
}

impl From<MessageFilterArgs> for MessageFilter {
    fn from(args: MessageFilterArgs) -> Self {
        let MessageFilterArgs { aggregate_type, aggregate, message_type, error_code, id: ids, unreadable } = args;
        Self { aggregate_type, aggregate, message_type, error_code, ids, unreadable }
    }
}
