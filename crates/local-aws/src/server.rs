//! A server with its own port.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct Server {
    url: String,
    /// Never sent on: dropping it stops the server.
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Serves `router` on a free port of 127.0.0.1.
    pub async fn start(router: Router) -> io::Result<Self> {
        Self::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, router)
    }

    pub fn serve(listener: TcpListener, router: Router) -> io::Result<Self> {
        Self::spawn(listener, |listener, stopped| {
            axum::serve(listener, router).with_graceful_shutdown(stopped).into_future()
        })
    }

    /// Runs `serve` in its own task. `serve` must end after the future that it receives has ended.
    pub(crate) fn spawn<F>(
        listener: TcpListener,
        serve: impl FnOnce(TcpListener, BoxFuture<'static, ()>) -> F,
    ) -> io::Result<Self>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        // An error of the listener is visible to clients as failed calls.
        let serving = tokio::spawn(serve(listener, stopped.map(drop).boxed()).map(drop));
        Ok(Self { url, stop, serving })
    }

    /// The endpoint for an AWS SDK: `http://127.0.0.1:<port>`, unless the server was started at another address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops accepting connections, and waits until all received requests have a response, but no longer than `grace`:
    /// a client may never send the rest of its request. Its connection then ends with the runtime.
    pub async fn stop(self, grace: Duration) {
        drop(self.stop);
        let mut serving = self.serving;
        if tokio::time::timeout(grace, &mut serving).await.is_err() {
            serving.abort();
        }
    }
}
