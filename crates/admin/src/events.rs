//! The events of one aggregate up to the version of its metadata, page by page.

use std::time::Duration;

use daybook_decider::RecordedEvent;
use daybook_event_store::StoreError;
use daybook_table::AggregateKey;
use tokio::time::sleep;

use crate::handle::Admin;

const PAGE: usize = 1000;

/// Attempts to read an event that the metadata counts. A query during a transaction may leave out some of its rows.
const READS: usize = 20;

const BETWEEN_READS: Duration = Duration::from_millis(50);

impl Admin<'_> {
    /// The next events of an aggregate after number `after`, up to `version`: a maximum of 1 MB. The inner error is the reason
    /// why they cannot be read.
    pub async fn events_up_to(
        &self,
        key: &AggregateKey,
        after: u64,
        version: u64,
    ) -> Result<Result<Vec<RecordedEvent>, String>, StoreError> {
        let left = usize::try_from(version - after).unwrap_or(PAGE).min(PAGE);
        for _ in 0..READS {
            let page = self.store.events(key, after, left).await?;
            if let Some(row) = page.unreadable.first() {
                return Ok(Err(format!("its row {} cannot be read: {}", row.sk, row.reason)));
            }
            if !page.items.is_empty() {
                return Ok(Ok(page.items));
            }
            sleep(BETWEEN_READS).await;
        }
        Ok(Err(format!("event {} is missing, its metadata counts {version}", after + 1)))
    }
}
