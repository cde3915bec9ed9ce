//! The queue of the projector.

use daybook_function_runtime::with_causes;
use daybook_table::ChangedAggregates;

use super::error::OperatorError;

/// The queue of the projector.
#[derive(Debug)]
pub struct ChangesQueue {
    sqs: aws_sdk_sqs::Client,
    url: String,
}

impl ChangesQueue {
    /// The queue with this URL.
    pub(crate) fn new(sqs: aws_sdk_sqs::Client, url: String) -> Self {
        Self { sqs, url }
    }

    /// Tells the projector that these aggregates have events to project.
    ///
    /// # Errors
    ///
    /// When the queue does not accept the message.
    pub(crate) async fn send(&self, changed: ChangedAggregates) -> Result<(), OperatorError> {
        let body = serde_json::to_string(&changed).expect("texts have a JSON form");
        let sent = self.sqs.send_message().queue_url(&self.url).message_body(body).send().await;
        let error = |error| OperatorError::Queue { doing: "send to the projector's queue", cause: with_causes(&error) };
        sent.map(drop).map_err(error)
    }
}
