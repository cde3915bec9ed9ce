//! Asks for the version of the sources as they are now.

use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// How long requests to the API wait for a build. API Gateway responds after 30 seconds at the latest.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Is answered when the version of the sources is used, or with the reason why the functions stay the previous ones.
pub(crate) type UpdateRequest = oneshot::Sender<Result<(), &'static str>>;

/// Sends update requests.
#[derive(Clone, Debug)]
pub(crate) struct UpdateRequests {
    requests: UnboundedSender<UpdateRequest>,
    /// When the build that runs now has begun.
    build_began: watch::Receiver<Option<Instant>>,
}

/// Where the requests arrive.
pub(crate) struct UpdateQueue {
    pub(crate) requests: UnboundedReceiver<UpdateRequest>,
    /// When the build that runs now has begun; `None` if none runs.
    pub(crate) build_began: watch::Sender<Option<Instant>>,
}

impl UpdateRequests {
    pub(crate) fn new() -> (Self, UpdateQueue) {
        let (sender, requests) = mpsc::unbounded_channel();
        let (build_began, began) = watch::channel(None);
        (Self { requests: sender, build_began: began }, UpdateQueue { requests, build_began })
    }

    /// Waits until the functions are those of the sources as they are now. The wait ends some time after the build has begun, so
    /// that requests during a long build do not wait one after the other.
    pub(super) async fn send(&self) -> Result<(), &'static str> {
        let (request, answered) = oneshot::channel();
        if self.requests.send(request).is_err() {
            return Ok(());
        }
        let now = Instant::now();
        let until = self.build_began.borrow().unwrap_or(now) + MAX_WAIT;
        match timeout_at(until, answered).await {
            // Without an answer, the stack stops.
            Ok(answer) => answer.unwrap_or(Ok(())),
            Err(_) => {
                let reason = "the build takes longer than 30 seconds";
                if now < until {
                    eprintln!("daybook: a request gets its response from the previous functions, because {reason}");
                }
                Err(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_limited_time_after_the_build_has_begun_and_get_the_reason() {
        let (updates, queue) = UpdateRequests::new();
        let began = Instant::now();
        queue.build_began.send_replace(Some(began));
        // The first waits until the end of the time, the second does not wait.
        for _ in 0..2 {
            assert_eq!(updates.send().await, Err("the build takes longer than 30 seconds"));
            assert!((MAX_WAIT..MAX_WAIT + Duration::from_secs(1)).contains(&began.elapsed()), "{:?}", began.elapsed());
        }
        // Another build.
        queue.build_began.send_replace(None);
        let again = Instant::now();
        assert!(updates.send().await.is_err());
        assert!(again.elapsed() >= MAX_WAIT);
    }
}
