//! A function behind the HTTP API that does nothing: the baseline of initialization.

use axum::{Router, routing::get};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), lambda_http::Error> {
    lambda_http::run(Router::new().route("/", get(async || ""))).await
}
