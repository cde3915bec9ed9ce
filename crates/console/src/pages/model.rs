//! *Model*: how the application works. For each aggregate type, from left to right: its commands, its events, their messages, and
//! what follows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use daybook_api_documents::{Flows, Link, LinkKind};
use daybook_decider::Model;
use daybook_local_aws::messaging::EventPattern;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::pages::aggregates::count;
use crate::pages::projections::{Lag, lags};
use crate::paths;
use crate::schema_fields::commands;
use crate::stack::{QueuePurpose, Rule, RuleInvocations};

/// What the page shows. The figures are those of the local stack, and so are the rules.
struct Diagram<'a> {
    console: &'a Console,
    flows: Flows,
    rules: Vec<Rule>,
    /// The numbers of aggregates by type.
    aggregates: BTreeMap<&'a str, String>,
    lags: Vec<Lag>,
    /// The messages that the reactor, which executes the processes, has not got yet.
    reactions: u64,
}

/// Shows the aggregate types. Of a stack on AWS, it reads nothing.
pub(crate) async fn page(State(console): State<Arc<Console>>) -> Result<Page, Failure> {
    let mut diagram = Diagram {
        console: &console,
        flows: Flows::new(&console.registry),
        rules: Vec::new(),
        aggregates: BTreeMap::new(),
        lags: Vec::new(),
        reactions: 0,
    };
    if console.is_local() {
        let stream = console.stack.stream().await?;
        let reactions = stream.queues.iter().filter(|queue| queue.purpose == QueuePurpose::Reactions);
        diagram.reactions = reactions.map(|queue| queue.visible).sum();
        diagram.rules = stream.rules;
        for model in console.registry.iter() {
            diagram.aggregates.insert(model.type_name(), count(&console, model).await?);
        }
        if let Some(views) = &console.views {
            diagram.lags = lags(&console, views).await?;
        }
    }
    let content = html! {
        h1 { "Model" }
        p.facts {
            "What the application consists of, and what follows what: the commands of each type, its events, and their messages. "
            @if !console.is_local() {
                "This console does not know the rules of the bus, and so not which consumers get the messages."
            } @else if diagram.rules.is_empty() {
                "No rule sends messages to a consumer: " code { "--rule 'order/* -> queue:billing'" } " adds one."
            }
        }
        @for model in console.registry.iter() { (diagram.aggregate_type(model)) }
        p.hint {
            "What follows an event was found by executing samples of the commands, from the examples in their schemas: what no "
            "sample leads to is missing here."
        }
    };
    Ok(Page::new("Model", "Model", content))
}

impl Diagram<'_> {
    fn aggregate_type(&self, model: &dyn Model) -> Markup {
        let name = model.type_name();
        let types = self.console.registry.iter().map(Model::type_name);
        let sources: Vec<_> = types.filter(|of_type| model.source(of_type).is_some()).collect();
        html! {
            section.flow id=(anchor(name)) {
                div.box {
                    h2 { a href=(paths::with_query(paths::CONSOLE, &[("type", name)])) { (name) } }
                    @if let Some(count) = self.aggregates.get(name) { p.hint { (count) @if count == "1" { " aggregate" } @else { " aggregates" } } }
                    @if !sources.is_empty() {
                        p { "process of" @for source in sources { " " a href={ "#" (anchor(source)) } { (source) } } }
                        @if self.reactions > 0 { p { a.warn href=(paths::page("/stream")) { (self.reactions) " waiting for the reactor" } } }
                    }
                }
                div.commands {
                    h3 { "Commands" }
                    ul { @for command in commands(model.schemas().command.as_value()) {
                        li { (self.command(model, command.name)) }
                    } }
                }
                table {
                    thead { tr { th { "Events" } th { "Messages" } th { "Followed by" } } }
                    tbody { (self.rows(model)) }
                }
            }
        }
    }

    /// A command, and what sends it besides the API.
    fn command(&self, model: &dyn Model, name: &str) -> Markup {
        let of_type = model.type_name();
        let address = paths::command(of_type, &[("command", name)]);
        let routes = model.commands();
        let routes = [("create", Some(routes.create)), ("update", routes.update), ("delete", routes.delete)];
        html! {
            @if self.console.is_local() { a href=(address) { (name) } } @else { (name) }
            @for (route, _) in routes.iter().filter(|(_, command)| *command == Some(name)) { " " span.tag { (route) } }
            @for link in self.flows.links.iter().filter(|link| link.to == of_type && link.command == name) {
                @let by = verb(link, ["on", "dispatched by", "sent by", "deadline of"]);
                p { "← " (by) " " (place(model, link.from, &link.event)) }
            }
        }
    }

    /// A row for each event and each message; those of one event are one below the other. The last rows are about all of them.
    fn rows(&self, model: &dyn Model) -> Markup {
        let of_type = model.type_name();
        let variants = model.schemas().message.as_value()["oneOf"].as_array().into_iter().flatten();
        let all: Vec<_> = variants.filter_map(|variant| variant["properties"]["type"]["const"].as_str()).collect();
        let selects_all = |rule: &&Rule| all.len() > 1 && all.iter().all(|message| selects(rule, of_type, message));
        let (of_all, of_some): (Vec<_>, Vec<_>) = self.rules.iter().partition(selects_all);
        let mut rows = Vec::new();
        for event in model.events() {
            let messages = match self.flows.messages.get(event.name) {
                Some(found) => found.iter().map(String::as_str).collect(),
                None => all.iter().copied().filter(|message| *message == event.name).collect::<Vec<_>>(),
            };
            rows.push((Some(event.name), messages.first().copied()));
            rows.extend(messages.iter().skip(1).map(|message| (Some(""), Some(*message))));
        }
        let has_row = |message: &&str| rows.iter().any(|(_, other)| *other == Some(message));
        let others: Vec<_> = all.iter().copied().filter(|message| !has_row(message)).collect();
        rows.extend(others.into_iter().map(|message| (None, Some(message))));
        let projections = self.console.views.iter().flat_map(|views| views.projections.following(of_type));
        let projections: BTreeMap<_, _> = projections.map(|model| (model.name(), model.version())).collect();
        let behind = |name: &str| self.lags.iter().filter(|lag| lag.view.name == name).map(|lag| lag.behind).max();
        html! {
            @for (event, message) in rows {
                tr {
                    td {
                        @match event {
                            Some("") => {}
                            Some(event) => {
                                strong { (event_link(of_type, event)) }
                                @if !self.flows.messages.contains_key(event) { p.hint { "No sample leads to it." } }
                            }
                            None => span.hint { "not known" },
                        }
                    }
                    td { @match message {
                        Some(message) => (self.message(message)),
                        None if event.is_some_and(|event| self.flows.messages.contains_key(event)) => span.hint { "no message" },
                        None => span.hint { "not known" },
                    } }
                    td {
                        @for link in self.flows.links.iter().filter(|link| Some(link.event.as_str()) == event) {
                            @let verb = verb(link, ["process", "dispatches", "sends", "deadline"]);
                            p { "→ " (verb) " " (place(model, &link.to, &link.command)) }
                        }
                        @for rule in of_some.iter().filter(|rule| message.is_some_and(|name| selects(rule, of_type, name))) {
                            (consumer(rule))
                        }
                    }
                }
            }
            @if !projections.is_empty() {
                tr { td.hint { "every event" } td {} td { @for (name, version) in projections {
                    p { "→ projection " a href=(paths::view(name, version)) { (name) }
                        @if let Some(behind) = behind(name).filter(|behind| *behind > 0) { " " span.warn { (behind) @if behind == 1 { " event behind" } @else { " events behind" } } } }
                } } }
            }
            @if !of_all.is_empty() { tr { td {} td.hint { "every message" } td { @for rule in of_all { (consumer(rule)) } } } }
        }
    }

    /// A message type, on the local stack with a link to its latest messages.
    fn message(&self, message: &str) -> Markup {
        let address = paths::with_query(&paths::page("/bus"), &[("type", message)]);
        html! { @if self.console.is_local() { a href=(address) { (message) } } @else { (message) } }
    }
}

fn event_link(of_type: &str, event: &str) -> Markup {
    let address = paths::with_query(&paths::page("/events"), &[("type", of_type), ("containing", event)]);
    html! { a href=(address) { (event) } }
}

/// The word for the kind of a link, of those for input, a dispatch, a sent command and a deadline.
fn verb(link: &Link, [input, dispatch, sent, deadline]: [&'static str; 4]) -> &'static str {
    match link.kind {
        LinkKind::Input => input,
        LinkKind::Dispatch => dispatch,
        LinkKind::Sent => sent,
        LinkKind::Deadline => deadline,
    }
}

/// A command or an event, with a link to its type on this page if it is another.
fn place(on: &dyn Model, of_type: &str, name: &str) -> Markup {
    html! {
        @if of_type == on.type_name() { (name) }
        @else { a href={ "#" (anchor(of_type)) } { span.type { (of_type) } " " (name) } }
    }
}

fn anchor(of_type: &str) -> String {
    format!("type-{of_type}")
}

/// The target of a rule, and what waits there.
fn consumer(rule: &Rule) -> Markup {
    let waiting = rule.visible + rule.hidden;
    html! {
        p title=(rule.rule) {
            "→ queue " a href=(paths::page("/stream")) { (rule.queue) }
            @if let Some(RuleInvocations { name, .. }) = &rule.function { " → " a href=(paths::page("/stream")) { (name) } }
            @if rule.rule.trim_start().starts_with('{') { span.hint { ", if its pattern matches" } }
            @if waiting > 0 { " " span.warn { (waiting) " waiting" } }
            @if rule.dead_letters > 0 { " " a.bad href=(paths::page("/dead-letters")) { (rule.dead_letters) " dead-letter" } }
        }
    }
}

/// Whether a rule may select messages of this type, by their names. The rest of its pattern is about single messages.
fn selects(rule: &Rule, of_type: &str, message: &str) -> bool {
    let mut names = Map::new();
    if let Some(types) = rule.pattern.get("detail-type") {
        names.insert("detail-type".to_owned(), types.clone());
    }
    if let Some(types) = rule.pattern.pointer("/detail/metadata/aggregateType") {
        names.insert("detail".to_owned(), json!({"metadata": {"aggregateType": types}}));
    }
    let event = json!({"detail-type": message, "detail": {"metadata": {"aggregateType": of_type}}});
    names.is_empty() || EventPattern::new(&Value::Object(names)).is_ok_and(|pattern| pattern.matches(&event))
}
