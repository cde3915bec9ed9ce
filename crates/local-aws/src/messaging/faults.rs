//! What should go wrong: a script of outcomes that calls use up one by one, and rules that stand.
//!
//! As JSON, camelCase, every member optional:
//!
//! ```
//! # let json = r#"
//! {
//!   "putEvents": [
//!     {"http": 500},
//!     {"code": "ThrottlingException"},
//!     {"acceptThenDrop": true},
//!     {"failEntries": [{"index": 2, "code": "InternalFailure"}]},
//!     {},
//!     {"delayMs": 5000, "forever": true}
//!   ],
//!   "entries": [{"containing": "accountOverdrawn", "code": "InternalFailure", "times": 2}],
//!   "sendMessage": [{"http": 503}],
//!   "messages": [{"containing": "", "code": "AWS.SimpleQueueService.NonExistentQueue"}],
//!   "receiveMessage": [{"http": 500}],
//!   "deleteMessage": [{"acceptThenDrop": true}]
//! }
//! # "#;
//! # serde_json::from_str::<local_bus::Faults>(json).unwrap();
//! ```

use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::messaging::wire::Refused;

/// All that should go wrong. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Faults {
    /// What becomes of the next calls of `PutEvents`, one each.
    pub put_events: Vec<CallFault>,
    /// Entries that fail by what they say: their `DetailType` or `Detail` contains the text.
    pub entries: Vec<Rule>,
    /// What becomes of the next calls of `SendMessage`, one each.
    pub send_message: Vec<CallFault>,
    /// Calls of `SendMessage` that are refused because the body contains the text.
    pub messages: Vec<Rule>,
    /// What becomes of the next calls of `ReceiveMessage`, one each. What an answer that is lost held is received, and
    /// comes again when its time is up.
    pub receive_message: Vec<CallFault>,
    /// What becomes of the next calls of `DeleteMessage` and `DeleteMessageBatch`, one each.
    pub delete_message: Vec<CallFault>,
}

/// What becomes of one call. `{}` lets it through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallFault {
    /// Wait this long first, in milliseconds.
    pub delay_ms: u64,
    /// Refuse the call with this status; 400 when only a code is given.
    pub http: Option<u16>,
    /// Refuse the call with this error code; `InternalFailure` or `ValidationException`, by the status, when only that
    /// is given.
    pub code: Option<String>,
    /// Do what the call asks and lose the answer: the connection breaks, or the refusal above is answered.
    pub accept_then_drop: bool,
    /// Fail these entries and take the others. Of use to `PutEvents` and
    /// `DeleteMessageBatch` only.
    pub fail_entries: Vec<EntryFault>,
    /// Not used up: every later call has this outcome too.
    pub forever: bool,
}

/// One entry that fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EntryFault {
    /// Its place in the request, from 0.
    pub index: usize,
    /// The error code.
    pub code: String,
}

/// A fault by content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// The text to look for; every content contains the empty one.
    pub containing: String,
    /// The error code.
    pub code: String,
    /// How many times; for ever when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
}

impl CallFault {
    /// Takes the outcome of the next call off a script.
    pub(crate) fn next(script: &mut Vec<Self>) -> Self {
        match script.first() {
            None => Self::default(),
            Some(fault) if fault.forever => fault.clone(),
            Some(_) => script.remove(0),
        }
    }

    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// The refusal of the whole call, if that is the outcome.
    pub(crate) fn refusal(&self) -> Option<Refused> {
        if self.http.is_none() && self.code.is_none() {
            return None;
        }
        let status = self.http.and_then(|http| StatusCode::from_u16(http).ok()).unwrap_or(StatusCode::BAD_REQUEST);
        let code = self.code.clone().unwrap_or_else(|| {
            if status.is_server_error() { "InternalFailure" } else { "ValidationException" }.to_owned()
        });
        Some(Refused { status, code, message: "a fault was asked for".to_owned() })
    }

    pub(crate) fn of_entry(&self, index: usize) -> Option<String> {
        self.fail_entries.iter().find(|fault| fault.index == index).map(|fault| fault.code.clone())
    }
}

impl Rule {
    /// The code of the first rule that any of `texts` falls under.
    pub(crate) fn apply(rules: &mut [Self], texts: &[&str]) -> Option<String> {
        let rule = rules
            .iter_mut()
            .find(|rule| rule.times != Some(0) && texts.iter().any(|text| text.contains(&rule.containing)))?;
        rule.times = rule.times.map(|times| times - 1);
        Some(rule.code.clone())
    }
}
