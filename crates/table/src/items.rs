//! The items as structs, which `serde_dynamo` converts to attribute values and back.

use daybook_decider::record::{FIRST_EPOCH, timestamp};
use daybook_decider::{AggregateKey, Claim, Json, Meta, OutboxMessage, RecordedEvent};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use ulid::Ulid;

use crate::{attributes, keys};

/// `#METADATA`: the end of the stream. Appends write it with an update expression, so this struct is only for reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub current_seq_num: u64,
    pub message_seq: u64,
    #[serde(default)]
    pub deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventItem {
    pub pk: String,
    /// The event's number, padded.
    pub sk: String,
    pub seq_num: u64,
    /// ULID.
    pub event_id: String,
    pub event_type: String,
    pub event_version: u32,
    /// JSON text.
    pub data: String,
    pub meta: Meta,
    /// RFC 3339.
    pub occurred_at: String,
    /// The number of messages up to and including this event. With it, a load can number the next message without
    /// reading the metadata.
    pub message_seq: u64,
    /// The epoch of the last of these messages, if it is not 1. With it, the first message of the next epoch is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_epoch: Option<u32>,
    /// The event type, and its shard. An event of a reserved type has none, so it is not in the index.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gsi1pk: String,
    pub gsi1sk: String,
    /// The number of the last event of the same append, on every event but that one. A query during a transaction may
    /// return some of its rows and not others; this attribute shows that more rows follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_end: Option<u64>,
    /// The first events of other aggregates that were appended in the same transaction, each as `type/id@number`; only in the
    /// first event of an append.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<String>,
    /// Present and true when the event was imported without its messages, so it has no outbox rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_published: Option<bool>,
    /// Present and true when the event's number is a multiple of `SNAPSHOT_EVERY` and the aggregate type uses
    /// snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_due: Option<bool>,
}

impl EventItem {
    pub fn new(aggregate: &AggregateKey, event: &RecordedEvent, shards: u32, snapshot_due: bool) -> Self {
        let gsi1pk = match aggregate.is_reserved() {
            true => String::new(),
            false => keys::gsi1pk(&event.event_type, &aggregate.id, shards),
        };
        Self {
            pk: keys::pk(aggregate),
            sk: keys::event_sk(event.seq_num),
            seq_num: event.seq_num,
            event_id: event.event_id.to_string(),
            event_type: event.event_type.clone(),
            event_version: event.event_version,
            data: event.data.text().to_owned(),
            meta: event.meta.clone(),
            occurred_at: timestamp(event.occurred_at),
            message_seq: event.message_seq,
            message_epoch: (event.message_epoch > FIRST_EPOCH).then_some(event.message_epoch),
            gsi1pk,
            gsi1sk: keys::gsi1sk(event.event_id),
            append_end: None,
            together: event.together.clone(),
            not_published: None,
            snapshot_due: snapshot_due.then_some(true),
        }
    }

    pub fn into_event(self) -> Result<RecordedEvent, UnreadableItem> {
        let unreadable = |attribute, value: &str| UnreadableItem {
            item: format!("{} {}", self.pk, self.sk),
            attribute,
            value: value.to_owned(),
        };
        let event_id = Ulid::from_string(&self.event_id).map_err(|_| unreadable("eventId", &self.event_id))?;
        let occurred_at: Timestamp =
            self.occurred_at.parse().map_err(|_| unreadable("occurredAt", &self.occurred_at))?;
        if self.sk != keys::event_sk(self.seq_num) {
            return Err(unreadable("seqNum", &self.seq_num.to_string()));
        }
        let data = Json::parse(self.data.clone()).map_err(|_| unreadable("data", &self.data))?;
        Ok(RecordedEvent {
            seq_num: self.seq_num,
            event_id,
            event_type: self.event_type,
            event_version: self.event_version,
            data,
            meta: self.meta,
            occurred_at,
            message_seq: self.message_seq,
            message_epoch: self.message_epoch.unwrap_or(FIRST_EPOCH),
            together: self.together,
        })
    }
}

/// `OUTBOX#…`: one message, ready to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxItem {
    pub pk: String,
    /// The event's number, padded, and the message's index.
    pub sk: String,
    /// ULID.
    pub message_id: String,
    /// The `DetailType`.
    pub message_type: String,
    /// The message's number among the aggregate's messages.
    pub message_seq: u64,
    /// The `Detail`, JSON text.
    pub detail: String,
    /// RFC 3339.
    pub occurred_at: String,
    pub seq_num: u64,
    /// Seconds since 1970.
    pub ttl: i64,
    /// The trace header of the request, for the bus, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_header: Option<String>,
}

impl OutboxItem {
    pub fn new(aggregate: &AggregateKey, message: &OutboxMessage, ttl: i64) -> Self {
        Self {
            pk: keys::pk(aggregate),
            sk: keys::outbox_sk(message.seq_num, message.index),
            message_id: message.message_id.to_string(),
            message_type: message.message_type.clone(),
            message_seq: message.message_seq,
            detail: message.detail.text().to_owned(),
            occurred_at: timestamp(message.occurred_at),
            seq_num: message.seq_num,
            ttl,
            trace_header: message.trace_header.clone(),
        }
    }
}

/// `#SNAPSHOT` and `SNAPSHOT#…`: the state after some event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotItem {
    pub pk: String,
    /// `#SNAPSHOT`, or the padded number of a kept snapshot's last event.
    pub sk: String,
    pub state: StoredText,
    pub last_seq_num: u64,
    /// The number of messages up to and including that event.
    pub message_seq: u64,
    /// The aggregate's `STATE_VERSION` when it was taken.
    pub state_version: u32,
    /// RFC 3339.
    pub taken_at: String,
    /// Seconds since 1970; only on a kept snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<i64>,
}

/// JSON text, compressed when it is large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoredText {
    Text(String),
    /// Compressed with DEFLATE in a gzip frame.
    Compressed(ByteBuf),
}

/// `IDEMPOTENCY#…`: the response that a repeated request gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdempotencyItem {
    pub pk: String,
    pub sk: String,
    /// The digest that distinguishes the request from others: SHA-256, in hexadecimal digits.
    pub digest: String,
    pub status: u16,
    /// The version in the `ETag`.
    pub version: u64,
    /// The state version in the `ETag`.
    pub state_version: u32,
    pub body: StoredText,
    /// Seconds since 1970. DynamoDB may delete late: an item whose TTL has passed counts as deleted.
    pub ttl: i64,
}

/// `#CLAIM`: the aggregate that has a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimItem {
    pub pk: String,
    /// [`keys::CLAIM`].
    pub sk: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
}

impl ClaimItem {
    pub fn new(claim: &Claim, holder: &AggregateKey) -> Self {
        let AggregateKey { aggregate_type, id: aggregate_id } = holder.clone();
        Self { pk: keys::claim_pk(claim), sk: keys::CLAIM.to_owned(), aggregate_type, aggregate_id }
    }

    pub fn holder(&self) -> AggregateKey {
        AggregateKey::new(&*self.aggregate_type, &*self.aggregate_id)
    }
}

/// `DEADLINE#…`: a command that is due at a time. It is pending, fired or failed ([`DeadlineState`]); the row of one that the
/// state does not declare is deleted. It contains no command: when it is due, the state declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadlineItem {
    pub pk: String,
    /// The name.
    pub sk: String,
    /// RFC 3339.
    pub due: String,
    /// The number of the event that set it.
    pub seq_num: u64,
    pub event_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The aggregate that gets the command of a dispatch, as `account/7`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The partition of those that are pending, or of those that have failed. One that has fired has none, nor has one of a
    /// reserved type.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub gsi1pk: String,
    /// The time again, by which the index sorts.
    pub gsi1sk: String,
    /// Present and true if it was set less than [`SOON`](Self::SOON) before its time, and is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soon: Option<bool>,
    /// RFC 3339; since when its command cannot be executed, if it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Why its command cannot be executed, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// RFC 3339; when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineState {
    /// Its command is to be sent at its time.
    Pending,
    /// Its command was sent. The row exists while the state declares the deadline.
    Fired,
    /// Its command cannot be executed.
    Failed,
}

/// The event that set a deadline, or the last one before its row was corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineCause {
    pub seq_num: u64,
    pub event_id: Ulid,
    pub correlation_id: Option<String>,
}

impl DeadlineItem {
    /// A deadline that is due sooner is not found by the search of each minute alone: the stream passes it on, too.
    pub const SOON: SignedDuration = SignedDuration::from_mins(3);

    /// Maximum bytes of [`error`](Self::error).
    pub const MAX_ERROR: usize = 1024;

    /// The attributes that only some states have.
    pub const OF_STATE: [&str; 5] = [attributes::GSI1PK, "soon", "failingSince", "error", "failedAt"];

    /// A pending deadline that is set at `now`.
    pub fn new(
        aggregate: &AggregateKey,
        (name, due): (&str, Timestamp),
        cause: DeadlineCause,
        shards: u32,
        now: Timestamp,
    ) -> Self {
        let item = Self {
            pk: keys::pk(aggregate),
            sk: keys::deadline_sk(name),
            due: timestamp(due),
            seq_num: cause.seq_num,
            event_id: cause.event_id.to_string(),
            correlation_id: cause.correlation_id,
            to: None,
            gsi1pk: String::new(),
            gsi1sk: keys::deadline_gsi1sk(due),
            soon: (due.duration_since(now) < Self::SOON).then_some(true),
            failing_since: None,
            error: None,
            failed_at: None,
        };
        item.indexed(shards)
    }

    /// The partition of a pending deadline of its aggregate.
    fn indexed(mut self, shards: u32) -> Self {
        let aggregate = keys::aggregate_of_pk(&self.pk).filter(|aggregate| !aggregate.is_reserved());
        self.gsi1pk = aggregate.map(|aggregate| keys::deadline_gsi1pk(&aggregate.id, shards)).unwrap_or_default();
        self
    }

    pub fn fired(self) -> Self {
        Self { gsi1pk: String::new(), soon: None, failing_since: None, error: None, failed_at: None, ..self }
    }

    pub(crate) fn truncated(error: &str) -> String {
        error.chars().take(Self::MAX_ERROR / char::MAX.len_utf8()).collect()
    }

    pub fn failed(self, error: &str, at: Timestamp) -> Self {
        let (gsi1pk, error, failed_at) = (keys::FAILED_DEADLINES.to_owned(), Self::truncated(error), timestamp(at));
        Self { gsi1pk, error: Some(error), failed_at: Some(failed_at), ..self.fired() }
    }

    /// The row while its command cannot be executed. It stays pending.
    pub fn failing(self, since: Timestamp) -> Self {
        Self { soon: None, failing_since: Some(timestamp(since)), ..self }
    }

    /// The row of a deadline that is to be fired again. The search of each minute finds it.
    pub fn pending(self, shards: u32) -> Self {
        self.fired().indexed(shards)
    }

    pub fn state(&self) -> DeadlineState {
        match &*self.gsi1pk {
            "" => DeadlineState::Fired,
            keys::FAILED_DEADLINES => DeadlineState::Failed,
            _ => DeadlineState::Pending,
        }
    }

    pub fn name(&self) -> &str {
        keys::deadline_name(&self.sk)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("item {item}: {attribute} cannot be {value:?}")]
pub struct UnreadableItem {
    pub item: String,
    pub attribute: &'static str,
    pub value: String,
}
