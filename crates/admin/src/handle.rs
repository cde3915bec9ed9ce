//! The handle for administrative calls, and reads of many rows by their keys.

use std::collections::{BTreeSet, HashMap};

use daybook_decider::AggregatePanic;
use daybook_event_store::internal::{Item, batch_get, row_key, text};
use daybook_event_store::{EventStore, StoreError};
use daybook_table::{AggregateKey, attributes};

#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) store: &'a EventStore,
}

pub trait AdminCalls {
    /// The administrative calls, for example `store.admin().verify(model, &key, now)`.
    fn admin(&self) -> Admin<'_>;
}

impl AdminCalls for EventStore {
    fn admin(&self) -> Admin<'_> {
        Admin { store: self }
    }
}

pub(crate) type PrimaryKey = (String, String);

impl Admin<'_> {
    /// The rows with these keys that exist, strongly consistent: all their attributes, or those of `projection`, which must
    /// contain the keys. `doing` is the purpose of the calls, for errors.
    pub(crate) async fn items(
        &self,
        doing: &'static str,
        keys: BTreeSet<PrimaryKey>,
        projection: Option<String>,
    ) -> Result<HashMap<PrimaryKey, Item>, StoreError> {
        let keys = keys.into_iter().map(|(pk, sk)| row_key(pk, sk)).collect();
        let items =
            batch_get((self.store.client(), &self.store.settings().table_name), keys, projection, doing).await?;
        let key = |item: &Item| (text(item, attributes::PK).to_owned(), text(item, attributes::SK).to_owned());
        Ok(items.into_iter().map(|item| (key(&item), item)).collect())
    }
}

/// The error of an aggregate whose code panics.
pub(crate) fn panicked(key: &AggregateKey, panic: AggregatePanic) -> StoreError {
    StoreError::Panicked { item: key.to_string(), source: Box::new(panic) }
}
