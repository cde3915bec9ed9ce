//! HTTP endpoints for the console: the messages on the bus, selected by what they are about, those that are in dead-letter
//! queues now, and the counts of all queues. Dead-letter messages can be sent again and deleted.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::messaging::{Bus, Delivered, EntryKey, WaitingMessage};
use daybook_stream_relay::{DeadLetter, RelaySettings, Resend, ResendOutcome, clients};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum entries of a response.
const MAX_ENTRIES: usize = 500;

/// The rate at which dead-letter messages are sent again.
const REDRIVE_RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(999);

/// The time after which sending ends when the bus accepts nothing.
const REDRIVE_PATIENCE: Duration = Duration::from_secs(5);

/// The bus, and what is needed to send messages to it again.
#[derive(Clone)]
struct Messages {
    bus: Bus,
    eventbridge: SdkConfig,
    relay: RelaySettings,
}

/// The endpoints. `relay` are the settings with which messages are sent.
pub(crate) fn router(bus: Bus, eventbridge: SdkConfig, relay: RelaySettings) -> Router {
    Router::new()
        .route("/_dev/messages", get(messages))
        .route("/_dev/queues", get(queues))
        .route("/_dev/dlq/messages", get(dead_letters))
        .route("/_dev/dlq/redrive", post(redrive))
        .route("/_dev/dlq/delete", post(delete))
        .with_state(Messages { bus, eventbridge, relay })
}

/// Which messages; all if no member is set.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MessageQuery {
    /// Only those of an aggregate, `TYPE/ID`, or of a type, `TYPE/`.
    aggregate: Option<String>,
    /// Only those whose type contains the text.
    message_type: Option<String>,
    /// Only those whose detail contains the text.
    containing: Option<String>,
    /// Only those of one business transaction. Without effect together with `ids`.
    correlation: Option<String>,
    /// Only those with one of these message ids, which commas separate.
    ids: Option<String>,
    /// Only those after the position.
    after: Option<usize>,
    /// Only those before the position.
    before: Option<usize>,
    /// The maximum number; the last ones are returned.
    limit: Option<usize>,
}

impl MessageQuery {
    /// The most selective part of the query that the bus has an index for.
    fn key(&self) -> Option<EntryKey<'_>> {
        let Self { aggregate, correlation, ids, .. } = self;
        let ids = ids.as_deref().map(|ids| EntryKey::MessageIds(ids.split(',').collect()));
        let aggregate = aggregate.as_deref().filter(|aggregate| !aggregate.ends_with('/'));
        ids.or(correlation.as_deref().map(EntryKey::Correlation)).or(aggregate.map(EntryKey::Resource))
    }

    /// Whether the key selects everything that the query does.
    fn is_key(&self) -> bool {
        let Self { aggregate, message_type, containing, correlation, ids, .. } = self;
        let keys = [ids, correlation, aggregate].into_iter().filter(|key| key.is_some()).count();
        keys <= 1
            && message_type.is_none()
            && containing.is_none()
            && !aggregate.as_ref().is_some_and(|aggregate| aggregate.ends_with('/'))
    }

    /// Whether the query selects an entry that has its key.
    fn matches(&self, entry: &Delivered) -> bool {
        let is_of = |wanted: &String, resource: &String| {
            resource == wanted || (wanted.ends_with('/') && resource.starts_with(wanted.as_str()))
        };
        self.aggregate.as_ref().is_none_or(|wanted| entry.resources.iter().any(|resource| is_of(wanted, resource)))
            && self.message_type.as_ref().is_none_or(|wanted| contains(&entry.detail_type, wanted))
            && self.containing.as_ref().is_none_or(|wanted| contains(&entry.detail, wanted))
    }
}

/// Whether a text contains another one, whatever the case.
fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(&wanted.to_lowercase())
}

async fn messages(State(messages): State<Messages>, Query(query): Query<MessageQuery>) -> Json<Value> {
    let positions = query.after.map_or(1, |after| after.saturating_add(1))..query.before.unwrap_or(usize::MAX);
    let limit = query.limit.unwrap_or(MAX_ENTRIES).min(MAX_ENTRIES);
    let matches = |entry: &Delivered| query.matches(entry);
    let matches: Option<&dyn Fn(&Delivered) -> bool> = if query.is_key() { None } else { Some(&matches) };
    let part = messages.bus.delivered_part(&positions, limit, query.key().as_ref(), matches);
    let entry = |(position, entry): (usize, Delivered)| {
        json!({
            "position": position, "acceptedAt": entry.accepted_at, "eventBusName": entry.event_bus_name,
            "source": entry.source, "detailType": entry.detail_type, "resources": entry.resources,
            "targets": messages.bus.target_records(&entry.event_id), "detail": entry.detail,
        })
    };
    let entries: Vec<_> = part.entries.into_iter().map(entry).collect();
    Json(json!({
        "messages": entries, "matching": part.matching, "searchedFrom": part.searched_from, "last": part.last,
    }))
}

async fn queues(State(messages): State<Messages>) -> Json<Value> {
    let queue = |(name, visible, hidden)| json!({"queue": name, "visible": visible, "hidden": hidden});
    Json(messages.bus.queue_counts().into_iter().map(queue).collect())
}

async fn dead_letters(State(messages): State<Messages>) -> Json<Value> {
    let message = |waiting: WaitingMessage| {
        json!({
            "id": waiting.message.message_id, "queueUrl": waiting.message.queue_url, "sentAt": waiting.sent_at,
            "receives": waiting.receives, "body": waiting.message.body,
        })
    };
    Json(messages.bus.waiting_dead_letters().into_iter().map(message).collect())
}

/// Which dead-letter messages.
#[derive(Deserialize)]
struct Selection {
    /// Their ids in the queue.
    ids: Vec<String>,
}

/// What became of a selected message.
#[derive(Serialize)]
struct SelectedJson {
    id: String,
    outcome: &'static str,
    /// Why it was not sent.
    reason: Option<String>,
}

impl Messages {
    /// The selected messages that are in a dead-letter queue.
    fn selected(&self, selection: &Selection) -> Vec<WaitingMessage> {
        let mut waiting = self.bus.waiting_dead_letters();
        waiting.retain(|waiting| selection.ids.contains(&waiting.message.message_id));
        waiting
    }
}

/// Sends the messages to the bus again, and deletes from the queue those that the bus accepted.
async fn redrive(State(messages): State<Messages>, Json(selection): Json<Selection>) -> Response {
    // A task of its own finishes it, even if the caller hangs up.
    let run = tokio::spawn(async move {
        let (mut rows, mut selected, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        for WaitingMessage { message, .. } in messages.selected(&selection) {
            match DeadLetter::read(&message.body).ok().and_then(|dead_letter| dead_letter.message) {
                Some(row) => {
                    rows.push(row);
                    selected.push(message.message_id);
                }
                None => {
                    let reason = Some("it contains no message that can be sent".to_owned());
                    outcomes.push(SelectedJson { id: message.message_id, outcome: "unsendable", reason });
                }
            }
        }
        let bus = clients::eventbridge(&messages.eventbridge);
        let mut resend = Resend::new(bus, messages.relay.clone(), REDRIVE_RATE).with_patience(REDRIVE_PATIENCE);
        let sent = resend.send(rows, std::future::pending()).await;
        for (id, outcome) in selected.into_iter().zip(sent) {
            let (outcome, reason) = match outcome {
                ResendOutcome::Sent if messages.bus.delete_message(&id) => ("sent", None),
                ResendOutcome::Sent => ("sent-not-deleted", None),
                ResendOutcome::Rejected(error) => ("rejected", Some(error.to_string())),
                ResendOutcome::Unsent(error) => ("unsent", error.map(|error| error.to_string())),
            };
            outcomes.push(SelectedJson { id, outcome, reason });
        }
        outcomes
    });
    match run.await {
        Ok(outcomes) => Json(outcomes).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn delete(State(messages): State<Messages>, Json(selection): Json<Selection>) -> Json<Vec<SelectedJson>> {
    let outcome = |WaitingMessage { message, .. }: WaitingMessage| {
        let outcome = if messages.bus.delete_message(&message.message_id) { "deleted" } else { "not-deleted" };
        SelectedJson { id: message.message_id, outcome, reason: None }
    };
    Json(messages.selected(&selection).into_iter().map(outcome).collect())
}
