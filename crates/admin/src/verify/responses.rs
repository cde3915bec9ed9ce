//! Checks of the responses that are stored under idempotency keys.

use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, number, read_stored_response};
use daybook_table::{AggregateKey, attributes};
use jiff::Timestamp;

/// Checks that a repeated request can be answered with the row. A row that has expired is not used.
pub(super) fn check(key: &AggregateKey, row: Item, now: Timestamp) -> Result<(), String> {
    if number::<i64>(&row, attributes::TTL).is_some_and(|ttl| ttl <= now.as_second()) {
        return Ok(());
    }
    let (stored, _) = read_stored_response(key, row).map_err(|error| match error {
        StoreError::Corrupt { source, .. } => source.to_string(),
        other => other.to_string(),
    })?;
    match stored.response.status {
        200..600 => Ok(()),
        status => Err(format!("status cannot be {status}")),
    }
}
