//! The calls and capacity units of a command, a read and a projection, by the rules of DynamoDB.

/// The write units of a partition in a second.
pub(super) const PARTITION_UNITS: f64 = 1_000.0;

/// The items of a transaction.
const MAX_ITEMS: u32 = 100;

/// The latest events that a load reads beside the snapshot.
const FIRST_PAGE: u32 = 4;

/// The write units of a snapshot, whose state takes up to 4 KB. Its read takes one unit.
const SNAPSHOT_WRITE: u32 = 4;

/// A command that appends one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The bytes of the data of the event, and of each message.
    pub data: u32,
    /// The number of messages.
    pub messages: u32,
}

/// The units of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteUnits {
    /// Of the table.
    pub table: u32,
    /// Of the index.
    pub index: u32,
}

impl WriteUnits {
    /// Of both.
    pub fn sum(self) -> u32 {
        self.table + self.index
    }
}

impl Command {
    /// The bytes of an event row beside its data: keys, times, ids and the caller.
    pub const EVENT_ROW: u32 = 407;
    /// The bytes of an outbox row beside its data, with the `metadata` of the message.
    pub const OUTBOX_ROW: u32 = 665;
    /// The bytes of a message beside its data.
    pub const MESSAGE: u32 = 411;

    /// A command with one message.
    pub const fn with_data(data: u32) -> Self {
        Self { data, messages: 1 }
    }

    /// The units of one transaction that appends this number of commands: one for each started KB of a row, and twice that in
    /// a transaction. The metadata is one row for all commands.
    pub const fn append(self, commands: u32) -> WriteUnits {
        let event = (self.data + Self::EVENT_ROW).div_ceil(1024);
        let outbox = (self.data + Self::OUTBOX_ROW).div_ceil(1024);
        WriteUnits { table: 2 * (1 + commands * (event + self.messages * outbox)), index: commands * event }
    }

    /// The number of commands that fit one transaction.
    pub const fn largest_group(self) -> u32 {
        (MAX_ITEMS - 1) / (1 + self.messages)
    }

    /// The read units of a load that is not cached: of the snapshot, of the latest events, and of those between the two.
    pub fn load(self, events_after_snapshot: u32) -> u32 {
        let events = |events: u32| (events * (self.data + Self::EVENT_ROW)).div_ceil(4096);
        1 + events(FIRST_PAGE) + events(events_after_snapshot.saturating_sub(FIRST_PAGE))
    }

    /// The read and write units of a snapshot after this number of events.
    pub fn snapshot(self, every: u32) -> (u32, u32) {
        (self.load(every), SNAPSHOT_WRITE)
    }
}

/// The queries of a page of a feed. The index partition without a number is always read, because it has the events of the time
/// before the first shards.
pub const fn feed_queries(event_type_shards: u32) -> u32 {
    if event_type_shards > 1 { event_type_shards + 1 } else { 1 }
}

/// The calls, read units and write units of a projection of one event of each of these aggregates, which change the same row.
pub const fn projection(aggregates: u32) -> (u32, u32, u32) {
    (aggregates + 3, 2 * aggregates + 1, 2 * aggregates + 2)
}
