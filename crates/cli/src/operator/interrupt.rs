//! Ctrl-C: the first asks a command to end in order, the second ends the process at once.

use tokio::sync::watch;

/// Whether a command is asked to end. Clones share one state.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// Set by Ctrl-C.
    pub fn on_ctrl_c() -> Self {
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            // Without a signal handler, the signal ends the process by itself.
            if tokio::signal::ctrl_c().await.is_ok() {
                eprintln!("daybook: ending after what is under way; Ctrl-C again ends it at once");
                sender.send_replace(true);
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(130);
                }
            }
        });
        Self(receiver)
    }

    /// Set by sending `true`.
    pub fn by(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is set; for ever when nobody can set it any more.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|set| *set).await.is_err() {
            std::future::pending().await
        }
    }
}
