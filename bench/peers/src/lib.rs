//! What the functions around the other event stores share: the client, the command, the rule that decides it, and the response. The
//! command is `RecordTransaction` of the suite's aggregate `account`.

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use lambda_http::{Body, Error, Request, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The events after which a snapshot is taken; `None` without snapshots.
pub fn snapshot_every() -> Option<u64> {
    std::env::var("SNAPSHOT_EVERY").ok()?.parse().ok()
}

/// A client with the HTTP client of the suite's functions; region, credentials and endpoint as in Lambda.
pub async fn client() -> Client {
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    Client::new(&aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await)
}

/// The command.
#[derive(Deserialize)]
#[serde(tag = "command", content = "data")]
pub enum Command {
    /// A transaction on the account.
    RecordTransaction { desc: String, amount: i64 },
}

/// The event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A transaction on the account was accepted.
    TransactionAccepted { desc: String, amount: i64 },
}

/// The state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    pub id: String,
    pub owner_first: String,
    pub owner_last: String,
    pub balance: i64,
    pub minimum_balance: i64,
}

impl Account {
    /// The event of a command.
    pub fn decide(&self, command: Command) -> Result<Event, Error> {
        let Command::RecordTransaction { desc, amount } = command;
        if self.balance + amount < self.minimum_balance {
            return Err("insufficient funds".into());
        }
        Ok(Event::TransactionAccepted { desc, amount })
    }

    /// Adds an event.
    pub fn evolve(&mut self, event: &Event) {
        let Event::TransactionAccepted { amount, .. } = event;
        self.balance += amount;
    }
}

/// The id of the aggregate in the path, and the command in the body.
pub fn read(request: &Request) -> Result<(String, Command), Error> {
    let id = request.uri().path().split('/').nth(2).ok_or("the path has no id")?.to_owned();
    Ok((id, serde_json::from_slice(request.body())?))
}

/// The response of a write.
pub fn respond(id: &str, version: u64, state: &Account) -> Result<Response<Body>, Error> {
    let body = json!({"id": id, "version": version, "state": state}).to_string();
    Ok(Response::builder().header("content-type", "application/json").body(body.into())?)
}
