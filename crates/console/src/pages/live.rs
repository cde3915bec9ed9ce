//! The messages that arrive on the bus, as server-sent events. At a high rate, only some of them are sent, and the page
//! says so.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use serde::Deserialize;
use serde_json::json;

use super::bus::{BusFilter, row};
use crate::console::Console;
use crate::query::{BusPosition, PageQuery};

/// The pause between two reads of the bus.
const PAUSE: Duration = Duration::from_millis(500);

/// Maximum messages that are sent after each pause.
const SAMPLE: &str = "20";

#[derive(Deserialize)]
pub(crate) struct LiveQuery {
    /// Only messages after the position.
    after: BusPosition,
}

/// Streams the messages after a position that the filter selects.
pub(crate) async fn stream(
    State(console): State<Arc<Console>>,
    PageQuery(LiveQuery { after: BusPosition(after) }): PageQuery<LiveQuery>,
    PageQuery(filter): PageQuery<BusFilter>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    // A browser that connects again names the last event that it has.
    let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = last_event.unwrap_or(after);
    let events = unfold((console, filter, after), async |(console, filter, mut after)| {
        loop {
            tokio::time::sleep(PAUSE).await;
            let (aggregate, position) = (filter.aggregate(), after.to_string());
            let mut query = filter.query(&aggregate);
            query.extend([("after", position.as_str()), ("limit", SAMPLE)]);
            let part = match console.stack.bus(&query).await {
                Ok(part) => part,
                Err(error) => {
                    let event = Event::default().event("failure").data(error.to_string().replace(['\r', '\n'], " "));
                    return Some((Ok(event), (console, filter, after)));
                }
            };
            after = part.last;
            if part.matching == 0 {
                continue;
            }
            let now = console.store.now();
            let rows: Vec<_> = part.messages.iter().rev().map(|message| row(message, now).into_string()).collect();
            let data = json!({"rows": rows.concat(), "shown": part.messages.len(), "arrived": part.matching});
            return Some((Ok(Event::default().id(after.to_string()).data(data.to_string())), (console, filter, after)));
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}
