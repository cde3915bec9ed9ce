//! Deadlines and dispatches: those of the state of an aggregate, and on page *Stream* the next ones and those that have failed.

use daybook_decider::{DeclaredDeadline, Folded, Model};
use daybook_event_store::{Page, StoreError, StoredDeadline};
use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, DeadlineState};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::console::Console;
use crate::frame::table;
use crate::{paths, time};

/// Maximum deadlines of each state on page *Stream*.
const LISTED: usize = 20;

/// A deadline of a state, and its row if that is the latest state.
pub(crate) struct ShownDeadline {
    declared: DeclaredDeadline,
    row: Option<StoredDeadline>,
}

/// The deadlines of a state. Only an aggregate that has some costs a call.
pub(crate) async fn deadlines_of(
    console: &Console,
    model: &dyn Model,
    key: &AggregateKey,
    folded: &Folded,
    is_latest: bool,
) -> Result<Vec<ShownDeadline>, StoreError> {
    let declared = model.deadlines(folded).unwrap_or_default();
    let reads = is_latest && !declared.is_empty();
    let rows = if reads { console.store.deadlines_of(key).await?.items } else { Vec::new() };
    let row = |declared: &DeclaredDeadline| {
        let has_row =
            |row: &&StoredDeadline| row.item.name() == declared.name && declared.due.is_none_or(|due| row.due == due);
        rows.iter().find(has_row).cloned()
    };
    Ok(declared.into_iter().map(|declared| ShownDeadline { row: row(&declared), declared }).collect())
}

pub(crate) fn of_aggregate(deadlines: &[ShownDeadline], now: Timestamp) -> Markup {
    html! {
        @if !deadlines.is_empty() {
            h3 { @if deadlines.iter().any(|shown| shown.declared.to.is_some()) { "Deadlines and dispatches" } @else { "Deadlines" } }
            div.scroll tabindex="0" { table.deadlines {
                thead { tr { th { "Name" } th { "Due" } th { "Command" } th { "State" } } }
                tbody { @for ShownDeadline { declared, row } in deadlines {
                    tr {
                        td { (declared.name) } td { @if let Some(due) = declared.due { (time::relative(due, now)) } @else { "at once" } }
                        td { code { (declared.command.command) } @if let Some(to) = &declared.to { " to " a href=(paths::aggregate(to)) { (to) } } }
                        td { @if let Some(row) = row { (state(row, now)) } }
                    }
                } }
            } }
        }
    }
}

pub(crate) async fn section(console: &Console) -> Markup {
    let read = |state| console.store.deadlines(state, Timestamp::MAX, LISTED);
    let found = tokio::try_join!(read(DeadlineState::Failed), read(DeadlineState::Pending));
    html! {
        section {
            h2 { "Deadlines and dispatches" }
            @match &found {
                Err(error) => p.notice.warn { "They cannot be read: " (with_causes(error)) },
                Ok((failed, pending)) => (listed(failed, pending, console.store.now())),
            }
        }
    }
}

fn listed(failed: &Page<StoredDeadline>, pending: &Page<StoredDeadline>, now: Timestamp) -> Markup {
    let unreadable = failed.unreadable.len() + pending.unreadable.len();
    html! {
        @if failed.items.is_empty() && pending.items.is_empty() {
            p.empty { "None is pending, and none has failed." }
        } @else {
            @let columns = ["Aggregate", "Name", "Due", "State"];
            (table(&columns, &html! { @for deadline in failed.items.iter().chain(&pending.items) {
                tr data-row {
                    td { a href=(paths::aggregate(&deadline.aggregate)) { (deadline.aggregate) } } td { (deadline.item.name()) }
                    td { (time::relative(deadline.due, now)) } td { (state(deadline, now)) }
                }
            } }))
        }
        @if failed.more || pending.more { p.hint { "The earliest " (LISTED) " of each state. " code { "daybook deadlines list" } " lists all." } }
        @if unreadable > 0 { p.notice.bad role="alert" { (unreadable) " rows cannot be read. " code { "daybook deadlines list" } " lists them." } }
    }
}

pub(super) fn state(StoredDeadline { due, item, .. }: &StoredDeadline, now: Timestamp) -> Markup {
    html! {
        @match item.state() {
            DeadlineState::Pending => @if *due < now { span.warn { "pending" } } @else { "pending" },
            DeadlineState::Fired => span.hint { "fired" },
            DeadlineState::Failed => {
                span.bad { "failed" }
                @if let Some(at) = item.failed_at.as_deref().and_then(|at| at.parse().ok()) { " " (time::relative(at, now)) }
                @if let Some(error) = &item.error { br; span.hint { (error) } }
            },
        }
    }
}
