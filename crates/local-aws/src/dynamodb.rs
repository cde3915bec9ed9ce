//! DynamoDB on one machine: the embedded engine behind an endpoint, a wire in front of it that counts and fails, and the
//! same engine without an endpoint.
//!
//! Invariant: every server here listens where it is told to, ends with its handle and leaves nothing behind.

mod engine;
mod wire;

use std::path::Path;

use dynoxide::{Database, server};
pub use engine::{Engine, EngineResponse};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
pub use wire::{FaultProxy, InjectedFault, RecordedCall};

/// A running engine. It stops when it is dropped.
#[derive(Debug)]
pub struct LocalDynamoDb {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), String>>,
}

/// Why the engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data file cannot be opened.
    #[error("cannot open the data file: {0}")]
    Data(String),
    /// No address to listen on.
    #[error("cannot listen: {0}")]
    Listen(#[from] std::io::Error),
}

impl LocalDynamoDb {
    /// Serves at `listener`, from the file `data` or from memory.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(data: Option<&Path>, listener: TcpListener) -> Result<Self, StartError> {
        let database = match data {
            Some(path) => Database::new(&path.to_string_lossy()),
            None => Database::memory(),
        };
        let database = database.map_err(|fault| StartError::Data(fault.to_string()))?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server::serve_with_shutdown(listener, database, async {
            // A dropped handle is as good as a message.
            let _ = stopped.await;
        }));
        Ok(Self { url, stop: Some(stop), serving })
    }

    /// In memory, at a port of the system's choice.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub async fn in_memory() -> Result<Self, StartError> {
        Self::start(None, TcpListener::bind("127.0.0.1:0").await?)
    }

    /// The endpoint for an AWS SDK.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Finishes what is being served and ends.
    pub async fn stop(mut self) {
        self.stop.take();
        // The handle is not used again, so how the server ended is of no more interest.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for LocalDynamoDb {
    fn drop(&mut self) {
        // Dropping the sender ends the server once its connections are idle.
        self.stop.take();
    }
}
