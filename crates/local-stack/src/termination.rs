//! The signals that end a command: Ctrl-C and SIGTERM.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

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
