//! The signal that ends the stack.

use tokio::sync::watch;

/// Whether the stack must end. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal(watch::Receiver<()>);

impl StopSignal {
    /// A signal, set by dropping the sender.
    pub(crate) fn new() -> (watch::Sender<()>, Self) {
        let (sender, receiver) = watch::channel(());
        (sender, Self(receiver))
    }

    /// Waits until it is set.
    pub(crate) async fn wait(&self) {
        let mut receiver = self.0.clone();
        while receiver.changed().await.is_ok() {}
    }
}
