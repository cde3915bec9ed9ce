//! What the pages share that show what arrives: the controls, and the server-sent events that the script reads.

use axum::response::sse::Event;
use maud::{Markup, html};
use serde_json::json;

/// The controls of a page that shows new things of this kind, from the stream at `address`.
pub(crate) fn controls(address: &str, things: &str) -> Markup {
    html! {
        p.live data-live=(address) hidden {
            button type="button" data-pause aria-pressed="false" { "Pause" }
            span data-status { "New " (things) " appear here." }
            span.hidden role="status" {}
        }
    }
}

/// Some of what has arrived, as rows, the latest first. `id` names the last one.
pub(crate) fn arrived(id: impl ToString, rows: impl ExactSizeIterator<Item = Markup>, arrived: usize) -> Event {
    let shown = rows.len();
    let rows: String = rows.map(Markup::into_string).collect();
    Event::default().id(id.to_string()).data(json!({"rows": rows, "shown": shown, "arrived": arrived}).to_string())
}

pub(crate) fn failure(text: &str) -> Event {
    Event::default().event("failure").data(text.replace(['\r', '\n'], " "))
}
