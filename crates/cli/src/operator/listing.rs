//! The aggregates of a listing, page by page, and the cursor that continues one.

use std::fmt;
use std::str::FromStr;

use daybook_event_store::admin::{IndexPartition, ScanKey};
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;
use ulid::Ulid;

use super::error::OperatorError;

/// The position from which a listing continues: after an event of an index partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    partition: String,
    after: Ulid,
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cursor = text.rsplit_once('/').and_then(|(partition, after)| {
            Some(Self { partition: partition.to_owned(), after: Ulid::from_string(after).ok()? })
        });
        cursor.ok_or_else(|| {
            "expected a cursor that an earlier run printed, such as AccountOpened/01M7XZT6Q0G6DHYB4P1612VGXF".to_owned()
        })
    }
}

impl Cursor {
    /// How to go on after a command stopped early.
    pub(crate) fn how_to_go_on(this: Option<&Self>) -> String {
        this.map_or_else(|| "run it again".to_owned(), |cursor| format!("go on with --after '{cursor}'"))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.after)
    }
}

/// An aggregate of a listing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedAggregate {
    /// The aggregate, unless the partition of the table belongs to none.
    pub(crate) key: Option<AggregateKey>,
    /// The aggregate as `TYPE/ID`, or else the partition key.
    pub(crate) name: String,
    /// The cursor that continues the listing after this aggregate.
    pub(crate) cursor: Option<Cursor>,
    /// The estimated fraction of the listing before it, from 0 to 1.
    pub(crate) fraction: f64,
    /// In place of an aggregate, a row of the index that cannot be read. It may be the first event of an aggregate, which is
    /// then not listed.
    pub(crate) unreadable: Option<UnreadableRow>,
}

impl ListedAggregate {
    pub(crate) fn new(key: AggregateKey) -> Self {
        Self { key: Some(key.clone()), ..Self::unknown(key.to_string()) }
    }

    /// An entry that belongs to no aggregate.
    fn unknown(name: String) -> Self {
        Self { key: None, name, cursor: None, fraction: 0.0, unreadable: None }
    }
}

/// Aggregates, page by page.
pub(crate) enum Listing<'a> {
    /// Those named on the command line; `None` after they have been returned.
    Named(Option<Vec<ListedAggregate>>),
    /// Those whose first events are in the index.
    Indexed(IndexListing<'a>),
    /// Those with at least one row in the table.
    Scanned(ScanListing<'a>),
}

/// A listing over index partitions.
pub(crate) struct IndexListing<'a> {
    store: &'a EventStore,
    partitions: Vec<IndexPartition>,
    /// The position in `partitions` of the partition that is read.
    at: usize,
    /// The lowest event id that the next page may contain.
    first: Ulid,
    /// The time of the first event of the partition, in milliseconds since 1970.
    began_at: Option<u64>,
}

/// A listing over all rows of the table.
pub(crate) struct ScanListing<'a> {
    store: &'a EventStore,
    /// The last row that was read.
    after: Option<ScanKey>,
    ended: bool,
    /// The partition key of the last row that was read. The next page may begin with the same key.
    last_pk: Option<String>,
}

impl<'a> Listing<'a> {
    /// The aggregates whose first events are in these partitions, from the cursor on.
    ///
    /// # Errors
    ///
    /// When the cursor is of another listing.
    pub(crate) fn indexed(
        store: &'a EventStore,
        partitions: Vec<IndexPartition>,
        cursor: Option<&Cursor>,
    ) -> Result<Self, OperatorError> {
        let (mut at, mut first) = (0, Ulid::nil());
        if let Some(cursor) = cursor {
            let position = partitions.iter().position(|partition| partition.to_string() == cursor.partition);
            at = position.ok_or_else(|| {
                OperatorError::Usage(format!(
                    "the cursor {cursor} is of another listing; use the same options as the run that printed it"
                ))
            })?;
            first = keys::id_after(cursor.after).unwrap_or(Ulid::max());
        }
        Ok(Self::Indexed(IndexListing { store, partitions, at, first, began_at: None }))
    }

    /// The aggregates with at least one row in the table.
    pub(crate) fn scan(store: &'a EventStore) -> Self {
        Self::Scanned(ScanListing { store, after: None, ended: false, last_pk: None })
    }

    /// The next aggregates; none at the end.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub(crate) async fn next_page(&mut self) -> Result<Option<Vec<ListedAggregate>>, StoreError> {
        match self {
            Self::Named(named) => Ok(named.take()),
            Self::Indexed(indexed) => indexed.next_page().await,
            Self::Scanned(scanned) => scanned.next_page().await,
        }
    }
}

impl IndexListing<'_> {
    async fn next_page(&mut self) -> Result<Option<Vec<ListedAggregate>>, StoreError> {
        let Some(partition) = self.partitions.get(self.at) else { return Ok(None) };
        let page = self.store.admin().index(partition, self.first, Ulid::max()).await?;
        let began_at = self.began_at.or_else(|| page.items.first().map(|entry| entry.event_id.timestamp_ms()));
        let fraction = |id: Ulid| {
            let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            let began_at = began_at.unwrap_or(now);
            let duration = now.saturating_sub(began_at).max(1) as f64;
            let of_partition = id.timestamp_ms().saturating_sub(began_at) as f64 / duration;
            (self.at as f64 + of_partition.min(1.0)) / self.partitions.len() as f64
        };
        let listed = page.items.into_iter().filter(|entry| entry.seq_num == 1).map(|entry| ListedAggregate {
            cursor: Some(Cursor { partition: partition.to_string(), after: entry.event_id }),
            fraction: fraction(entry.event_id),
            ..ListedAggregate::new(entry.aggregate)
        });
        let unreadable = page.unreadable.into_iter().map(|row| {
            let name = row.aggregate().map_or_else(|| row.pk.clone(), |key| key.to_string());
            let fraction = self.at as f64 / self.partitions.len() as f64;
            ListedAggregate { fraction, unreadable: Some(row), ..ListedAggregate::unknown(name) }
        });
        let listed = unreadable.chain(listed).collect();
        match keys::id_after(page.cursor).filter(|_| page.more) {
            Some(first) => (self.first, self.began_at) = (first, began_at),
            None => (self.at, self.first, self.began_at) = (self.at + 1, Ulid::nil(), None),
        }
        Ok(Some(listed))
    }
}

impl ScanListing<'_> {
    async fn next_page(&mut self) -> Result<Option<Vec<ListedAggregate>>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let (mut pks, next) = self.store.admin().partitions(self.after.take()).await?;
        self.ended = next.is_none();
        self.after = next;
        if self.last_pk.is_some() && pks.first() == self.last_pk.as_ref() {
            pks.drain(..1);
        }
        self.last_pk = pks.last().cloned().or(self.last_pk.take());
        let listed = |pk: String| match AggregateKey::from_pk(&pk) {
            Some(key) => ListedAggregate::new(key),
            None => ListedAggregate::unknown(pk),
        };
        Ok(Some(pks.into_iter().map(listed).collect()))
    }
}
