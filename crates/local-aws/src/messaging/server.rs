//! A port of its own.

use std::io;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A server on a free port of 127.0.0.1 that runs until it is dropped.
pub struct Server {
    url: String,
    /// Never sent on: the server stops when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Server {
    /// Serves `router`.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start(router: Router) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // The only news is that the sender is gone.
            drop(stopped.await);
        };
        tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(shutdown).into_future());
        Ok(Self { url, _stop: stop })
    }

    /// `http://127.0.0.1:<port>`.
    pub fn url(&self) -> &str {
        &self.url
    }
}
