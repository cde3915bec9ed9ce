//! The prices and quantities of the table in docs/deploy.md, "Costs": US dollars, on demand in us-east-1. A test compares
//! them with the document.

/// API Gateway, for a million requests.
pub(super) const API_REQUESTS: f64 = 1.00;
/// Lambda, for a million invocations.
pub(super) const INVOCATIONS: f64 = 0.20;
/// Lambda, for a second with one GB of memory.
pub(super) const GB_SECOND: f64 = 0.000_013_3;
/// DynamoDB, for a million write units.
pub(super) const WRITE_UNITS: f64 = 0.625;
/// DynamoDB, for a million read units.
pub(super) const READ_UNITS: f64 = 0.125;
/// EventBridge, for a million messages.
pub(super) const MESSAGES: f64 = 1.00;
/// Logs and the archive of messages, for a million commands.
pub(super) const LOGS_AND_ARCHIVE: f64 = 1.25 + 0.17;

/// The memory and the duration of one invocation, in GB-seconds.
pub(super) const COMMAND_HANDLER_GB_SECONDS: f64 = 0.512 * 0.015;
pub(super) const RELAY_GB_SECONDS: f64 = 0.256 * 0.030;
pub(super) const SNAPSHOTTER_GB_SECONDS: f64 = 0.512 * 0.050;

/// The write units of a command with one event and one message, whose data has a few hundred bytes each.
pub(super) const WRITE_UNITS_PER_COMMAND: f64 = 7.0;
/// The read units of a command: every tenth loads the state, for 20 units.
pub(super) const READ_UNITS_PER_COMMAND: f64 = 2.0;
/// The read units of a read of a state with 50 events since the snapshot.
pub(super) const READ_UNITS_PER_READ: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_those_of_the_deployment_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy.md");
        let document = std::fs::read_to_string(path).unwrap();
        let row = |begins: &str| {
            let row = document.lines().find(|line| line.starts_with(&format!("| {begins}")));
            row.unwrap_or_else(|| panic!("no row {begins}")).to_owned()
        };
        for (begins, expected) in [
            ("API Gateway", format!("{API_REQUESTS:.2} / M")),
            ("Lambda, command handler", format!("{INVOCATIONS:.2} / M + {GB_SECOND:.7} / GB-s")),
            ("Lambda, command handler", "512 MB × 15 ms".to_owned()),
            ("Lambda, relay", "256 MB × 30 ms".to_owned()),
            ("Lambda, snapshotter", "512 MB × 50 ms".to_owned()),
            ("DynamoDB, writes", format!("{WRITE_UNITS} / M")),
            ("DynamoDB, reads", format!("{READ_UNITS} / M")),
            ("DynamoDB, reads", format!("= {READ_UNITS_PER_COMMAND:.1} M units")),
            ("EventBridge, messages", format!("{MESSAGES:.2} / M")),
            ("EventBridge, archive", "| 0.17 |".to_owned()),
            ("Logs", "| 1.25 |".to_owned()),
        ] {
            assert!(row(begins).contains(&expected), "{expected:?} is not in {}", row(begins));
        }
        let prose = document.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in [
            format!("bytes of data take {WRITE_UNITS_PER_COMMAND} units"),
            format!("{READ_UNITS_PER_READ} units with 50 events since the snapshot"),
        ] {
            assert!(prose.contains(&text), "{text:?} is not in the document");
        }
    }
}
