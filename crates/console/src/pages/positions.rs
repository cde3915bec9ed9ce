//! The section of page *Stream* with the positions of processes that are suspended.

use daybook_event_store::FoundPositions;
use daybook_function_runtime::with_causes;
use jiff::Timestamp;
use maud::{Markup, html};

use crate::console::Console;
use crate::frame::table;
use crate::{paths, time};

/// Maximum positions on the page.
const LISTED: usize = 20;

/// The section. Only with processes it is there, and costs a call.
pub(crate) async fn section(console: &Console) -> Markup {
    if console.registry.iter().all(|model| model.sources().is_empty()) {
        return html! {};
    }
    html! {
        section {
            h2 { "Processes" }
            @match &console.store.suspended_positions(LISTED).await {
                Err(error) => p.notice.warn { "The suspended ones cannot be read: " (with_causes(error)) },
                Ok(found) => (listed(found, console.store.now())),
            }
        }
    }
}

fn listed(found: &FoundPositions, now: Timestamp) -> Markup {
    let unreadable = found.unreadable.len();
    html! {
        @if found.positions.is_empty() {
            p.empty { "None is suspended." }
        } @else {
            (table(&["Events of", "Process", "Suspended"], &html! { @for position in &found.positions {
                @let (item, event) = (&position.item, position.item.seq_num + 1);
                tr data-row {
                    td { a href={ (paths::aggregate(&position.source)) "/events/" (event) } { (position.source) " " (event) } }
                    td { (item.process_type()) }
                    td {
                        span.bad { "suspended" }
                        @if let Some(since) = item.gsi1sk.as_deref().and_then(|at| at.parse().ok()) { " " (time::relative(since, now)) }
                        @if let Some(error) = &item.error { br; span.hint { (error) } }
                    }
                }
            } }))
        }
        @if found.more { p.hint { "The first " (LISTED) ". " code { "daybook process suspended" } " lists all." } }
        @if unreadable > 0 { p.notice.bad role="alert" { (unreadable) " rows cannot be read. " code { "daybook process suspended" } " lists them." } }
    }
}
