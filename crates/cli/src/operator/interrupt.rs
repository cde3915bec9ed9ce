//! Ctrl-C: the first asks for an end between two things, the second ends it at once.

use tokio::sync::watch;

/// Whether somebody wants it to end. A clone is the same.
#[derive(Clone, Debug)]
pub struct Interrupt(watch::Receiver<bool>);

impl Interrupt {
    /// On Ctrl-C.
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

    /// When somebody sends `true`.
    pub fn by(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }

    /// Whether it has been asked for.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked for; for ever when nobody can any more.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|set| *set).await.is_err() {
            std::future::pending().await
        }
    }
}
