//! The events of a time window, found in the index.

use std::collections::BTreeMap;

use clap::Args;
use daybook_decider::Registry;
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;
use ulid::Ulid;

use crate::operator::progress::ProgressLine;
use crate::operator::selection::{AggregateName, models};
use crate::operator::{Interrupt, OperatorError, check_shards};

/// Which events.
#[derive(Clone, Debug, Args)]
pub struct WindowArgs {
    /// The beginning, included: 2026-11-20T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub from: Timestamp,
    /// The end, not included.
    #[arg(long, value_name = "TIME")]
    pub to: Timestamp,
    /// Only aggregates of this type; can be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with = "types")]
    pub aggregates: Vec<AggregateName>,
    /// An event type that the table contains and the code no longer declares; can be repeated.
    #[arg(long = "event-type", value_name = "NAME")]
    pub event_types: Vec<String>,
    /// Go on after this aggregate, which an earlier run printed.
    #[arg(long, value_name = "TYPE/ID")]
    pub after: Option<AggregateName>,
}

/// The events of a window.
#[derive(Default)]
pub(super) struct WindowEvents {
    pub(super) by_aggregate: BTreeMap<AggregateKey, AggregateEvents>,
    /// Rows of the index that cannot be read.
    pub(super) unreadable: Vec<UnreadableRow>,
    /// The time from which events of the window may still appear.
    pub(super) unsettled_from: Option<Timestamp>,
}

/// The events of an aggregate within the window, by number. The value is the count of the aggregate's messages up to and
/// including those of the event, if the index contains it.
pub(super) type AggregateEvents = BTreeMap<u64, Option<u64>>;

impl WindowArgs {
    /// Finds the events of the window; after Ctrl-C, only some of them.
    pub(super) async fn find_events(
        &self,
        store: &EventStore,
        registry: &Registry,
        interrupt: &Interrupt,
    ) -> Result<WindowEvents, OperatorError> {
        let names = self.event_names(registry)?;
        let (first, last) = self.event_ids()?;
        check_shards(store, &names).await?;
        let settled_up_to = store.settled_up_to(Timestamp::now());
        let unsettled_from = (settled_up_to < self.to).then(|| settled_up_to.max(self.from));
        let mut found = WindowEvents { unsettled_from, ..WindowEvents::default() };
        let progress = ProgressLine::spinner();
        let mut count = 0;
        for partition in store.admin().index_partitions(&names) {
            let mut from = Some(first);
            while let Some(first) = from.filter(|_| !interrupt.is_set()) {
                let page = store.admin().index(&partition, first, last).await.map_err(cannot_read)?;
                for entry in page.items.into_iter().filter(|entry| self.selects(&entry.aggregate)) {
                    count += 1;
                    let of_aggregate = found.by_aggregate.entry(entry.aggregate).or_default();
                    of_aggregate.insert(entry.seq_num, entry.message_seq);
                }
                let unreadable = page.unreadable.into_iter();
                found.unreadable.extend(unreadable.filter(|row| row.aggregate().is_none_or(|key| self.selects(&key))));
                let aggregates = found.by_aggregate.len();
                progress.set_message(format!("{count} events of {aggregates} aggregates, at {partition}"));
                from = keys::id_after(page.cursor).filter(|_| page.more);
            }
        }
        Ok(found)
    }

    /// The names of all events that may have published messages.
    fn event_names<'a>(&'a self, registry: &'a Registry) -> Result<Vec<&'a str>, OperatorError> {
        // `types` and `aggregates` are never both given.
        let of_aggregates = self.aggregates.iter().map(|AggregateName(key)| key.aggregate_type.clone());
        let models = models(registry, &self.types.iter().cloned().chain(of_aggregates).collect::<Vec<_>>())?;
        let mut names: Vec<&str> =
            models.iter().flat_map(|model| model.stored_events()).map(|(name, _)| name).collect();
        names.extend(self.event_types.iter().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// The first and the last id that an event of the window can have.
    fn event_ids(&self) -> Result<(Ulid, Ulid), OperatorError> {
        let milliseconds = |at: Timestamp| u64::try_from(at.as_millisecond()).ok();
        match (milliseconds(self.from), milliseconds(self.to)) {
            (Some(first), Some(end)) if first < end => {
                Ok((Ulid::from_parts(first, 0), Ulid::from_parts(end - 1, u128::MAX)))
            }
            _ => Err(OperatorError::Usage("--from must be before --to, and both after 1970".to_owned())),
        }
    }

    fn selects(&self, key: &AggregateKey) -> bool {
        let by_name = self.aggregates.is_empty() || self.aggregates.iter().any(|name| name.0 == *key);
        let by_type = self.types.is_empty() || self.types.contains(&key.aggregate_type);
        by_name && by_type && self.after.as_ref().is_none_or(|after| *key > after.0)
    }
}

pub(super) fn cannot_read(source: StoreError) -> OperatorError {
    OperatorError::Store { doing: "the events of the window cannot be read".to_owned(), source }
}
