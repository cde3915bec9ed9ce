//! Which aggregates: some by name, those of some types, or all that there are.

use std::str::FromStr;

use clap::Args;
use daybook_decider::{Model, Registry};
use daybook_event_store::admin::{IndexPartition, ScanKey};
use daybook_event_store::{EventStore, StoreError};
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use jiff::Timestamp;
use ulid::Ulid;

use super::OperateError;

/// Which aggregates.
#[derive(Clone, Debug, Default, Args)]
pub struct Selection {
    /// Those of a type; several times for several. All types when nothing is said.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// A name that opening events were stored under and that the code no longer knows; several times for several.
    #[arg(long = "event-type", value_name = "NAME")]
    pub event_types: Vec<String>,
    /// Go on where an earlier run ended: the cursor that it printed.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<Cursor>,
}

/// An aggregate as it is typed: `account/123`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateName(pub AggregateKey);

impl FromStr for AggregateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.split_once('/').filter(|(name, id)| !name.is_empty() && is_id(id));
        let key = key.map(|(name, id)| Self(AggregateKey::new(name, id)));
        key.ok_or_else(|| "an aggregate is named TYPE/ID, as in account/123".to_owned())
    }
}

/// Where a listing goes on: behind an event of a partition of the index.
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
            "a cursor is what an earlier run printed, as in AccountOpened/01M7XZT6Q0G6DHYB4P1612VGXF".to_owned()
        })
    }
}

impl Cursor {
    /// How to go on after an end before the end.
    pub(crate) fn go_on(this: Option<&Self>) -> String {
        this.map_or_else(|| "run it again".to_owned(), |cursor| format!("go on with --after '{cursor}'"))
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.partition, self.after)
    }
}

/// An aggregate that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The aggregate; none when a partition of the table belongs to none.
    pub key: Option<AggregateKey>,
    /// The partition key, or the aggregate's name.
    pub name: String,
    /// Where to go on behind it.
    pub cursor: Option<Cursor>,
    /// How much of all that there is lies before it, from 0 to 1, as far as that can be told.
    pub part: f64,
}

/// The aggregates that are asked for, page by page.
pub enum Listing<'a> {
    /// By name.
    Named(Option<Vec<Found>>),
    /// By their first events, which the index knows.
    Indexed(Indexed<'a>),
    /// By every row of the table.
    Scanned {
        /// The table.
        store: &'a EventStore,
        /// The last row that was seen.
        after: Option<ScanKey>,
        /// Whether it was the last.
        ended: bool,
        /// The last partition that was seen.
        last: Option<String>,
    },
}

/// A walk through partitions of the index.
pub struct Indexed<'a> {
    store: &'a EventStore,
    partitions: Vec<IndexPartition>,
    at: usize,
    first: Ulid,
    /// When the first event of the partition was decided, in milliseconds since 1970.
    begun: Option<u64>,
}

impl Selection {
    /// The listing of these aggregates, or else of those that the options select.
    ///
    /// # Errors
    ///
    /// When a type is not registered, or the cursor is none of these.
    pub fn list<'a>(
        &self,
        store: &'a EventStore,
        registry: &Registry,
        named: &[AggregateName],
    ) -> Result<Listing<'a>, OperateError> {
        if !named.is_empty() {
            for AggregateName(key) in named {
                model(registry, &key.aggregate_type)?;
            }
            let found = |AggregateName(key): &AggregateName| Found {
                key: Some(key.clone()),
                name: key.to_string(),
                cursor: None,
                part: 0.0,
            };
            return Ok(Listing::Named(Some(named.iter().map(found).collect())));
        }
        let models = models(registry, &self.types)?;
        let mut names: Vec<_> = models.iter().flat_map(|model| model.opening_events()).collect();
        names.extend(self.event_types.iter().map(String::as_str));
        let partitions = store.admin().index_partitions(&names);
        let (mut at, mut first) = (0, Ulid::nil());
        if let Some(cursor) = &self.after {
            let place = partitions.iter().position(|partition| partition.to_string() == cursor.partition);
            at = place.ok_or_else(|| {
                OperateError::Usage(format!(
                    "the cursor {cursor} is not of this listing: give the same options as before"
                ))
            })?;
            first = cursor.after.increment().unwrap_or(Ulid::max());
        }
        Ok(Listing::Indexed(Indexed { store, partitions, at, first, begun: None }))
    }
}

/// The models of these types, or of all.
///
/// # Errors
///
/// When a type is not registered.
pub fn models<'a>(registry: &'a Registry, types: &[String]) -> Result<Vec<&'a dyn Model>, OperateError> {
    if types.is_empty() {
        return Ok(registry.iter().collect());
    }
    types.iter().map(|name| model(registry, name)).collect()
}

/// The model of a type.
///
/// # Errors
///
/// When it is not registered.
pub fn model<'a>(registry: &'a Registry, name: &str) -> Result<&'a dyn Model, OperateError> {
    registry.get(name).ok_or_else(|| {
        let known: Vec<_> = registry.iter().map(Model::type_name).collect();
        OperateError::Usage(format!("no aggregate type {name:?} is registered; there are {}", known.join(", ")))
    })
}

impl<'a> Listing<'a> {
    /// Every aggregate of which the table holds any row.
    pub fn scan(store: &'a EventStore) -> Self {
        Self::Scanned { store, after: None, ended: false, last: None }
    }

    /// The next aggregates; none at the end.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn next_page(&mut self) -> Result<Option<Vec<Found>>, StoreError> {
        match self {
            Self::Named(found) => Ok(found.take()),
            Self::Indexed(indexed) => indexed.next_page().await,
            Self::Scanned { store, after, ended, last } => {
                if *ended {
                    return Ok(None);
                }
                let mut page = store.admin().partitions(after.take()).await?;
                *ended = page.next.is_none();
                *after = page.next;
                if last.is_some() && page.items.first() == last.as_ref() {
                    page.items.drain(..1);
                }
                *last = page.items.last().cloned().or(last.take());
                let found = |pk: String| {
                    let key = AggregateKey::from_pk(&pk);
                    Found { name: key.as_ref().map_or(pk, ToString::to_string), key, cursor: None, part: 0.0 }
                };
                Ok(Some(page.items.into_iter().map(found).collect()))
            }
        }
    }
}

impl Indexed<'_> {
    async fn next_page(&mut self) -> Result<Option<Vec<Found>>, StoreError> {
        let Some(partition) = self.partitions.get(self.at) else { return Ok(None) };
        let page = self.store.admin().index(partition, self.first, Ulid::max()).await?;
        let begun = self.begun.or_else(|| page.items.first().map(|entry| entry.event_id.timestamp_ms()));
        let part = |id: Ulid| {
            let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            let begun = begun.unwrap_or(now);
            let whole = now.saturating_sub(begun).max(1) as f64;
            let within = id.timestamp_ms().saturating_sub(begun) as f64 / whole;
            (self.at as f64 + within.min(1.0)) / self.partitions.len() as f64
        };
        let found = page.items.iter().filter(|entry| entry.seq_num == 1).map(|entry| Found {
            key: Some(entry.aggregate.clone()),
            name: entry.aggregate.to_string(),
            cursor: Some(Cursor { partition: partition.to_string(), after: entry.event_id }),
            part: part(entry.event_id),
        });
        let found = found.collect();
        match page.next.and_then(|last| last.increment().ok()) {
            Some(first) => (self.first, self.begun) = (first, begun),
            None => (self.at, self.first, self.begun) = (self.at + 1, Ulid::nil(), None),
        }
        Ok(Some(found))
    }
}
