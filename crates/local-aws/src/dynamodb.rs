//! Local DynamoDB: the embedded engine behind an endpoint.
//!
//! `engine`: the database of the engine, and what the local stack does with its private tables. `expiry`: moves its clock, and
//! deletes the rows that have expired. `stream`: the records of a table's stream.

mod engine;
mod expiry;
mod stream;

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use dynoxide::{DynoxideError, server};
use tokio::net::TcpListener;

use crate::server::Server;

pub use engine::OpenError;
pub(crate) use engine::{CHECKPOINTS, connect};
pub use expiry::{ForwardError, TableClock};
pub use stream::TableStream;

/// A running engine. It stops when it is dropped.
#[derive(Debug)]
pub struct LocalDynamoDb {
    server: Server,
    clock: TableClock,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the data file")]
    Data(#[from] OpenError),
    #[error("cannot complete a move of the clock")]
    Clock(#[from] ForwardError),
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}

impl LocalDynamoDb {
    /// Serves at `listener`, from the file `data` or from memory.
    pub fn start(data: Option<&Path>, listener: TcpListener) -> Result<Self, StartError> {
        let (database, name) = engine::open(data)?;
        let clock = TableClock::of(database.clone(), name)?;
        let server =
            Server::spawn(listener, |listener, stopped| server::serve_with_shutdown(listener, database, stopped))?;
        Ok(Self { server, clock })
    }

    /// Serves from memory, on a free port of 127.0.0.1.
    pub async fn in_memory() -> Result<Self, StartError> {
        Self::start(None, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
    }

    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// The clock of its streams and of the expiry of its rows.
    pub fn clock(&self) -> &TableClock {
        &self.clock
    }

    /// The stream of a table; `None` if the table has none.
    pub fn stream(&self, table: &str) -> Result<Option<TableStream>, DynoxideError> {
        TableStream::of_table(&self.clock.database, table)
    }

    /// Stops after all received requests have a response, but after `grace` at the latest.
    pub async fn stop(self, grace: Duration) {
        self.server.stop(grace).await;
    }
}
