//! The stack for the console in the functions' process: the first process has what a page needs, and is asked once.

use std::fmt::Display;
use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::http::header::CONTENT_TYPE;
use daybook_console::stack::{
    BusPart, ControlAction, Controls, DeadLetterAction, DeadLetters, MessageQuery, Reply, StackError, StackSource,
    StreamState,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use crate::servers::forwarding_to;
use crate::usage::{Usage, UsageMeter};

pub(crate) struct RemoteStack {
    /// Forwards requests to the first process.
    stack: Router,
    /// Counts the calls of the functions in this process.
    meter: UsageMeter,
}

impl RemoteStack {
    /// The stack whose first process serves at this address.
    pub(crate) fn new(address: SocketAddr, meter: UsageMeter) -> Self {
        Self { stack: forwarding_to(address), meter }
    }

    async fn ask<T: DeserializeOwned>(&self, part: &str, question: impl Serialize) -> Result<T, StackError> {
        let path = format!("/_dev/console/{part}");
        let failed = |error: &dyn Display| StackError(format!("{path} of the stack cannot be called: {error}"));
        let question = serde_json::to_string(&question).map_err(|error| failed(&error))?;
        let request = Request::post(&path).header(CONTENT_TYPE, "application/json").body(Body::from(question));
        let request = request.map_err(|error| failed(&error))?;
        let response = self.stack.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let status = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.map_err(|error| failed(&error))?;
        if !status.is_success() {
            let body = String::from_utf8_lossy(&body);
            return Err(StackError(format!("{path} of the stack returned {status}: {body}")));
        }
        serde_json::from_slice(&body).map_err(|error| failed(&error))
    }
}

impl StackSource for RemoteStack {
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters> {
        Box::pin(self.ask("dead-letters", action))
    }

    fn messages(&self, query: MessageQuery) -> Reply<'_, BusPart> {
        Box::pin(self.ask("messages", query))
    }

    fn stream(&self) -> Reply<'_, StreamState> {
        Box::pin(async {
            let state: StreamState = self.ask("stream", ()).await?;
            let total = UsageMeter::default();
            total.add(serde_json::from_value::<Usage>(state.usage).unwrap_or_default());
            total.add(self.meter.usage());
            Ok(StreamState { usage: serde_json::to_value(total.usage()).unwrap_or_default(), ..state })
        })
    }

    fn controls(&self, action: ControlAction) -> Reply<'_, Controls> {
        Box::pin(self.ask("controls", action))
    }
}
