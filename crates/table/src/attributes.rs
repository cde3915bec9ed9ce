//! Attribute names, for code that needs a name alone: expressions, projections, key schemas.

pub const PK: &str = "pk";
pub const SK: &str = "sk";
/// The index of events by type.
pub const GSI1: &str = "gsi1";
pub const GSI1PK: &str = "gsi1pk";
pub const GSI1SK: &str = "gsi1sk";
/// When DynamoDB may delete the item, in seconds since 1970.
pub const TTL: &str = "ttl";

/// Every row but the metadata: the checksum of the row, the first 8 bytes of a SHA-256 of its other attributes, but of a
/// kept snapshot without `ttl`. The name is short because so many rows have it.
pub const CHECKSUM: &str = "sum";

pub const AGGREGATE_TYPE: &str = "aggregateType";
pub const AGGREGATE_ID: &str = "aggregateId";
/// Event: its number. Position: that of the last event that was handled.
pub const SEQ_NUM: &str = "seqNum";
/// Position: who gets no more events.
pub const SUSPENDED: &str = "suspended";
/// Metadata: the number of the last event.
pub const CURRENT_SEQ_NUM: &str = "currentSeqNum";
/// The count of messages: in the metadata, of all events; in an event and a snapshot, up to and including that event.
pub const MESSAGE_SEQ: &str = "messageSeq";
/// Metadata: when the first event was appended.
pub const CREATED_AT: &str = "createdAt";
/// Metadata: when the last event was appended.
pub const UPDATED_AT: &str = "updatedAt";
/// Metadata: true once the aggregate is deleted.
pub const DELETED: &str = "deleted";

/// Outbox row: the trace header of the request, where it had one.
pub const TRACE_HEADER: &str = "traceHeader";

/// Event: true when a snapshot should be taken at it.
pub const SNAPSHOT_DUE: &str = "snapshotDue";

/// Deadline: true while it is pending, if it was set shortly before its time.
pub const SOON: &str = "soon";

/// Snapshot: the last event that is folded into it.
pub const LAST_SEQ_NUM: &str = "lastSeqNum";
/// Snapshot: the aggregate's `STATE_VERSION` when it was taken.
pub const STATE_VERSION: &str = "stateVersion";

/// JSON that may have personal values: of an event, of a snapshot, and of a stored response.
pub const DATA: &str = "data";
pub const STATE: &str = "state";
pub const BODY: &str = "body";
