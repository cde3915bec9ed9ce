//! Reads of a stack's table with the code of its API.
//!
//! Invariant: what a command prints as JSON is the text that the API returns.

use std::fmt;

use daybook_command_handler::{ApiSettings, OperatorReads, ReadResponse};
use daybook_event_store::EventStore;
use daybook_settings::Environment;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::OperatorError;
use crate::stack::{SettingNames, Stack};

pub struct StackReads {
    reads: OperatorReads,
    pub store: EventStore,
}

/// What was read; or the problem of the API, if the aggregate, version or event type does not exist, or the state is deleted.
pub type ReadResult<T> = Result<T, ReadProblem>;

pub struct ReadProblem {
    pub detail: String,
    pub body: String,
}

/// A page of events of the API. Each event is its unchanged JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPage {
    pub events: Vec<Box<RawValue>>,
    pub cursor: Value,
    pub settled_up_to: Option<String>,
    #[serde(default)]
    pub unreadable: Vec<Value>,
    #[serde(skip)]
    pub has_next: bool,
}

/// The members of an event that a line of text contains; without the aggregate if all events are of one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventLine<'a> {
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    seq_num: u64,
    event_type: String,
    occurred_at: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl StackReads {
    pub async fn connect(stack: &Stack, required: SettingNames) -> Result<Self, OperatorError> {
        let settings = ApiSettings::read(&Environment::default()).map_err(OperatorError::Setting)?;
        let store = stack.store(required).await?;
        let reads = OperatorReads::new(stack.registry.clone(), stack.store(required).await?, settings);
        Ok(Self { reads, store })
    }

    /// The body of the response to a `GET` of this path and query.
    pub async fn get(&self, path_and_query: &str) -> Result<ReadResult<String>, OperatorError> {
        let response = self.reads.get(path_and_query).await;
        self.check(&response).await
    }

    pub async fn events(&self, path_and_query: &str) -> Result<ReadResult<EventPage>, OperatorError> {
        let response = self.reads.get(path_and_query).await;
        self.page(response).await
    }

    pub async fn feed(
        &self,
        event_types: &[&str],
        after: Option<&str>,
        limit: usize,
    ) -> Result<ReadResult<EventPage>, OperatorError> {
        let response = self.reads.feed(event_types, after, limit).await;
        self.page(response).await
    }

    async fn page(&self, response: ReadResponse) -> Result<ReadResult<EventPage>, OperatorError> {
        let page = self.check(&response).await?.map(|body| serde_json::from_str::<EventPage>(&body));
        Ok(match page {
            Ok(page) => Ok(EventPage { has_next: response.has_next, ..page.map_err(|error| unexpected(&error))? }),
            Err(problem) => Err(problem),
        })
    }

    async fn check(&self, response: &ReadResponse) -> Result<ReadResult<String>, OperatorError> {
        let body = String::from_utf8_lossy(&response.body).into_owned();
        let problem = || {
            let problem: Value = serde_json::from_str(&body).unwrap_or_default();
            problem["detail"].as_str().unwrap_or(&body).to_owned()
        };
        match response.status.as_u16() {
            200..=299 => Ok(Ok(body)),
            404 | 410 => Ok(Err(ReadProblem { detail: problem(), body })),
            400..=499 => Err(OperatorError::Usage(problem())),
            _ => {
                // The API does not return the cause. A read of the table does.
                let probe = daybook_table::AggregateKey::new("daybook", "probe");
                match self.store.events(&probe, 0, 1).await {
                    Err(error) => Err(OperatorError::store("cannot read the table")(error)),
                    Ok(_) => Err(unexpected(&problem())),
                }
            }
        }
    }
}

/// `2026-11-20T08:00:00.000Z account/123 2 accountOverdrawn {...}`.
pub fn event_text(event: &RawValue) -> Result<String, OperatorError> {
    let event: EventLine<'_> = serde_json::from_str(event.get()).map_err(|error| unexpected(&error))?;
    let EventLine { aggregate_type, aggregate_id, seq_num, event_type, occurred_at, data } = event;
    let aggregate = aggregate_type.zip(aggregate_id).map(|(name, id)| format!("{name}/{id} ")).unwrap_or_default();
    Ok(format!("{occurred_at} {aggregate}{seq_num} {event_type} {data}"))
}

fn unexpected(error: &dyn fmt::Display) -> OperatorError {
    OperatorError::Failed(format!("cannot read it: {error}"))
}
