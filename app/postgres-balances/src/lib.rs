//! A read model in PostgreSQL: the balance of each account, in the table of `schema.sql`. Copy it for a target of your own.
//!
//! Its test starts a PostgreSQL server. So `cargo test --workspace` leaves it out, and `.ci/postgres` runs it, after it has
//! installed PostgreSQL where there is none.

use std::time::Duration;

use aggregates::Account;
use aggregates::account::Event;
use daybook::projector::{EventTarget, TargetError, TargetEvent};
use deadpool_postgres::{BuildError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, Socket};

/// The projector hands over the events of at most 8 aggregates at a time. Each instance of it has connections of its own.
const CONNECTIONS: usize = 8;

/// How long an attempt to connect may take, the check of a connection that was not used for a while, and the silence of a network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// If Lambda ends the process during a transaction, the server may not notice. The row would stay locked without a timeout.
const SERVER_TIMEOUTS: &str = "-c idle_in_transaction_session_timeout=10s -c statement_timeout=10s";

/// The target.
#[derive(Clone)]
pub struct Balances(Pool);

impl Balances {
    /// The table in this database. The first event connects to it, in the way that `tls` describes.
    ///
    /// # Errors
    ///
    /// When the pool of connections cannot be configured.
    pub fn new<T>(mut database: Config, tls: T) -> Result<Self, BuildError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let options = format!("{} {SERVER_TIMEOUTS}", database.get_options().unwrap_or_default());
        database.options(options.trim_start()).tcp_user_timeout(CONNECT_TIMEOUT);
        // Lambda stops the process between invocations, so a connection may be closed without notice: it is verified.
        let verified = ManagerConfig { recycling_method: RecyclingMethod::Verified };
        let pool = Pool::builder(Manager::from_config(database, tls, verified)).max_size(CONNECTIONS);
        let pool = pool.runtime(Runtime::Tokio1).create_timeout(Some(CONNECT_TIMEOUT));
        pool.recycle_timeout(Some(CONNECT_TIMEOUT)).build().map(Self)
    }
}

impl EventTarget<Account> for Balances {
    async fn position(&self, account: &str) -> Result<u64, TargetError> {
        let select = "SELECT position FROM balances WHERE account = $1";
        let row = self.0.get().await?.query_opt(select, &[&account]).await?;
        row.map_or(Ok(0), |row| Ok(row.try_get::<_, i64>(0)?.try_into()?))
    }

    async fn handle(&self, event: TargetEvent<'_, Event>, position: u64) -> Result<(), TargetError> {
        let (account, before, after) = (event.aggregate_id, i64::try_from(position)?, i64::try_from(event.seq_num)?);
        let amounts = event.events.iter().map(|event| match event {
            Event::TransactionAccepted { amount, .. } => *amount,
            Event::Opened { .. } | Event::OwnerUpdated { .. } | Event::TransactionFailed { .. } => 0,
        });
        let amount: i64 = amounts.sum();
        let mut connection = self.0.get().await?;
        let transaction = connection.transaction().await?;
        if position == 0 {
            let insert = "INSERT INTO balances (account, position, balance) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING";
            transaction.execute(insert, &[&account]).await?;
        }
        let update = "UPDATE balances SET position = $3, balance = balance + $4 WHERE account = $1 AND position = $2";
        if transaction.execute(update, &[&account, &before, &after, &amount]).await? != 1 {
            return Err(format!("the position of account {account} is no longer {position}").into());
        }
        // An event that changes other tables too changes them here.
        Ok(transaction.commit().await?)
    }
}
