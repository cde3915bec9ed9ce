//! Asks for the version of the sources as they are now.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// How long a request to the API waits for a new version. API Gateway responds after 30 seconds at the latest.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Is answered, or dropped, when the version of the sources is used, or cannot be built.
pub(crate) type UpdateRequest = oneshot::Sender<()>;

/// Sends update requests.
#[derive(Clone, Debug)]
pub(crate) struct UpdateRequests(pub(crate) mpsc::UnboundedSender<UpdateRequest>);

impl UpdateRequests {
    /// Waits until the functions are those of the sources as they are now, or cannot be built, or until that takes too long.
    pub(super) async fn send(&self) {
        let (request, answered) = oneshot::channel();
        if self.0.send(request).is_ok() {
            // The answer has no content: without one, the functions stay as they are.
            drop(tokio::time::timeout(MAX_WAIT, answered).await);
        }
    }
}
