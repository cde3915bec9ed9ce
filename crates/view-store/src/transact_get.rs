//! Reads one item, after waiting for a transaction that is changing it.

use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::types::{Get, TransactGetItem};
use daybook_event_store::StoreError;
use tokio::time::sleep;

use crate::items::Item;
use crate::store::ViewStore;

/// Maximum calls for an item, each of which may meet another transaction that is changing it.
const MAX_CALLS: u32 = 10;

/// Maximum length of the first pause before another call. It doubles with each further call, up to 16 times the length.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

impl ViewStore {
    /// The item with this key, if it exists. Waits until no transaction is changing it, for up to [`MAX_CALLS`] calls.
    pub(crate) async fn transact_get(&self, key: Item) -> Result<Option<Item>, StoreError> {
        const DOING: &str = "read a row that is changing";
        let get = Get::builder().table_name(&self.table_name).set_key(Some(key)).build();
        let get = TransactGetItem::builder().get(get.expect("table and key are set")).build();
        for call in 0..MAX_CALLS {
            let error = match self.client.transact_get_items().transact_items(get.clone()).send().await {
                Ok(output) => return Ok(output.responses.and_then(|mut found| found.pop()?.item)),
                Err(error) => error,
            };
            let is_conflict = matches!(
                error.as_service_error(),
                Some(TransactGetItemsError::TransactionCanceledException(cancelled))
                    if cancelled.cancellation_reasons().iter().any(|one| one.code() == Some("TransactionConflict"))
            );
            if !is_conflict {
                return Err(StoreError::of_call(DOING, error));
            }
            sleep((FIRST_PAUSE * 2_u32.pow(call.min(4))).mul_f64(fastrand::f64())).await;
        }
        Err(StoreError::Unavailable { doing: DOING, source: "other transactions change it again and again".into() })
    }
}
