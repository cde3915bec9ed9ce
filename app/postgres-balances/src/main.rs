//! The projector with the target: `app/functions/src/bin/projector.rs` of a project that has one. The function needs a network
//! with the database, its address with name and password in `DATABASE_URL`, and in `DATABASE_CA` the path of a file in its
//! package with the certificates that the database's is checked with, such as `global-bundle.pem` of Amazon RDS.

use std::process::ExitCode;

use postgres_balances::Balances;
use rustls_tokio_postgres::{MakeRustlsConnect, config_from_ca_cert};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

fn main() -> ExitCode {
    daybook::projector::run_with(projections::projections, async |projector| {
        let mut database: Config = variable("DATABASE_URL")?.parse()?;
        // By default, a client also accepts a connection without TLS.
        database.ssl_mode(SslMode::Require);
        let tls = MakeRustlsConnect::new(config_from_ca_cert(variable("DATABASE_CA")?)?);
        Ok(projector.with_target("balances", Balances::new(database, tls)?))
    })
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}
