//! *Stream*: what each function waits for: the event source mappings, the queues, the rules, and the discarded records. For a
//! stack on AWS, the mapping of the relay, and the queues.

use std::sync::Arc;

use axum::extract::State;
use daybook_event_store::StoredPosition;
use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, Suspension};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::health::requests;
use super::{deadlines, projections};
use crate::console::Console;
use crate::frame::{Failure, Page, table};
use crate::request::PageQuery;
use crate::stack::{
    IteratorAge, QueueDepth, QueuePurpose, Relay, RelayMapping, Rule, RuleInvocations, Shard, ShownMapping, StackError,
    StreamState,
};
use crate::{json, paths, time};

/// Maximum bytes that are shown of a batch of discarded records.
const MAX_RECORD: usize = 16 * 1024;

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(done): PageQuery<projections::Done>,
) -> Result<Page, Failure> {
    let StreamState { mappings, queues, rules, discarded, traffic } = console.stack.stream().await?;
    let content = html! {
        h1 { "Stream" }
        p.facts { "What each function waits for." }
        (mappings_markup(&mappings))
        (projections::section(&console, done).await)
        (deadlines::section(&console).await)
        (suspended_positions(&console).await)
        (queues_markup(&queues))
        (rules_markup(&rules))
        (discarded_markup(&discarded))
        (requests(&traffic))
    };
    Ok(Page::new("Stream", "Stream", content))
}

/// Shows what Lambda, CloudWatch and SQS return. A part for which there is no permission does not hide the others.
pub(crate) async fn deployed_page(
    State(console): State<Arc<Console>>,
    PageQuery(done): PageQuery<projections::Done>,
) -> Result<Page, Failure> {
    let (relay, queues) = tokio::join!(console.stack.relay(), console.stack.queues());
    let content = html! {
        h1 { "Stream" }
        p.facts { "What the functions wait for. " code { "daybook relay status" } " also lists the messages that the relay has not sent." }
        @match &relay { Ok(relay) => (relay_markup(relay)), Err(error) => (missing_part("Relay", error)) }
        (projections::section(&console, done).await)
        (deadlines::section(&console).await)
        (suspended_positions(&console).await)
        @match &queues {
            Ok(queues) => { (queues_markup(queues)) p.hint { "The approximate counts of SQS." } }
            Err(error) => (missing_part("Queues", error)),
        }
    };
    Ok(Page::new("Stream", "Stream", content))
}

fn missing_part(title: &str, error: &StackError) -> Markup {
    html! { section { h2 { (title) } p.notice.warn { (error) } } }
}

fn relay_markup(relay: &Relay) -> Markup {
    html! {
        section {
            h2 { "Relay" }
            @let columns = ["Mapping", "State", "Last result"];
            (table(&columns, &html! { @for RelayMapping { id, state, last_result } in &relay.mappings {
                tr data-row {
                    td { code.short title=(id) { (id) } }
                    td { @if state == "Enabled" { (state) } @else { span.bad { (state) } } }
                    td { @if last_result.starts_with("PROBLEM") { span.bad { (last_result) } } @else { (last_result) } }
                }
            } }))
            @if relay.mappings.is_empty() { p.notice.bad role="alert" { "The relay has no event source mapping: nobody sends the messages." } }
            p.facts {
                @match &relay.age {
                    Some(IteratorAge { milliseconds, at }) => {
                        "The oldest record was " strong { (time::span_text(*milliseconds as i64)) } " old, " (time::relative(*at, Timestamp::now())) "."
                    }
                    None => "CloudWatch has no age of a record for the last ten minutes: the relay read none.",
                }
                " CloudWatch's figures arrive a minute or two late."
            }
        }
    }
}

fn mappings_markup(mappings: &[ShownMapping]) -> Markup {
    html! {
        section {
            h2 { "Functions behind the table's stream" }
            (table(&["Function", "Mapping", "Shard", "#Waiting", "#Oldest", "Last result"], &html! {
                @for mapping in mappings {
                    @for shard in &mapping.shards { (shard_row(mapping, shard)) }
                    @if mapping.shards.is_empty() {
                        tr data-row {
                            td { strong { (mapping.function) } } td { (mapping.mapping) }
                            td colspan="4" { span.hint { @if mapping.enabled { "has read no shard yet" } @else { "is turned off" } } }
                        }
                    }
                }
            }))
        }
    }
}

fn shard_row(mapping: &ShownMapping, shard: &Shard) -> Markup {
    let result = shard.last_result.as_deref().unwrap_or("not invoked yet");
    html! {
        tr data-row {
            td { strong { (mapping.function) } @if mapping.paused { " " span.tag { "paused" } } } td { (mapping.mapping) }
            td { code.short title=(shard.shard) { (shard.shard) } }
            td.number { @if shard.waiting > 0 { span.warn { (shard.waiting) } } @else { (shard.waiting) } }
            td.number { @if let Some(age) = shard.oldest_age_ms { (time::span_text(age)) } @else { "–" } }
            td { @if result.starts_with("PROBLEM") { span.bad { (result) } } @else { (result) } }
        }
    }
}

fn queues_markup(queues: &[QueueDepth]) -> Markup {
    html! {
        section {
            h2 { "Queues" }
            (table(&["Queue", "#Waiting", "#Being processed", "For"], &html! {
                @for queue in queues {
                    tr data-row {
                        td { code { (queue.queue) } } td.number { (queue.visible) } td.number { (queue.hidden) }
                        td { @match queue.purpose {
                            QueuePurpose::DeadLetters => "messages that could not be delivered",
                            QueuePurpose::Changes => "the read models: aggregates with events that are not folded yet",
                            QueuePurpose::Reactions => "the reactor: deadlines that are due or soon will be, and changes of aggregates for processes",
                            QueuePurpose::Rule => "a rule of the bus",
                        } }
                    }
                }
            }))
        }
    }
}

fn rules_markup(rules: &[Rule]) -> Markup {
    html! {
        section {
            h2 { "Rules of the bus" }
            @if rules.is_empty() {
                p.empty { "There are none. " code { "--rule 'order/* -> queue:billing'" } " sends the messages of orders to a queue." }
            } @else {
                (table(&["Rule", "Queue", "#Waiting", "#Being processed", "#Dead-letter messages", "Function"], &html! { @for rule in rules { (rule_row(rule)) } }))
            }
        }
    }
}

fn rule_row(rule: &Rule) -> Markup {
    html! {
        tr data-row {
            td { code { (rule.rule) } } td { (rule.queue) } td.number { (rule.visible) } td.number { (rule.hidden) }
            td.number { @if rule.dead_letters > 0 { span.bad { (rule.dead_letters) } } @else { "0" } }
            td {
                @if let Some(RuleInvocations { name, invocations, failures, last_error }) = &rule.function {
                    (name) ": " (invocations) " invocations, " (failures) " failed"
                    @if let Some(error) = last_error { br; span.bad { (error) } }
                } @else { span.hint { "none" } }
            }
        }
    }
}

fn discarded_markup(discarded: &[Value]) -> Markup {
    html! {
        section {
            h2 { "Discarded records" }
            @if discarded.is_empty() {
                p.empty { "There are none: no function has failed for longer than its mapping retries." }
            } @else {
                p.facts { (discarded.len()) " batches of records were discarded. " code { "daybook discarded redrive" } " sends their messages." }
                @for record in discarded.iter().rev().take(20) { p { (json::line(&record.to_string(), MAX_RECORD)) } }
            }
        }
    }
}

/// Maximum positions on the page.
const LISTED: usize = 20;

/// The section. Only with processes it is there, and costs a call.
async fn suspended_positions(console: &Console) -> Markup {
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

fn listed(found: &daybook_event_store::Page<StoredPosition>, now: Timestamp) -> Markup {
    let unreadable = found.unreadable.len();
    let all = found.items.iter().flat_map(|StoredPosition { source, item, .. }| {
        item.all_suspended().map(move |(who, suspension)| (source, item.name_of(who), suspension))
    });
    html! {
        @if found.items.is_empty() { p.empty { "None is suspended." } } @else { (suspensions(all, now)) }
        @if found.more { p.hint { "The first " (LISTED) ". " code { "daybook process suspended" } " lists all." } }
        @if unreadable > 0 { p.notice.bad role="alert" { (unreadable) " rows cannot be read. " code { "daybook process suspended" } " lists them." } }
    }
}

/// A table of who is suspended, each with the aggregate in whose events.
pub(super) fn suspensions<'a>(
    all: impl Iterator<Item = (&'a AggregateKey, String, &'a Suspension)>,
    now: Timestamp,
) -> Markup {
    table(
        &["Events of", "Process", "Suspended"],
        &html! { @for (source, name, Suspension { seq_num, since, error, .. }) in all {
            @let event = seq_num + 1;
            tr data-row {
                td { a href={ (paths::aggregate(source)) "/events/" (event) } { (source) " " (event) } }
                td { (name) }
                td {
                    span.bad { "suspended" }
                    @if let Ok(since) = since.parse() { " " (time::relative(since, now)) }
                    br; span.hint { (error) }
                }
            }
        } },
    )
}
