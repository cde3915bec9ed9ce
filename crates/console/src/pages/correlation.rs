//! *Correlation*: everything that one request caused, across aggregates, as far as it published messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use daybook_local_aws::messaging::MessageQuery;
use daybook_stream_relay::DeadLetter;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::request::PageQuery;
use crate::stack::MessageMetadata;
use crate::{paths, time};

#[derive(Deserialize)]
pub(crate) struct CorrelationQuery {
    #[serde(default)]
    id: String,
}

struct Node {
    message_type: String,
    metadata: MessageMetadata,
    /// Why it is in the dead-letter queue.
    error: Option<String>,
    accepted_at: Option<u64>,
}

/// Shows the messages of a business transaction as a tree: below a message are those that it caused.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(CorrelationQuery { id }): PageQuery<CorrelationQuery>,
) -> Result<Page, Failure> {
    let id = id.trim();
    let nodes = if id.is_empty() { Vec::new() } else { nodes(&console, id).await? };
    let content = html! {
        h1 { "Correlation" }
        p.facts { "Everything that one request caused, across aggregates. Messages show what caused them; an event without a message is not listed." }
        form.filters action=(paths::page("/correlation")) {
            label { "Correlation id" input name="id" value=(id) spellcheck="false" size="40"; }
            button { "Show" }
        }
        @if id.is_empty() {
            p.empty { "Enter the correlation id of a request, or follow the link of an event or a message." }
        } @else if nodes.is_empty() {
            p.empty { "No message has the correlation id " code { (id) } "." }
        } @else {
            (tree(&nodes, console.store.now()))
            (sequence(&nodes))
        }
    };
    Ok(Page::new("Correlation", "Correlation", content))
}

async fn nodes(console: &Console, id: &str) -> Result<Vec<Node>, Failure> {
    let query = MessageQuery { correlation: Some(id.to_owned()), with_dead_letters: true, ..MessageQuery::default() };
    let found = console.stack.messages(query).await?;
    let on_bus = found.messages.into_iter().map(|message| Node {
        metadata: MessageMetadata::of_detail(&message.entry.detail),
        message_type: message.entry.detail_type,
        error: None,
        accepted_at: message.entry.accepted_at,
    });
    let dead = found.dead_letters.into_iter().filter_map(|waiting| {
        let DeadLetter { message, error, .. } = DeadLetter::read(&waiting.message.body).ok()?;
        let row = message?;
        let error = Some(error.map(|error| error.to_string()).unwrap_or_default());
        let metadata = MessageMetadata::of_detail(&row.detail);
        Some(Node { metadata, message_type: row.message_type, error, accepted_at: None })
    });
    let dead = dead.filter(|node| node.metadata.correlation_id.as_deref() == Some(id));
    let mut seen = BTreeSet::new();
    let mut nodes: Vec<_> = on_bus.chain(dead).filter(|node| seen.insert(node.metadata.message_id.clone())).collect();
    nodes.sort_by(|one, other| one.metadata.message_id.cmp(&other.metadata.message_id));
    Ok(nodes)
}

fn tree(nodes: &[Node], now: Timestamp) -> Markup {
    let ids: BTreeSet<_> = nodes.iter().map(|node| node.metadata.message_id.as_str()).collect();
    let mut below: BTreeMap<Option<&str>, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        let cause = node.metadata.causation_id.as_deref();
        // A message cannot cause itself, and one that was caused by what is not listed is a root.
        let cause = cause.filter(|cause| ids.contains(cause) && *cause < node.metadata.message_id.as_str());
        below.entry(cause).or_default().push(node);
    }
    let began = nodes.iter().filter_map(|node| node.metadata.occurred_at.parse::<Timestamp>().ok()).min();
    html! { div.tree { (branch(&below, None, (began, now))) } }
}

const MAX_COLUMNS: usize = 30;

/// The same as a sequence diagram: a column for each aggregate, and an arrow from the aggregate of the cause. Empty for one aggregate.
fn sequence(nodes: &[Node]) -> Markup {
    let mut all = Vec::new();
    let (mut column_of, mut column_of_message) = (BTreeMap::new(), BTreeMap::new());
    for Node { metadata, .. } in nodes {
        let aggregate = (metadata.aggregate_type.as_str(), metadata.aggregate_id.as_str());
        let column = *column_of.entry(aggregate).or_insert_with(|| {
            all.push(aggregate);
            all.len() - 1
        });
        column_of_message.insert(metadata.message_id.as_str(), column);
    }
    match all.len() {
        0 | 1 => return html! {},
        2..=MAX_COLUMNS => {}
        count => return html! { p.hint { "These are " (count) " aggregates, too many for a diagram across them." } },
    }
    html! {
        h2 { "Across aggregates" }
        div.sequence tabindex="0" { table {
            thead { tr { @for (of_type, id) in &all { th { a href=(paths::aggregate_of(of_type, id)) { (of_type) "/" (id) } } } } }
            tbody { @for Node { message_type, metadata, .. } in nodes {
                @let from = metadata.causation_id.as_deref().and_then(|id| column_of_message.get(id)).copied();
                @let to = column_of_message[metadata.message_id.as_str()];
                tr { @for at in 0..all.len() {
                    td class=[arrow(from, to, at)] {
                        @if at == to { span.tag { (message_type) } } @else { span.hidden { "–" } }
                    }
                } }
            } }
        } }
    }
}

/// The class of a cell that the arrow between two columns passes, or ends in.
pub(super) fn arrow(from: Option<usize>, to: usize, at: usize) -> Option<&'static str> {
    match from {
        Some(from) if from < to && (from..=to).contains(&at) => Some(if at == from { "from" } else { "right" }),
        Some(from) if from > to && (to..=from).contains(&at) => Some(if at == from { "from" } else { "left" }),
        _ => None,
    }
}

/// The times are that of the first event, and now.
fn branch(
    below: &BTreeMap<Option<&str>, Vec<&Node>>,
    cause: Option<&str>,
    times: (Option<Timestamp>, Timestamp),
) -> Markup {
    html! {
        @if let Some(nodes) = below.get(&cause) {
            ul {
                @for node in nodes {
                    li {
                        (node_markup(node, times))
                        (branch(below, Some(&node.metadata.message_id), times))
                    }
                }
            }
        }
    }
}

fn node_markup(node: &Node, (began, now): (Option<Timestamp>, Timestamp)) -> Markup {
    let Node { message_type, metadata, error, accepted_at } = node;
    let at = metadata.occurred_at.parse::<Timestamp>().ok();
    html! {
        div.node data-row {
            strong { (message_type) } " "
            a href={ (paths::aggregate_of(&metadata.aggregate_type, &metadata.aggregate_id)) "?version=" (metadata.seq_num) } {
                (metadata.aggregate_type) "/" (metadata.aggregate_id)
            }
            @if let Some(actor) = &metadata.actor { span.hint { " by " (actor) } }
            span.when {
                @if let Some(at) = at { (time::since(at, began, now)) }
            }
            @match error {
                Some(error) => span.fate.bad { "in the dead-letter queue: " (error) },
                None => span.fate.good {
                    "on the bus"
                    @if let Some((accepted, at)) = accepted_at.zip(at) { " after " (time::span_text(accepted.cast_signed() - at.as_millisecond())) }
                },
            }
        }
    }
}
