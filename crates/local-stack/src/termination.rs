//! The signals that end a command, Ctrl-C and SIGTERM, and the one that ends the workers of the stack.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// The signals that end a command. While this exists, they do not end the process by themselves.
#[derive(Debug)]
pub struct TerminationSignals {
    #[cfg(unix)]
    ctrl_c: Signal,
    #[cfg(unix)]
    sigterm: Signal,
}

#[cfg(unix)]
impl TerminationSignals {
    /// Installs the handlers. Must be called within a runtime.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { ctrl_c: signal(SignalKind::interrupt())?, sigterm: signal(SignalKind::terminate())? })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.ctrl_c.recv() => {}
            _ = self.sigterm.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl TerminationSignals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next Ctrl-C; forever without a handler.
    pub async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Whether the stack must end. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal(watch::Receiver<()>);

impl StopSignal {
    /// A signal, set by dropping the sender.
    pub(crate) fn new() -> (watch::Sender<()>, Self) {
        let (sender, receiver) = watch::channel(());
        (sender, Self(receiver))
    }

    pub(crate) async fn wait(&self) {
        let mut receiver = self.0.clone();
        while receiver.changed().await.is_ok() {}
    }
}
