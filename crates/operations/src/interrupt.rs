//! Whether an operation must end: it finishes its current items.

use tokio::sync::watch;

/// Whether an operation must end. Clones share one state.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// An interrupt that is set when `receiver` gets `true`.
    pub fn by(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }

    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is set. If its sender was dropped before, the wait never ends.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|set| *set).await.is_err() {
            std::future::pending().await
        }
    }
}
