//! A server on a port of its own.

use std::io;
use std::net::Ipv4Addr;

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
    /// Serves `router` at a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When no port is free.
    pub async fn start(router: Router) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        Self::spawn(listener, |listener, stopped| {
            axum::serve(listener, router).with_graceful_shutdown(stopped).into_future()
        })
    }

    /// Runs `serve` in a task of its own. It must end once the future that it is given has ended.
    pub(crate) fn spawn<F>(
        listener: TcpListener,
        serve: impl FnOnce(TcpListener, BoxFuture<'static, ()>) -> F,
    ) -> io::Result<Self>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel();
        // A listener that fails shows in the calls that fail.
        let serving = tokio::spawn(serve(listener, stopped.map(drop).boxed()).map(drop));
        Ok(Self { url, stop, serving })
    }

    /// The endpoint for an AWS SDK: `http://127.0.0.1:<port>`, unless it was started at another address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops once all requests that have arrived are answered.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        // How the task ended is of no interest: nothing uses the server any more.
        drop(self.serving.await);
    }
}
