//! The injected faults of the local stack: scripts, of which each call uses up one fault, and text faults, for every call.
//! The bus does not use `paused`: the local stack pauses those functions.
//! As JSON, camelCase, every member optional: `tests` has one of each kind.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::json_protocol::{CallError, CallResponse};

pub(crate) const INJECTED: &str = "injected fault";

/// A list of [`CallFault`] has a fault for each of the next calls of the operation of its name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Faults {
    pub put_events: Vec<CallFault>,
    /// Entries that fail because their `DetailType` or `Detail` contains the text.
    pub entries: Vec<TextFault>,
    pub send_message: Vec<CallFault>,
    /// Calls of `SendMessage` that fail because the body contains the text.
    pub messages: Vec<TextFault>,
    /// Messages in a dropped response count as received: they become visible again when their visibility timeout ends.
    pub receive_message: Vec<CallFault>,
    /// Also for `DeleteMessageBatch`.
    pub delete_message: Vec<CallFault>,
    pub get_queue_attributes: Vec<CallFault>,
    pub describe_event_bus: Vec<CallFault>,
    pub encrypt: Vec<CallFault>,
    pub decrypt: Vec<CallFault>,
    pub deliveries: Vec<DeliveryFault>,
    /// Faults of invocations of functions that are targets of rules.
    pub invocations: Vec<FunctionFault>,
    /// A fault for each of the next invocations of the projector.
    pub projector: Vec<KillFault>,
    /// A fault for each of the next invocations of the reactor with messages.
    pub reactor: Vec<KillFault>,
    pub paused: BTreeSet<StreamFunction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamFunction {
    StreamRelay,
    Snapshotter,
}

impl StreamFunction {
    pub fn name(self) -> &'static str {
        match self {
            Self::StreamRelay => "stream-relay",
            Self::Snapshotter => "snapshotter",
        }
    }
}

/// The fault of one invocation. `{}` is no fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KillFault {
    /// End the function after this many milliseconds. With 0, it ends before a call has a response.
    kill_after_ms: Option<u64>,
    /// The fault is not used up: every later invocation has it too.
    forever: bool,
}

impl KillFault {
    /// The time after which the next invocation is killed; `None` if it is not.
    pub(crate) fn next(script: &mut Vec<Self>) -> Option<Duration> {
        next(script, |fault| fault.forever)?.kill_after_ms.map(Duration::from_millis)
    }
}

/// Takes the next fault from a script, or leaves it there if it is not used up.
fn next<T: Clone>(script: &mut Vec<T>, is_forever: impl Fn(&T) -> bool) -> Option<T> {
    let fault = script.first()?.clone();
    if !is_forever(&fault) {
        script.remove(0);
    }
    Some(fault)
}

/// A fault of every delivery of an event that contains a text, to each of its targets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeliveryFault {
    /// The text; an empty text is contained in every event.
    pub containing: String,
    /// The number of attempts to deliver that have the fault; without it, all.
    pub times: Option<u32>,
    pub duplicate: bool,
    /// Deliver the event so much later, in milliseconds.
    pub delay_ms: u64,
    /// Fail the attempt. The second attempt is a second later, the third two seconds later; after the third, the event
    /// goes to the dead-letter queue.
    pub fail: bool,
}

/// A fault of every invocation of a function with an event or a batch that contains a text.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FunctionFault {
    /// The name of the function; without it, all functions.
    pub function: Option<String>,
    /// The text; an empty text is contained in every event.
    pub containing: String,
    /// The number of invocations that have the fault; without it, all.
    pub times: Option<u32>,
    /// Wait this long first, in milliseconds.
    pub delay_ms: u64,
    /// Invoke the function, and let the invocation fail afterwards. Otherwise, the function is not invoked.
    pub accept_then_drop: bool,
}

/// The fault of one call. `{}` is no fault.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallFault {
    /// Wait this long first, in milliseconds.
    pub delay_ms: u64,
    /// Fail the call with this status; 400 if only a code is given.
    pub http: Option<u16>,
    /// Fail the call with this error code. If only a status is given, the code is `InternalFailure` or
    /// `ValidationException`, depending on the status.
    pub code: Option<String>,
    /// Return this text instead of the response, with the status above or 200; only for `PutEvents` and
    /// `ReceiveMessage`. The call is executed only with `accept_then_drop`. The text `{}` is an empty response of
    /// `ReceiveMessage`.
    pub body: Option<String>,
    /// Execute the call and drop its response: the connection breaks, or the error above is returned.
    pub accept_then_drop: bool,
    /// Fail these entries and accept the others; only for `PutEvents` and `DeleteMessageBatch`.
    pub fail_entries: Vec<EntryFault>,
    /// The fault is not used up: every later call has it too.
    pub forever: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryFault {
    /// Its index in the request, from 0.
    pub index: usize,
    pub code: String,
}

/// A fault of every entry or message that contains a text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TextFault {
    /// The text; an empty text is contained in every entry and message.
    pub containing: String,
    pub code: String,
    #[serde(default)]
    pub times: Option<u32>,
}

impl CallFault {
    pub(crate) fn next(script: &mut Vec<Self>) -> Self {
        next(script, |fault| fault.forever).unwrap_or_default()
    }

    pub(crate) fn fail_before(&self) -> Result<(), CallError> {
        self.error().filter(|_| !self.accept_then_drop).map_or(Ok(()), Err)
    }

    /// The response of a call that was executed, unless the fault drops it.
    pub(crate) fn respond(&self, response: Value) -> Result<CallResponse, CallError> {
        if !self.accept_then_drop {
            return Ok(CallResponse::Json(response));
        }
        if let Some(text) = self.text() {
            return Ok(text);
        }
        self.error().map_or(Ok(CallResponse::BrokenConnection), Err)
    }

    /// The text that replaces the response of a call that is not executed.
    pub(crate) fn text_instead(&self) -> Option<CallResponse> {
        self.text().filter(|_| !self.accept_then_drop)
    }

    fn text(&self) -> Option<CallResponse> {
        Some(CallResponse::Text(self.status().unwrap_or(StatusCode::OK), self.body.clone()?))
    }

    fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.http?).ok()
    }

    fn error(&self) -> Option<CallError> {
        if self.http.is_none() && self.code.is_none() {
            return None;
        }
        let status = self.status().unwrap_or(StatusCode::BAD_REQUEST);
        let code = self.code.clone().unwrap_or_else(|| {
            if status.is_server_error() { "InternalFailure" } else { "ValidationException" }.to_owned()
        });
        Some(CallError { status, code, message: INJECTED.to_owned() })
    }

    pub(crate) fn of_entry(&self, index: usize) -> Option<String> {
        self.fail_entries.iter().find(|fault| fault.index == index).map(|fault| fault.code.clone())
    }
}

impl DeliveryFault {
    pub(crate) fn next(faults: &mut [Self], event: &str) -> Option<Self> {
        let mut matching = faults.iter_mut().filter(|fault| event.contains(&fault.containing));
        matching.find_map(|fault| use_up(&mut fault.times).then(|| fault.clone()))
    }
}

impl FunctionFault {
    pub(crate) fn next(faults: &mut [Self], function: &str, event: &str) -> Option<Self> {
        let is_of = |fault: &&mut Self| {
            fault.function.as_deref().is_none_or(|name| name == function) && event.contains(&fault.containing)
        };
        faults.iter_mut().filter(is_of).find_map(|fault| use_up(&mut fault.times).then(|| fault.clone()))
    }
}

/// Uses up one of a number of times; false if none is left.
fn use_up(times: &mut Option<u32>) -> bool {
    let is_left = *times != Some(0);
    *times = times.map(|left| left.saturating_sub(1));
    is_left
}

impl TextFault {
    /// The code of the first fault that applies to one of `texts`.
    pub(crate) fn apply(faults: &mut [Self], texts: &[&str]) -> Option<String> {
        let mut matching = faults.iter_mut().filter(|fault| texts.iter().any(|text| text.contains(&fault.containing)));
        matching.find_map(|fault| use_up(&mut fault.times).then(|| fault.code.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_each_kind_can_be_read() {
        let json = r#"
            {
              "putEvents": [
                {"http": 500},
                {"code": "ThrottlingException"},
                {"acceptThenDrop": true},
                {"failEntries": [{"index": 2, "code": "InternalFailure"}]},
                {"http": 400, "body": "<html>"},
                {},
                {"delayMs": 5000, "forever": true}
              ],
              "entries": [{"containing": "accountOverdrawn", "code": "InternalFailure", "times": 2}],
              "sendMessage": [{"http": 503}],
              "messages": [{"containing": "", "code": "AWS.SimpleQueueService.NonExistentQueue"}],
              "receiveMessage": [{"http": 500}],
              "deleteMessage": [{"acceptThenDrop": true}],
              "getQueueAttributes": [{"http": 503}],
              "describeEventBus": [{"code": "ThrottlingException"}],
              "encrypt": [{"code": "DisabledException"}],
              "decrypt": [{"code": "KMSInvalidStateException"}],
              "deliveries": [
                {"containing": "TodoCreated", "duplicate": true},
                {"containing": "OrderPlaced", "delayMs": 500, "times": 1},
                {"containing": "OrderPaid", "fail": true}
              ],
              "invocations": [{"containing": "TodoCreated", "times": 1}, {"function": "billing", "acceptThenDrop": true}],
              "projector": [{"killAfterMs": 0}, {}, {"killAfterMs": 50, "forever": true}],
              "reactor": [{"killAfterMs": 50}],
              "paused": ["stream-relay"]
            }
        "#;
        let faults: Faults = serde_json::from_str(json).unwrap();
        assert_eq!((faults.put_events.len(), faults.deliveries.len(), faults.paused.len()), (7, 3, 1));
    }

    #[test]
    fn error_of_an_unknown_member_lists_all_members() {
        let error = serde_json::from_str::<Faults>(r#"{"putEvent": []}"#).unwrap_err().to_string();
        for name in ["unknown field `putEvent`", "`putEvents`", "`invocations`", "`projector`", "`reactor`", "`paused`"]
        {
            assert_eq!(error.matches(name).count(), 1, "{error}");
        }
    }
}
