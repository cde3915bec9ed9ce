//! The calls and units of a run, and their costs on AWS.

use std::collections::BTreeMap;

use serde::Serialize;

use super::prices;
use crate::dev::Usage;

/// The calls and units of a run.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsedUnits {
    /// Whether they were counted by a local stack. Otherwise they are the documented units of each request.
    pub(super) counted: bool,
    pub(super) api_requests: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) dynamodb_calls: BTreeMap<String, u64>,
    pub(super) read_units: f64,
    pub(super) write_units: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) stream_invocations: BTreeMap<String, u64>,
    pub(super) messages: u64,
    /// The number of commands, whose logs and archived messages are part of the costs.
    #[serde(skip)]
    commands: u64,
}

/// The costs on AWS, in US dollars.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Costs {
    api_gateway: f64,
    lambda: f64,
    dynamodb_writes: f64,
    dynamodb_reads: f64,
    event_bridge: f64,
    logs_and_archive: f64,
}

impl UsedUnits {
    /// The documented units of commands and reads. A command publishes one message, which the relay sends alone.
    pub(super) fn estimated(commands: u64, reads: u64) -> Self {
        Self {
            counted: false,
            api_requests: commands + reads,
            dynamodb_calls: BTreeMap::new(),
            read_units: commands as f64 * prices::READ_UNITS_PER_COMMAND + reads as f64 * prices::READ_UNITS_PER_READ,
            write_units: commands as f64 * prices::WRITE_UNITS_PER_COMMAND,
            stream_invocations: [("stream-relay", commands), ("snapshotter", commands / 100)]
                .map(|(function, count)| (function.to_owned(), count))
                .into(),
            messages: commands,
            commands,
        }
    }

    /// The units that a local stack has counted; those of a stack whose DynamoDB is not its own, or that was restarted
    /// meanwhile, are too low.
    pub(super) fn between(before: &Usage, after: &Usage, commands: u64) -> Self {
        let counts = |before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>| {
            let more =
                after.iter().map(|(name, count)| (name.clone(), count.saturating_sub(*before.get(name).unwrap_or(&0))));
            more.filter(|(_, count)| *count > 0).collect()
        };
        let units = |before: Option<f64>, after: Option<f64>| after.unwrap_or_default() - before.unwrap_or_default();
        Self {
            counted: true,
            api_requests: after.api_requests.saturating_sub(before.api_requests),
            dynamodb_calls: counts(&before.dynamodb_calls, &after.dynamodb_calls),
            read_units: units(before.read_units, after.read_units),
            write_units: units(before.write_units, after.write_units),
            stream_invocations: counts(&before.stream_invocations, &after.stream_invocations),
            messages: after.put_events_entries.saturating_sub(before.put_events_entries),
            commands,
        }
    }

    /// The costs of these units on AWS.
    pub(super) fn costs(&self) -> Costs {
        let million = |count: f64, price: f64| count / 1e6 * price;
        let function = |invocations: u64, gb_seconds: f64| {
            million(invocations as f64, prices::INVOCATIONS) + invocations as f64 * gb_seconds * prices::GB_SECOND
        };
        let of_stream = |name: &str| self.stream_invocations.get(name).copied().unwrap_or_default();
        Costs {
            api_gateway: million(self.api_requests as f64, prices::API_REQUESTS),
            lambda: function(self.api_requests, prices::COMMAND_HANDLER_GB_SECONDS)
                + function(of_stream("stream-relay"), prices::RELAY_GB_SECONDS)
                + function(of_stream("snapshotter"), prices::SNAPSHOTTER_GB_SECONDS),
            dynamodb_writes: million(self.write_units, prices::WRITE_UNITS),
            dynamodb_reads: million(self.read_units, prices::READ_UNITS),
            event_bridge: million(self.messages as f64, prices::MESSAGES),
            logs_and_archive: million(self.commands as f64, prices::LOGS_AND_ARCHIVE),
        }
    }
}

impl Costs {
    pub(super) fn total(&self) -> f64 {
        let Self { api_gateway, lambda, dynamodb_writes, dynamodb_reads, event_bridge, logs_and_archive } = self;
        api_gateway + lambda + dynamodb_writes + dynamodb_reads + event_bridge + logs_and_archive
    }

    /// Each cost with its name.
    pub(super) fn lines(&self) -> [(&'static str, f64); 6] {
        [
            ("API Gateway", self.api_gateway),
            ("Lambda", self.lambda),
            ("DynamoDB writes", self.dynamodb_writes),
            ("DynamoDB reads", self.dynamodb_reads),
            ("EventBridge", self.event_bridge),
            ("logs and archive", self.logs_and_archive),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document rounds each row to cents.
    #[test]
    fn estimated_costs_of_a_million_commands_use_the_prices_of_the_deployment_document() {
        let costs = UsedUnits::estimated(1_000_000, 0).costs();
        assert!((8.6..8.8).contains(&costs.total()), "{costs:?}");
        assert!((4.37..4.38).contains(&costs.dynamodb_writes), "{costs:?}");
    }

    #[test]
    fn counted_units_are_those_since_the_beginning() {
        let calls = |count| BTreeMap::from([("TransactWriteItems".to_owned(), count), ("Query".to_owned(), 3)]);
        let usage = |count: u64| Usage {
            api_requests: count,
            dynamodb_calls: calls(count),
            write_units: Some(7.0 * count as f64),
            put_events_entries: count,
            ..Usage::default()
        };
        let used = UsedUnits::between(&usage(10), &usage(110), 100);
        assert_eq!((used.api_requests, used.write_units, used.messages), (100, 700.0, 100));
        assert_eq!(used.dynamodb_calls, BTreeMap::from([("TransactWriteItems".to_owned(), 100)]));
    }
}
