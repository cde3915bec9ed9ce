//! The units of a run, and its costs on AWS. A test compares the prices and quantities with docs/deploy.md, "Costs".

use serde::Serialize;
use serde_json::Value;

/// The units and messages of a run.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsedUnits {
    /// Whether a local stack has counted them. Otherwise they are the documented units of each request.
    pub(super) counted: bool,
    pub(super) write_units: f64,
    pub(super) read_units: f64,
    pub(super) messages: f64,
}

impl UsedUnits {
    /// The documented units. A command appends one event and one message, with a few hundred bytes of data each. Every tenth
    /// command loads the state, with 50 events since the snapshot, as each read does.
    pub(super) fn estimated(commands: u64, reads: u64) -> Self {
        let [commands, reads] = [commands, reads].map(|count| count as f64);
        let read_units = 2.0 * commands + 20.0 * reads;
        Self { counted: false, write_units: 7.0 * commands, read_units, messages: commands }
    }

    /// What a local stack has counted from one response of `GET /_dev/usage` to another.
    pub(super) fn between(before: &Value, after: &Value) -> Self {
        let more = |name: &str| after[name].as_f64().unwrap_or_default() - before[name].as_f64().unwrap_or_default();
        let [write_units, read_units, messages] = ["writeUnits", "readUnits", "putEventsEntries"].map(more);
        Self { counted: true, write_units, read_units, messages }
    }

    /// The costs in US dollars, on demand in us-east-1, and their sum.
    pub(super) fn costs(&self, commands: u64, reads: u64) -> ([(&'static str, f64); 6], f64) {
        let (commands, requests) = (commands as f64, (commands + reads) as f64);
        let per_million = [
            ("API Gateway", 1.00 * requests),
            // The command handler; the relay, in the worst case once for each message, and the snapshotter.
            ("Lambda", 0.30 * requests + (0.30 + 0.01) * commands),
            ("DynamoDB writes", 0.625 * self.write_units),
            ("DynamoDB reads", 0.125 * self.read_units),
            ("EventBridge", 1.00 * self.messages),
            ("logs and archive", (1.25 + 0.17) * commands),
        ];
        let costs = per_million.map(|(name, usd)| (name, usd / 1e6));
        (costs, costs.iter().map(|(_, usd)| usd).sum())
    }
}
