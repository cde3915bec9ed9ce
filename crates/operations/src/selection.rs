//! The selection of aggregates: by name, by type, or all.

use std::str::FromStr;

use clap::Args;
use daybook_admin::{AdminCalls, IndexPartition};
use daybook_decider::{Model, Registry};
use daybook_event_store::{EventStore, StoreError};
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::error::OperatorError;
use crate::listing::{Cursor, ListedAggregate, Listing, indexed};
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
    pub aggregates: Vec<AggregateName>,
    /// Go on where an earlier run ended: the cursor that it printed.
    #[arg(long, value_name = "CURSOR")]
    pub after: Option<Cursor>,
}

/// An aggregate on the command line: `account/123`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateName(pub AggregateKey);

impl FromStr for AggregateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = text.split_once('/').filter(|(name, id)| !name.is_empty() && is_id(id));
        let key = key.map(|(name, id)| Self(AggregateKey::new(name, id)));
        key.ok_or_else(|| "expected an aggregate as TYPE/ID, as in account/123".to_owned())
    }
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
            for AggregateName(key) in &self.aggregates {
                model(registry, &key.aggregate_type)?;
            }
            let listed = self.aggregates.iter().map(|AggregateName(key)| Ok(ListedAggregate::new(key.clone())));
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
