//! Ctrl-C and SIGTERM: the first lets a command finish its current items, the second ends the process at once.

use daybook_local_stack::termination::TerminationSignals;
use tokio::sync::watch;

/// Whether a command must end. Clones share one state.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// An interrupt that Ctrl-C or SIGTERM sets.
    pub fn on_signals() -> Self {
        let (sender, receiver) = watch::channel(false);
        // Without a signal handler, the signal itself ends the process.
        let Ok(mut signals) = TerminationSignals::listen() else { return Self(receiver) };
        tokio::spawn(async move {
            signals.next().await;
            eprintln!("daybook: finishing the current items; press Ctrl-C again to end at once");
            sender.send_replace(true);
            signals.next().await;
            std::process::exit(130);
        });
        Self(receiver)
    }

    /// An interrupt that is set when `receiver` gets `true`.
    pub fn by(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }

    /// Whether it is set.
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
