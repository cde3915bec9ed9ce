//! Asks for the version of the sources as they are now.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// How long a request to the API waits for a new version. API Gateway responds after 30 seconds at the latest.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Is answered when the version of the sources is used, or with the reason why the functions stay the previous ones.
pub(crate) type UpdateRequest = oneshot::Sender<Result<(), &'static str>>;

/// Sends update requests.
#[derive(Clone, Debug)]
pub(crate) struct UpdateRequests(pub(crate) mpsc::UnboundedSender<UpdateRequest>);

impl UpdateRequests {
    /// Waits until the functions are those of the sources as they are now.
    ///
    /// # Errors
    ///
    /// The reason why they are the previous ones.
    pub(super) async fn send(&self) -> Result<(), &'static str> {
        let (request, answered) = oneshot::channel();
        if self.0.send(request).is_err() {
            return Ok(());
        }
        match tokio::time::timeout(MAX_WAIT, answered).await {
            // Without an answer, the stack stops.
            Ok(answer) => answer.unwrap_or(Ok(())),
            Err(_) => {
                let reason = "the build takes longer than 30 seconds";
                eprintln!("daybook: a request gets its response from the previous functions, because {reason}");
                Err(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_during_a_long_build_is_not_delayed_for_ever_and_gets_the_reason() {
        let (sender, _unanswered) = mpsc::unbounded_channel();
        let began = tokio::time::Instant::now();
        assert_eq!(UpdateRequests(sender).send().await, Err("the build takes longer than 30 seconds"));
        assert!(began.elapsed() < MAX_WAIT + Duration::from_secs(1));
    }
}
