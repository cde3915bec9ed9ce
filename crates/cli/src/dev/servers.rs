//! The HTTP servers of the local stack.

use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daybook_local_aws::dynamodb::StartError;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::error::DevError;

/// How long requests may continue after the stop.
const GRACE: Duration = Duration::from_secs(2);

/// API Gateway's limit for a request, in bytes.
const MAX_REQUEST: usize = 10 * 1024 * 1024;

/// Servers on ports of one host. Dropping them ends them at once.
pub(super) struct HttpServers {
    host: IpAddr,
    tasks: JoinSet<()>,
    /// Closing the channel stops the servers.
    stop: watch::Sender<()>,
}

impl HttpServers {
    pub(super) fn new(host: IpAddr) -> Self {
        Self { host, tasks: JoinSet::new(), stop: watch::Sender::new(()) }
    }

    /// Binds a port, which `option` changes.
    pub(super) async fn listen(&self, port: u16, option: &'static str) -> Result<TcpListener, DevError> {
        let failed = |source| DevError::Listen { address: format!("{}:{port}", self.host), option, source };
        TcpListener::bind((self.host, port)).await.map_err(failed)
    }

    /// Serves on a port, which `option` changes. Returns the URL.
    pub(super) async fn serve(&mut self, port: u16, option: &'static str, router: Router) -> Result<String, DevError> {
        let listener = self.listen(port, option).await?;
        let url = format!("http://{}", listener.local_addr().map_err(StartError::from)?);
        let mut stop = self.stop.subscribe();
        self.tasks.spawn(async move {
            let stopped = async move { while stop.changed().await.is_ok() {} };
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
                tracing::error!(%error, "a server failed");
            }
        });
        Ok(url)
    }

    /// Lets the requests that are being served finish, then ends the servers.
    pub(super) async fn stop(mut self) {
        drop(self.stop);
        let all_served = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_served).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

/// Reads a request to its end before the response is sent, as API Gateway does. After an earlier response, the connection would
/// be closed, and the client's next request on it would fail.
pub(super) async fn read_whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match to_bytes(body, MAX_REQUEST).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, [(CONNECTION, "close")]).into_response(),
    }
}
