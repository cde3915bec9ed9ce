//! The stack for the console in the functions' process: the first process has what a page needs, and is asked once.

use std::fmt::Display;
use std::net::SocketAddr;

use axum::Router;
use axum::http::Method;
use daybook_console::stack::{
    ControlAction, Controls, DeadLetterAction, DeadLetters, Reply, StackError, StackSource, StreamState,
};
use daybook_local_aws::messaging::{BusPart, MessageQuery};
use daybook_queue::Queue;
use daybook_table::{AggregateKey, ChangedAggregates};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::servers::{call, forwarding_to};

const SEND_ATTEMPTS: u32 = 3;

pub(crate) struct RemoteStack {
    stack: Router,
    /// The queue of the projector; `None` if there are no read models.
    changes: Option<Queue>,
}

impl RemoteStack {
    pub(crate) fn new(address: SocketAddr, changes: Option<Queue>) -> Self {
        Self { stack: forwarding_to(address), changes }
    }

    async fn ask<T: DeserializeOwned>(&self, part: &str, question: impl Serialize) -> Result<T, StackError> {
        let path = format!("/_dev/console/{part}");
        let failed = |error: &dyn Display| StackError(format!("{path} of the stack cannot be called: {error}"));
        let question = serde_json::to_string(&question).map_err(|error| failed(&error))?;
        let reply = call(self.stack.clone(), Method::POST, &path, question).await.map_err(|error| failed(&error))?;
        serde_json::from_str(&reply).map_err(|error| failed(&error))
    }
}

impl StackSource for RemoteStack {
    fn dead_letters(&self, action: DeadLetterAction) -> Reply<'_, DeadLetters> {
        Box::pin(self.ask("dead-letters", action))
    }

    fn project(&self, aggregate: AggregateKey, event: u64) -> Reply<'_, ()> {
        Box::pin(async move {
            let changes = self.changes.as_ref().ok_or_else(|| StackError("there is no projector".to_owned()))?;
            let message = ChangedAggregates::one(aggregate, event).to_body();
            changes.send(&message, SEND_ATTEMPTS, None).await.map_err(StackError)
        })
    }

    fn messages(&self, query: MessageQuery) -> Reply<'_, BusPart> {
        Box::pin(self.ask("messages", query))
    }

    fn stream(&self) -> Reply<'_, StreamState> {
        Box::pin(self.ask("stream", ()))
    }

    fn controls(&self, action: ControlAction) -> Reply<'_, Controls> {
        Box::pin(self.ask("controls", action))
    }
}
