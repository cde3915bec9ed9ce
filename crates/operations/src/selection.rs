//! Which aggregates an operation is about: by name, by type, or all; their listing, and the cursor that continues it.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use daybook_admin::{AdminCalls, IndexPartition, ScanKey};
use daybook_decider::{Model, Registry};
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_table::{AggregateKey, keys};
use futures_util::stream::{self, LocalBoxStream};
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::error::OperatorError;
use crate::pacing::Interrupt;

/// The aggregates of an operation: `--type account` for those of a type, `account/123` for one, otherwise all.
#[derive(Clone, Debug, Default, Args)]
pub struct Selection {
    /// Only aggregates of this type; can be repeated. Default: all types.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// A type of first events that the table contains and the code no longer declares; can be repeated.
    #[arg(long = "event-type", value_name = "NAME")]
    pub event_types: Vec<String>,
    /// Only these aggregates.
    #[arg(skip)]
    pub aggregates: Vec<AggregateKey>,
    /// Go on where an earlier run ended: the cursor that it printed.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<Cursor>,
}

impl Selection {
    /// Checks that the index partitions of the listing are all that there are.
    pub async fn check(&self, store: &EventStore, registry: &Registry) -> Result<(), OperatorError> {
        match self.aggregates.is_empty() {
            true => check_shards(store, &self.first_events(registry)?).await,
            false => Ok(()),
        }
    }

    pub fn list<'a>(
        &self,
        registry: &Registry,
        interrupt: &'a Interrupt,
        store: &'a EventStore,
        after: Option<&Cursor>,
    ) -> Result<Listing<'a>, OperatorError> {
        if !self.aggregates.is_empty() {
            for key in &self.aggregates {
                model(registry, &key.aggregate_type)?;
            }
            let listed = self.aggregates.iter().map(|key| Ok(ListedAggregate::new(key.clone())));
            return Ok(stream::iter(listed.collect::<Vec<_>>()).boxed_local());
        }
        indexed(store, interrupt, store.admin().index_partitions(&self.first_events(registry)?), after)
    }

    fn first_events<'a>(&'a self, registry: &'a Registry) -> Result<Vec<&'a str>, OperatorError> {
        let models = models(registry, &self.types)?;
        let mut names: Vec<&str> = models.iter().flat_map(|model| model.opening_events()).collect();
        names.extend(self.event_types.iter().map(String::as_str));
        Ok(names)
    }
}

/// The models of these types, or of all types if none is given.
pub fn models<'a>(registry: &'a Registry, types: &[String]) -> Result<Vec<&'a dyn Model>, OperatorError> {
    if types.is_empty() {
        return Ok(registry.iter().collect());
    }
    types.iter().map(|name| model(registry, name)).collect()
}

fn model<'a>(registry: &'a Registry, name: &str) -> Result<&'a dyn Model, OperatorError> {
    registry.get(name).ok_or_else(|| OperatorError::Usage(unregistered(registry, name)))
}

pub fn unregistered(registry: &Registry, name: &str) -> String {
    let known: Vec<_> = registry.iter().map(Model::type_name).collect();
    let known =
        if known.is_empty() { "no aggregate is".to_owned() } else { format!("registered types: {}", known.join(", ")) };
    format!("the aggregate type {name:?} is not registered; {known}")
}

const CONCURRENCY: usize = 100;

/// Checks that no index partition beyond `EVENT_TYPE_SHARDS` contains events of these types. With a value that is too low, a
/// command would miss them, and report that all is well.
///
/// It makes one query for one row of each possible partition, up to the maximum of the setting. It cannot see events that
/// the index does not contain yet, within seconds of their append, and events of other types. A value that is too high is
/// no error: the command then also reads partitions that are empty.
pub async fn check_shards(store: &EventStore, event_types: &[&str]) -> Result<(), OperatorError> {
    let beyond = store.admin().index_partitions_beyond(event_types);
    let found: Vec<(u32, IndexPartition)> = stream::iter(beyond)
        .map(async |(shard, partition)| {
            let is_used = store.admin().has_events(&partition).await?;
            Ok::<_, StoreError>(is_used.then_some((shard, partition)))
        })
        .buffer_unordered(CONCURRENCY)
        .try_filter_map(async |used| Ok(used))
        .try_collect()
        .await
        .map_err(OperatorError::store("cannot check EVENT_TYPE_SHARDS against the index"))?;
    let Some((shard, partition)) = found.into_iter().max_by_key(|(shard, _)| *shard) else { return Ok(()) };
    let (given, least) = (store.settings().event_type_shards, shard + 1);
    Err(OperatorError::Usage(format!(
        "EVENT_TYPE_SHARDS is {given}, but the table's index has events in the partition {partition}, so the functions write \
         with {least} or more: set EVENT_TYPE_SHARDS to the value of the functions, which the stack's \
         output OperatorEnvironment contains"
    )))
}

/// The position from which a listing of the index continues: after an event of an index partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    partition: String,
    after: Ulid,
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let cursor = text.rsplit_once('/').and_then(|(partition, after)| {
            Some(Self { partition: partition.to_owned(), after: keys::parse_id(after)? })
        });
        cursor.ok_or_else(|| {
            "expected a cursor that an earlier run printed, such as AccountOpened/01M7XZT6Q0G6DHYB4P1612VGXF".to_owned()
        })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.after)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ListedAggregate {
    /// The aggregate, unless the partition of the table belongs to none.
    pub key: Option<AggregateKey>,
    /// The aggregate as `TYPE/ID`, or else the partition key.
    pub name: String,
    /// The position of the listing after this aggregate, if it is listed in the index.
    pub cursor: Option<Cursor>,
    /// The estimated fraction of the listing before it, from 0 to 1, if it is listed in the index.
    pub fraction: Option<f64>,
    /// In place of an aggregate, a row of the index that cannot be read. It may be the first event of an aggregate, which is
    /// then not listed.
    pub unreadable: Option<UnreadableRow>,
}

impl ListedAggregate {
    pub fn new(key: AggregateKey) -> Self {
        Self { key: Some(key.clone()), ..Self::unknown(key.to_string()) }
    }

    fn unknown(name: String) -> Self {
        Self { key: None, name, cursor: None, fraction: None, unreadable: None }
    }
}

/// The aggregates of a listing. After Ctrl-C, no further page is read.
pub type Listing<'a> = LocalBoxStream<'a, Result<ListedAggregate, StoreError>>;

/// Maximum items of a query, so that even a page of small items is returned soon.
const PAGE: usize = 1000;

struct IndexListing<'a> {
    store: &'a EventStore,
    partitions: Vec<IndexPartition>,
    /// The position in `partitions` of the partition that is read.
    at: usize,
    /// The lowest event id that the next page may contain.
    first: Ulid,
    /// The time of the first event of the partition, in milliseconds since 1970.
    began_at: Option<u64>,
}

/// The aggregates whose first events are in these partitions of the index, after the cursor.
fn indexed<'a>(
    store: &'a EventStore,
    interrupt: &'a Interrupt,
    partitions: Vec<IndexPartition>,
    after: Option<&Cursor>,
) -> Result<Listing<'a>, OperatorError> {
    let (mut at, mut first) = (0, Ulid::nil());
    if let Some(cursor) = after {
        let position = partitions.iter().position(|partition| partition.to_string() == cursor.partition);
        at = position.ok_or_else(|| {
            OperatorError::Usage(format!(
                "the cursor {cursor} is of another listing; use the same options as the run that printed it"
            ))
        })?;
        first = keys::id_after(cursor.after).unwrap_or(Ulid::max());
    }
    let listing = IndexListing { store, partitions, at, first, began_at: None };
    let pages = stream::try_unfold(listing, move |mut listing| async move {
        let page = if interrupt.is_cancelled() { None } else { listing.next_page().await? };
        Ok::<_, StoreError>(page.map(|page| (stream::iter(page.into_iter().map(Ok)), listing)))
    });
    Ok(pages.try_flatten().boxed_local())
}

impl IndexListing<'_> {
    async fn next_page(&mut self) -> Result<Option<Vec<ListedAggregate>>, StoreError> {
        let Some(partition) = self.partitions.get(self.at) else { return Ok(None) };
        let page = self.store.admin().index(partition, self.first, Ulid::max(), PAGE).await?;
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
            fraction: Some(fraction(entry.event_id)),
            ..ListedAggregate::new(entry.aggregate)
        });
        let unreadable = page.unreadable.into_iter().map(|row| {
            let name = keys::partition_name(&row.pk);
            let fraction = Some(self.at as f64 / self.partitions.len() as f64);
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

const SEGMENTS: u32 = 16;

/// The aggregates with at least one row in the table.
pub(crate) fn scanned<'a>(store: &'a EventStore, interrupt: &'a Interrupt) -> Listing<'a> {
    let segment = |segment| -> Listing<'a> {
        // The position of a page is the row that it follows, none for the first page. The last page has none after it.
        let pages = stream::try_unfold(Some(None), move |position: Option<Option<ScanKey>>| async move {
            let Some(after) = position.filter(|_| !interrupt.is_cancelled()) else { return Ok(None) };
            let (pks, next) = store.admin().partitions((segment, SEGMENTS), after).await?;
            let listed = pks.into_iter().map(|pk| match keys::aggregate_of_pk(&pk) {
                Some(key) => ListedAggregate::new(key),
                None => ListedAggregate::unknown(pk),
            });
            Ok::<_, StoreError>(Some((stream::iter(listed.map(Ok)), next.map(Some))))
        });
        pages.try_flatten().boxed_local()
    };
    stream::select_all((0..SEGMENTS).map(segment)).boxed_local()
}
