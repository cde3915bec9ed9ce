//! The embedded engine behind an endpoint.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use dynoxide::{Database, server};
use tokio::net::TcpListener;

use crate::server::Server;

/// A running engine. It stops when it is dropped.
#[derive(Debug)]
pub struct LocalDynamoDb(Server);

/// Why the engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data file cannot be opened.
    #[error("cannot open the data file: {0}")]
    Data(String),
    /// The server cannot listen.
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
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
        let database = database.map_err(|error| StartError::Data(error.to_string()))?;
        Ok(Self(Server::spawn(listener, |listener, stopped| server::serve_with_shutdown(listener, database, stopped))?))
    }

    /// Serves from memory, on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub async fn in_memory() -> Result<Self, StartError> {
        Self::start(None, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
    }

    /// The endpoint for an AWS SDK.
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// Stops after all received requests have a response.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}
