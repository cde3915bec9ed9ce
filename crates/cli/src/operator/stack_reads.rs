//! Reads of a stack's table with the code of its API.
//!
//! Invariant: what a command prints as JSON is the text that the API returns.

use std::fmt;

use axum::http::StatusCode;
use daybook_command_handler::{ApiSettings, OperatorReads};
use daybook_event_store::EventStore;
use daybook_settings::Environment;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::context::OperatorContext;
use super::error::OperatorError;
use super::table_check::check_shards;
use super::target::{SettingNames, StackArgs};

/// The reads, and a store over the same table.
pub(crate) struct StackReads {
    reads: OperatorReads,
    store: EventStore,
}

/// A body of the API, or why there is none.
pub(crate) enum ReadResult<T> {
    Found(T),
    /// The aggregate, version or event type does not exist, or the state is deleted. Contains the body.
    Missing(ReadProblem),
}

/// A problem of the API: its text, and the whole body.
pub(crate) struct ReadProblem {
    pub(crate) detail: String,
    pub(crate) body: String,
}

/// A page of events of the API. Each event is its unchanged JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventPage {
    pub(crate) events: Vec<Box<RawValue>>,
    pub(crate) cursor: Value,
    pub(crate) settled_up_to: Option<String>,
    #[serde(default)]
    pub(crate) unreadable: Vec<Value>,
    #[serde(skip)]
    pub(crate) has_next: bool,
}

/// The members of an event that a line of text contains.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventLine<'a> {
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    seq_num: u64,
    event_type: String,
    occurred_at: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl StackReads {
    pub(crate) async fn connect(
        stack: &StackArgs,
        required: SettingNames,
        context: &OperatorContext,
    ) -> Result<Self, OperatorError> {
        let settings = ApiSettings::read(&Environment::default())
            .map_err(|error| OperatorError::Setting { or_give: String::new(), error })?;
        let store = stack.store(&context.environment, required).await?;
        let api_store = stack.store(&context.environment, required).await?;
        Ok(Self { reads: OperatorReads::new(context.registry.clone(), api_store, settings), store })
    }

    /// Checks that the feed reads every index partition of these event types.
    pub(crate) async fn check_shards(&self, event_types: &[&str]) -> Result<(), OperatorError> {
        check_shards(&self.store, event_types).await
    }

    /// The body of the response to a `GET` of this path and query.
    pub(crate) async fn get(&self, path_and_query: &str) -> Result<ReadResult<String>, OperatorError> {
        let response = self.reads.get(path_and_query).await;
        self.check(response.status, text(&response.body)).await
    }

    /// A page of the events of an aggregate.
    pub(crate) async fn events(&self, path_and_query: &str) -> Result<ReadResult<EventPage>, OperatorError> {
        let response = self.reads.get(path_and_query).await;
        self.page(response).await
    }

    /// A page of the feed of some event types.
    pub(crate) async fn feed(
        &self,
        event_types: &[&str],
        after: Option<&str>,
        limit: usize,
    ) -> Result<ReadResult<EventPage>, OperatorError> {
        let response = self.reads.feed(event_types, after, limit).await;
        self.page(response).await
    }

    async fn page(
        &self,
        response: daybook_command_handler::ReadResponse,
    ) -> Result<ReadResult<EventPage>, OperatorError> {
        match self.check(response.status, text(&response.body)).await? {
            ReadResult::Missing(problem) => Ok(ReadResult::Missing(problem)),
            ReadResult::Found(body) => {
                let page: EventPage = serde_json::from_str(&body).map_err(|error| unexpected(&error))?;
                Ok(ReadResult::Found(EventPage { has_next: response.has_next, ..page }))
            }
        }
    }

    async fn check(&self, status: StatusCode, body: String) -> Result<ReadResult<String>, OperatorError> {
        if status.is_success() {
            return Ok(ReadResult::Found(body));
        }
        let problem: Value = serde_json::from_str(&body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or(&body).to_owned();
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(ReadResult::Missing(ReadProblem { detail, body })),
            status if status.is_client_error() => Err(OperatorError::Usage(detail)),
            _ => {
                // The API does not return the cause. A read of the table does.
                let probe = daybook_table::AggregateKey::new("daybook", "probe");
                match self.store.events(&probe, 0, 1).await {
                    Err(source) => Err(OperatorError::Store { doing: "cannot read the table".to_owned(), source }),
                    Ok(_) => Err(unexpected(&detail)),
                }
            }
        }
    }
}

impl fmt::Display for EventLine<'_> {
    /// `2026-11-20T08:00:00.000Z account/123 2 accountOverdrawn {...}`; without the aggregate if all are of one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aggregate_type, aggregate_id, seq_num, event_type, occurred_at, data } = self;
        write!(f, "{occurred_at} ")?;
        if let (Some(aggregate_type), Some(id)) = (aggregate_type, aggregate_id) {
            write!(f, "{aggregate_type}/{id} ")?;
        }
        write!(f, "{seq_num} {event_type} {data}")
    }
}

/// An event as a line of the output: its unchanged JSON, or text.
pub(crate) fn event_line(as_json: bool, event: &RawValue) -> Result<String, OperatorError> {
    if as_json {
        return Ok(event.get().to_owned());
    }
    let event: EventLine<'_> = serde_json::from_str(event.get()).map_err(|error| unexpected(&error))?;
    Ok(event.to_string())
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

fn unexpected(error: &dyn fmt::Display) -> OperatorError {
    OperatorError::Read { cause: error.to_string() }
}
