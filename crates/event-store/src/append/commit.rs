//! The commit: sends the transaction until its outcome is known.

use std::time::Duration;

use aws_sdk_dynamodb::config::Config;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::types::TransactWriteItem;
use daybook_decider::RecordedEvent;
use tokio::time::{Instant, timeout_at};

use super::attempt_error::AttemptError;
use super::error::AppendError;
use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::event_stream::EventStream;

/// The time after the deadline that an attempt may take if it began before: DynamoDB usually responds faster.
const OVERRUN: Duration = Duration::from_millis(500);

impl EventStream<'_> {
    pub(super) async fn commit(
        &self,
        transaction: &[TransactWriteItem],
        first: Option<&RecordedEvent>,
        stores_response: bool,
        deadline: Instant,
    ) -> Result<(), AppendError> {
        // Unique to this decision, like the id of its first event. A token may have 36 characters.
        let token = first.map_or_else(|| format!("{:032x}", fastrand::u128(..)), |first| first.event_id.to_string());
        let mut backoff = Backoff::until(deadline);
        let mut in_doubt = false;
        loop {
            let attempt = self
                .store
                .client
                .transact_write_items()
                .set_transact_items(Some(transaction.to_vec()))
                .client_request_token(&token)
                .customize()
                .config_override(Config::builder().retry_config(RetryConfig::disabled()))
                .send();
            let error = match timeout_at(deadline + OVERRUN, attempt).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => AttemptError::of(self.key, stores_response, error),
                Err(elapsed) => AttemptError::Unknown(elapsed.into()),
            };
            let cause = match error {
                // The conflict may be with this append's own earlier attempt.
                AttemptError::Final(error) => {
                    return if in_doubt && self.is_stored(first).await? { Ok(()) } else { Err(error) };
                }
                AttemptError::NotWritten(cause) => cause,
                AttemptError::Unknown(cause) => {
                    in_doubt = true;
                    cause
                }
            };
            tracing::debug!(aggregate = %self.key, cause, in_doubt, "the append will be retried");
            if !backoff.wait().await {
                if in_doubt && self.is_stored(first).await? {
                    return Ok(());
                }
                return Err(StoreError::Unavailable { doing: "append", source: cause }.into());
            }
        }
    }

    /// Whether exactly this event is in the stream.
    async fn is_stored(&self, event: Option<&RecordedEvent>) -> Result<bool, StoreError> {
        let Some(event) = event else { return Ok(false) };
        let page = self.store.events(self.key, event.seq_num - 1, 1).await?;
        Ok(page.items.first().is_some_and(|stored| stored.event_id == event.event_id))
    }
}
