//! The stack for the console in the functions' process: the first process has what a page needs, and is asked once.

use std::fmt::Display;
use std::net::SocketAddr;

use daybook_console::stack::{
    BusPart, ControlAction, Controls, DeadLetterAction, DeadLetters, MessageQuery, Reply, StackError, StackSource,
    StreamState,
};
use daybook_function_runtime::with_causes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::HttpClient;
use crate::usage::{Usage, UsageMeter};

pub(crate) struct RemoteStack {
    /// The HTTP interface of the first process.
    url: String,
    client: HttpClient,
    /// Counts the calls of the functions in this process.
    meter: UsageMeter,
}

impl RemoteStack {
    /// The stack whose first process serves at this address.
    pub(crate) fn new(address: SocketAddr, meter: UsageMeter) -> Self {
        let url = format!("http://{address}/_dev/console");
        Self { client: HttpClient::new(&url, None), url, meter }
    }

    async fn ask<T: DeserializeOwned>(&self, part: &str, question: impl Serialize) -> Result<T, StackError> {
        let url = format!("{}/{part}", self.url);
        let failed = |error: &dyn Display| StackError(format!("{url} of the stack cannot be called: {error}"));
        let question = serde_json::to_string(&question).map_err(|error| failed(&error))?;
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let response = self.client.send("POST", &url, &headers, Some(question)).await;
        let response = response.map_err(|error| failed(&with_causes(&*error)))?;
        if !(200..300).contains(&response.status) {
            return Err(StackError(format!("{url} of the stack returned {}: {}", response.status, response.body)));
        }
        serde_json::from_str(&response.body).map_err(|error| failed(&error))
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
            let mut total: Usage = serde_json::from_value(state.usage).unwrap_or_default();
            total += self.meter.usage();
            Ok(StreamState { usage: serde_json::to_value(total).unwrap_or_default(), ..state })
        })
    }

    fn controls(&self, action: ControlAction) -> Reply<'_, Controls> {
        Box::pin(self.ask("controls", action))
    }
}
