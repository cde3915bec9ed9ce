//! Metrics of requests, and the log lines that belong to them.

use daybook_event_store::UnreadableRow;
use metrics::{Unit, counter, describe_counter};

pub(crate) fn describe() {
    for name in ["CommandsExecuted", "MessagesAppended", "RowsUnreadable"] {
        describe_counter!(name, Unit::Count, "");
    }
}

/// Counts the commands that a write has executed, and the messages that it has appended to the outbox. The dashboard
/// divides the costs by the commands. An alarm compares the messages with those that the relay sends: without it, a relay
/// that is not invoked would go unnoticed.
pub(crate) fn count_write(commands: usize, messages: u64) {
    counter!("CommandsExecuted").increment(commands as u64);
    counter!("MessagesAppended").increment(messages);
}

/// Logs and counts the rows that a page leaves out because they cannot be read.
pub(crate) fn report_unreadable(rows: &[UnreadableRow]) {
    for row in rows {
        tracing::warn!(item = %row, error = row.reason, "left out a row that cannot be read");
    }
    counter!("RowsUnreadable").increment(rows.len() as u64);
}
