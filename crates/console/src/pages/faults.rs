//! *Faults*: switches that make parts of the stack fail, a button that waits until nothing is left to do, and the form that
//! moves the clock.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use daybook_local_aws::clock::Ahead;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::paths;
use crate::request::{self, PageQuery, PostedForm};
use crate::stack::{ControlAction, Controls, IDLE_PATIENCE, contains_faults};

/// A switch: its name, what it does, and the member of the faults that it sets.
struct Switch {
    name: &'static str,
    label: &'static str,
    effect: &'static str,
    member: &'static str,
    fault: fn() -> Value,
}

const SWITCHES: [Switch; 8] = [
    Switch {
        name: "relay",
        label: "The relay is paused",
        effect: "It is not invoked. The records wait in the stream, and their messages are sent after you turn this off.",
        member: "paused",
        fault: || json!(["stream-relay"]),
    },
    Switch {
        name: "bus",
        label: "The bus fails",
        effect: "Each call returns 500. The relay retries, and the records stay in the stream.",
        member: "putEvents",
        fault: || json!([{"http": 500, "forever": true}]),
    },
    Switch {
        name: "queue",
        label: "The dead-letter queue fails",
        effect: "Each call returns 503. A message that the bus rejects stays unsettled.",
        member: "sendMessage",
        fault: || json!([{"http": 503, "forever": true}]),
    },
    Switch {
        name: "duplicates",
        label: "Rules deliver each message twice",
        effect: "Consumers must recognize repeated messages by their id.",
        member: "deliveries",
        fault: || json!([{"containing": "", "duplicate": true}]),
    },
    Switch {
        name: "functions",
        label: "Functions of rules fail",
        effect: "No function is invoked; its messages are retried, and move to its dead-letter queue.",
        member: "invocations",
        fault: || json!([{"containing": ""}]),
    },
    Switch {
        name: "projector",
        label: "The projector is killed",
        effect: "Each invocation ends before its first call. Read models fall behind.",
        member: "projector",
        fault: || json!([{"killAfterMs": 0, "forever": true}]),
    },
    Switch {
        name: "reactor",
        label: "The reactor is killed",
        effect: "Each invocation with messages ends before its first call. Deadlines and processes are late.",
        member: "reactor",
        fault: || json!([{"killAfterMs": 0, "forever": true}]),
    },
    Switch {
        name: "slow-bus",
        label: "The bus is slow",
        effect: "Each call takes two seconds.",
        member: "putEvents",
        fault: || json!([{"delayMs": 2000, "forever": true}]),
    },
];

/// What was done before the page was shown.
#[derive(Deserialize)]
pub(crate) struct Done {
    /// How far the clock was moved, such as `14d`.
    moved: Option<String>,
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(Done { moved }): PageQuery<Done>,
) -> Result<Page, Failure> {
    let controls = console.stack.controls(ControlAction::Nothing).await?;
    let moved = moved.filter(|by| by.parse::<Ahead>().is_ok());
    let notice = html! {
        @if let Some(by) = moved { p.notice.good role="status" { "The clock was moved forward by " (by) "." } }
    };
    Ok(show(&console, controls, &notice))
}

/// Sets or removes the faults, moves the clock, or waits until the stack is idle.
pub(crate) async fn act(State(console): State<Arc<Console>>, form: PostedForm) -> Result<Response, Failure> {
    let forward_by = form.value("forward-by").unwrap_or_default().trim();
    let mut not_json = None;
    let action = match form.value("action") {
        Some("apply") => ControlAction::SetFaults(of_switches(&form)),
        Some("json") => match serde_json::from_str(form.value("json").unwrap_or("{}")) {
            Ok(faults) => ControlAction::SetFaults(faults),
            Err(error) => {
                not_json = Some(error);
                ControlAction::Nothing
            }
        },
        Some("reset") => ControlAction::SetFaults(json!({})),
        Some("clock") => ControlAction::MoveClock(forward_by.to_owned()),
        Some("idle") => ControlAction::WaitUntilIdle,
        _ => return Err(Failure::invalid("the form names no action")),
    };
    let controls = console.stack.controls(action.clone()).await?;
    let Controls { rejected, waiting, .. } = &controls;
    if let (ControlAction::MoveClock(by), None) = (&action, rejected) {
        // Another page, because loading this one again would move the clock again.
        return Ok(Redirect::to(&paths::with_query(&paths::page("/faults"), &[("moved", by)])).into_response());
    }
    let notice = html! {
        @match (&action, rejected) {
            (ControlAction::Nothing, _) => { @if let Some(error) = not_json { p.notice.bad role="alert" { "This is not JSON: " (error) } } }
            (ControlAction::SetFaults(_), Some(reason)) => p.notice.bad role="alert" { "The stack does not accept these faults: " (reason) },
            (_, Some(reason)) => p.notice.bad role="alert" { (reason) },
            (ControlAction::SetFaults(faults), None) if contains_faults(faults) => p.notice.warn role="status" { "The faults are set." },
            (ControlAction::SetFaults(_), None) => p.notice.good role="status" { "No part of the stack fails any more." },
            (ControlAction::MoveClock(_), None) => {}
            (ControlAction::WaitUntilIdle, None) if waiting.is_empty() => {
                p.notice.good role="status" { "The stack is idle: nothing waits in the stream or in a queue." }
            }
            (ControlAction::WaitUntilIdle, None) => {
                div.notice.warn role="status" {
                    strong { "Still busy after " (IDLE_PATIENCE.as_secs()) " seconds" }
                    ul { @for text in waiting { li { (text) } } }
                }
            }
        }
    };
    Ok(show(&console, controls, &notice).into_response())
}

fn of_switches(form: &PostedForm) -> Value {
    let on = |switch: &&Switch| form.values("on").any(|name| name == switch.name);
    let mut faults: Map<_, _> =
        SWITCHES.iter().filter(on).map(|switch| (switch.member.to_owned(), (switch.fault)())).collect();
    if let Some(text) = form.value("rejected") {
        faults.insert("entries".to_owned(), json!([{"containing": text, "code": "MalformedDetail"}]));
    }
    faults.into()
}

fn show(console: &Console, Controls { faults: set, notices, .. }: Controls, notice: &Markup) -> Page {
    let is_on = |switch: &Switch| set.get(switch.member) == Some(&(switch.fault)());
    let rejected =
        set.get("entries").and_then(|entries| entries.get(0)?.get("containing")?.as_str()).unwrap_or_default();
    let text = serde_json::to_string_pretty(&set).unwrap_or_default();
    let content = html! {
        h1 { "Faults" }
        p.facts { "What happens to your messages if a part fails. The stack has the faults until you remove them, or until it stops." }
        (notice)
        form method="post" action=(paths::page("/faults")) {
            (request::token(&console.form_token))
            fieldset.switches {
                legend { "Switches" }
                @for switch in &SWITCHES {
                    label.switch {
                        input type="checkbox" name="on" value=(switch.name) checked[is_on(switch)];
                        span { strong { (switch.label) } br; span.hint { (switch.effect) } }
                    }
                }
                div.field {
                    label for="rejected" { "The bus rejects messages that contain" }
                    input #rejected name="rejected" value=(rejected) placeholder="TodoCreated" autocomplete="off" spellcheck="false";
                    p.hint { "The relay sends them to the dead-letter queue." }
                }
            }
            p.actions {
                button.primary name="action" value="apply" { "Apply" }
                button name="action" value="reset" { "Remove all faults" }
                button name="action" value="idle" { "Wait until idle" }
            }
            details {
                summary { "All faults as JSON" }
                div.field {
                    label for="json" { "Faults" }
                    textarea #json name="json" rows="10" spellcheck="false" { (text) }
                    p.hint { "As for " code { "PUT /_dev/faults" } ": faults of single calls, and of parts that have no switch." }
                }
                p.actions { button name="action" value="json" { "Apply the JSON" } }
            }
        }
        (clock_form(console))
    };
    Page { notices: Some(notices), ..Page::new("Faults", "Faults", content) }
}

fn clock_form(console: &Console) -> Markup {
    html! {
        section {
            h2 { "Clock" }
            p.facts {
                "See what happens later: to decisions that depend on the time, to rows that expire, and to records that wait for "
                "too long. New events have the later time, and the expired rows are deleted."
            }
            form method="post" action=(paths::page("/faults")) {
                (request::token(&console.form_token))
                div.field {
                    label for="forward-by" { "Move the clock forward by" }
                    input #forward-by name="forward-by" placeholder="14d" autocomplete="off" spellcheck="false" required;
                    p.hint { "A duration, such as " code { "90s" } ", " code { "30m" } ", " code { "2h" } " or " code { "14d" } "." }
                }
                p.actions { button name="action" value="clock" { "Move the clock" } }
                p.hint {
                    "The clock cannot be moved back, because the times of an aggregate's events never run backwards. With "
                    code { "--data" } ", it is as far ahead after a restart. Other processes, such as consumers, and the pauses and "
                    "timeouts of the stack have the clock of the machine."
                }
            }
        }
    }
}
