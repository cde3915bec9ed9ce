//! What a number of commands a second needs, and which default quotas that exceeds. Prices are those of "Costs" in
//! docs/deploy.md.

use super::command::{Command, PARTITION_UNITS};

/// The part of the commands that finds no cached state.
const COLD: f64 = 0.1;
/// The duration of an invocation of the command handler as its caller sees it, of the relay and of the snapshotter, in
/// seconds.
const HANDLER: f64 = 0.020;
const RELAY: f64 = 0.030;
const SNAPSHOTTER: f64 = 0.050;
/// The polls of a shard in a second.
const POLLS: f64 = 4.0;

/// A steady load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Commands a second.
    pub commands: u32,
    /// The kind of command.
    pub command: Command,
    /// `SnapshotEvery`.
    pub snapshot_every: u32,
}

/// A limit that has a default.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// What is limited.
    pub name: &'static str,
    /// The need of the load.
    pub need: f64,
    /// The default.
    pub default: f64,
}

impl Load {
    /// The default of `SnapshotEvery`.
    pub const SNAPSHOT_EVERY: u32 = 100;
    /// The default of `ThrottleRate`.
    pub const THROTTLE_RATE: f64 = 500.0;
    /// The maximum of `EventTypeShards`.
    pub const MAX_EVENT_TYPE_SHARDS: f64 = 64.0;
    /// Lambda's quota of concurrent executions.
    pub const CONCURRENCY: f64 = 1_000.0;
    /// The write units in a second for which a new table has partitions.
    pub const NEW_TABLE: f64 = 4_000.0;
    /// The write units in a second that a table, or an index of it, may use.
    pub const TABLE_QUOTA: f64 = 40_000.0;
    /// Requests in a second.
    pub const API_GATEWAY: f64 = 10_000.0;
    /// Requests to EventBridge in a second, in the large regions.
    pub const PUT_EVENTS: f64 = 10_000.0;
    /// Invocations of the targets of all rules in a second, in the large regions.
    pub const RULE_INVOCATIONS: f64 = 18_750.0;

    /// A load with the default of `SnapshotEvery`.
    pub const fn new(commands: u32, command: Command) -> Self {
        Self { commands, command, snapshot_every: Self::SNAPSHOT_EVERY }
    }

    fn rate(self) -> f64 {
        f64::from(self.commands)
    }

    /// Write units of the table in a second, with those of snapshots.
    pub fn table_units(self) -> f64 {
        let (_, snapshot) = self.command.snapshot(self.snapshot_every);
        self.rate() * (f64::from(self.command.append(1).table) + self.snapshots(snapshot))
    }

    /// Write units of the index in a second.
    pub fn index_units(self) -> f64 {
        self.rate() * f64::from(self.command.append(1).index)
    }

    /// Read units in a second: of commands without a cached state, and of snapshots.
    pub fn read_units(self) -> f64 {
        let (snapshot, _) = self.command.snapshot(self.snapshot_every);
        self.rate() * (self.cold_load() + self.snapshots(snapshot))
    }

    /// The read units of a command, most of which find a cached state. The others read half the events between two
    /// snapshots, on average.
    fn cold_load(self) -> f64 {
        COLD * f64::from(self.command.load(self.snapshot_every / 2))
    }

    /// The units for snapshots of a command.
    fn snapshots(self, units: u32) -> f64 {
        f64::from(units) / f64::from(self.snapshot_every)
    }

    /// Partitions of the table, if all of them have the same load. A stream shard belongs to each.
    pub fn partitions(self) -> f64 {
        (self.table_units().max(Self::NEW_TABLE) / PARTITION_UNITS).ceil()
    }

    /// Partitions of the index, if all events are of one type.
    pub fn event_type_shards(self) -> f64 {
        (self.index_units() / PARTITION_UNITS).ceil()
    }

    /// Concurrent executions of the command handler.
    pub fn handlers(self) -> f64 {
        (self.rate() * HANDLER).ceil()
    }

    /// Concurrent executions of the relay: one for each shard, at most.
    pub fn relays(self) -> f64 {
        (self.messages() * RELAY).min(self.partitions()).ceil()
    }

    /// Concurrent executions of the snapshotter: two for each shard, at most.
    pub fn snapshotters(self) -> f64 {
        (self.rate() / f64::from(self.snapshot_every) * SNAPSHOTTER).min(2.0 * self.partitions()).ceil()
    }

    /// Lambda's quota of concurrent executions. It also allows ten requests a second for each of them.
    pub fn concurrency_quota(self) -> f64 {
        self.handlers().max(self.rate() / 10.0) + self.relays() + self.snapshotters()
    }

    fn messages(self) -> f64 {
        self.rate() * f64::from(self.command.messages)
    }

    /// Requests to the bus in a second, with ten messages each at most. Lambda polls each shard.
    pub fn put_events(self) -> f64 {
        let polls = self.partitions() * POLLS;
        (polls * (self.messages() / polls / 10.0).ceil()).min(self.messages())
    }

    /// Checks of the bus in a second: each execution of the relay that gets messages makes one a minute.
    pub fn bus_checks(self) -> f64 {
        self.partitions() / 60.0
    }

    /// The limits whose default the load exceeds, the most exceeded one first.
    pub fn exceeded(self) -> Vec<Limit> {
        let of = |name, need, default| Limit { name, need, default };
        let mut limits = vec![
            of("`ThrottleRate`", self.rate(), Self::THROTTLE_RATE),
            of("one shard of `EventTypeShards`", self.index_units(), PARTITION_UNITS),
            of("new table", self.table_units(), Self::NEW_TABLE),
            of("table quota", self.table_units().max(self.index_units()), Self::TABLE_QUOTA),
            of("API Gateway", self.rate(), Self::API_GATEWAY),
            of("Lambda concurrency", self.concurrency_quota(), Self::CONCURRENCY),
            of("PutEvents", self.put_events(), Self::PUT_EVENTS),
            of("invocations of one rule", self.messages(), Self::RULE_INVOCATIONS),
        ];
        limits.retain(|limit| limit.need > limit.default);
        limits.sort_by(|one, other| (other.need / other.default).total_cmp(&(one.need / one.default)));
        limits
    }

    /// The cost of a million commands in US dollars.
    pub fn cost_of_a_million(self) -> f64 {
        let units = self.command.append(1).sum();
        let (snapshot_read, snapshot_write) = self.command.snapshot(self.snapshot_every);
        let archived = f64::from(self.command.data + Command::MESSAGE) / 1_000.0;
        let snapshots = 0.5 + f64::from(snapshot_write) * 0.625 + f64::from(snapshot_read) * 0.125;
        let api_gateway_handler_relay_bus_and_logs = 1.0 + 0.30 + 0.30 + 1.0 + 1.25;
        api_gateway_handler_relay_bus_and_logs
            + f64::from(units) * 0.625
            + self.cold_load() * 0.125
            + snapshots / f64::from(self.snapshot_every)
            + archived * 0.123
    }

    /// The cost of an hour in US dollars.
    pub fn cost_of_an_hour(self) -> f64 {
        self.cost_of_a_million() * self.rate() * 3_600.0 / 1e6
    }
}
