//! The faults of calls to the bus and to the queue.

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_local_aws::messaging::EntryFault;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::network::Reply;

/// The fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceFault {
    /// Some entries fail with a transient error.
    SomeEntries,
    /// One entry fails with a code that is not documented.
    UnknownCode,
    /// One entry is permanently rejected.
    RejectedEntry,
    /// The bus rejects the deployment in the result of one entry.
    DeniedEntry,
    /// 400 or 429.
    Throttled,
    /// 500 or 503, and the call was not executed.
    FailedBefore,
    /// 500 or 502, and the call was executed.
    FailedAfter,
    /// The bus rejects the deployment for the whole call.
    Denied,
    /// The service rejects the request as invalid.
    Invalid,
    /// The connection breaks before the call arrives.
    LostBefore,
    /// The connection breaks before the response arrives.
    LostAfter,
    /// The call never arrives, and the caller gets no error.
    HangsBefore,
    /// The response never arrives, and the caller gets no error.
    HangsAfter,
    /// The call arrives after its caller has stopped waiting.
    Late,
    /// Entries fail, and `FailedEntryCount` is 0.
    WrongCount,
    /// Entries fail, and their results are missing.
    MissingResults,
    /// Entries fail, and their results are empty.
    EmptyResults,
    /// The call is executed, and the response cannot be parsed.
    Garbage,
    /// The call takes seconds.
    Slow,
}

const FAULTS: [ServiceFault; 19] = [
    ServiceFault::SomeEntries,
    ServiceFault::UnknownCode,
    ServiceFault::RejectedEntry,
    ServiceFault::DeniedEntry,
    ServiceFault::Throttled,
    ServiceFault::FailedBefore,
    ServiceFault::FailedAfter,
    ServiceFault::Denied,
    ServiceFault::Invalid,
    ServiceFault::LostBefore,
    ServiceFault::LostAfter,
    ServiceFault::HangsBefore,
    ServiceFault::HangsAfter,
    ServiceFault::Late,
    ServiceFault::WrongCount,
    ServiceFault::MissingResults,
    ServiceFault::EmptyResults,
    ServiceFault::Garbage,
    ServiceFault::Slow,
];

/// The faults of `SendMessage`.
const FAULTS_OF_SEND_MESSAGE: [ServiceFault; 11] = [
    ServiceFault::Throttled,
    ServiceFault::FailedBefore,
    ServiceFault::FailedAfter,
    ServiceFault::Denied,
    ServiceFault::LostBefore,
    ServiceFault::LostAfter,
    ServiceFault::HangsBefore,
    ServiceFault::HangsAfter,
    ServiceFault::Late,
    ServiceFault::Garbage,
    ServiceFault::Slow,
];

impl ServiceFault {
    /// The response if the call is not executed.
    pub(crate) fn error(self, dice: &mut Dice) -> Option<Reply> {
        let codes: &[(u16, &str)] = match self {
            Self::Throttled => &[(400, "ThrottlingException"), (429, "ThrottlingException")],
            Self::FailedBefore => &[(500, "InternalFailure"), (503, "InternalFailure")],
            Self::Denied => &[
                (403, "AccessDeniedException"),
                (400, "AccessDeniedException"),
                (400, "ResourceNotFoundException"),
                (400, "ExpiredTokenException"),
            ],
            Self::Invalid => &[(400, "ValidationException")],
            _ => return None,
        };
        let (status, code) = dice.one_of(codes);
        Some(error_reply(status, code))
    }

    /// The entries of a request that fail because of the fault.
    pub(crate) fn of_entries(self, entries: usize, dice: &mut Dice) -> Vec<EntryFault> {
        let one = |dice: &mut Dice, codes: &[&str]| {
            vec![EntryFault { index: dice.size(0..=entries - 1), code: dice.one_of(codes).to_owned() }]
        };
        match self {
            Self::SomeEntries | Self::WrongCount | Self::MissingResults | Self::EmptyResults => {
                let failing: BTreeSet<_> = (0..dice.size(1..=entries)).map(|_| dice.size(0..=entries - 1)).collect();
                let codes = ["InternalFailure", "ThrottlingException"];
                failing.into_iter().map(|index| EntryFault { index, code: dice.one_of(&codes).to_owned() }).collect()
            }
            Self::UnknownCode => one(dice, &["SomethingNew"]),
            Self::RejectedEntry => one(dice, &["MalformedDetail", "InvalidArgument", "RedactionFailure"]),
            Self::DeniedEntry => one(
                dice,
                &[
                    "AccessDeniedException",
                    "InvalidAccountIdException",
                    "NotAuthorizedForDetailTypeException",
                    "NotAuthorizedForSourceException",
                ],
            ),
            _ => vec![],
        }
    }

    /// The response of `PutEvents` with this fault.
    pub(crate) fn damage_response(self, body: String) -> String {
        match self {
            Self::Garbage => return body[..body.floor_char_boundary(body.len() / 2)].to_owned(),
            Self::WrongCount | Self::MissingResults | Self::EmptyResults => {}
            _ => return body,
        }
        let mut response: Value = serde_json::from_str(&body).unwrap();
        let Some(entries) = response["Entries"].as_array_mut() else { return body };
        let failed = |entry: &Value| entry["ErrorCode"].is_string();
        match self {
            Self::MissingResults => entries.retain(|entry| !failed(entry)),
            Self::EmptyResults => {
                entries.iter_mut().filter(|entry| failed(entry)).for_each(|entry| *entry = json!({}));
            }
            _ => {}
        }
        if self != Self::EmptyResults {
            response["FailedEntryCount"] = json!(0);
        }
        response.to_string()
    }
}

/// The durations of the request and of the response.
pub(crate) fn latency(fault: Option<ServiceFault>, dice: &mut Dice) -> (Duration, Duration) {
    match fault {
        Some(ServiceFault::Slow) => (dice.milliseconds(1..=2_400), dice.milliseconds(1..=2_400)),
        // The time-out of a client is 5 s.
        Some(ServiceFault::Late) => (dice.milliseconds(100..=60_000), Duration::ZERO),
        _ => (dice.milliseconds(2..=20), dice.milliseconds(2..=20)),
    }
}

pub(crate) fn error_reply(status: u16, code: &str) -> Reply {
    Reply { status, body: json!({"__type": code, "message": "injected fault"}).to_string() }
}

/// The faults of the services in a schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServiceFaults {
    pub(crate) until: Option<Instant>,
    /// The share of bus calls with a fault, and the faults.
    bus: (f64, Vec<ServiceFault>),
    queue: (f64, Vec<ServiceFault>),
}

impl ServiceFaults {
    /// A random selection of the faults.
    pub(crate) fn draw(dice: &mut Dice, until: Instant) -> Self {
        let mut some_of = |faults: &[ServiceFault]| {
            let mut faults = faults.to_vec();
            dice.shuffle(&mut faults);
            faults.truncate(dice.size(1..=faults.len()));
            (dice.one_of(&[0.0, 0.1, 0.3, 0.6, 1.0]), faults)
        };
        Self { until: Some(until), bus: some_of(&FAULTS), queue: some_of(&FAULTS_OF_SEND_MESSAGE) }
    }

    pub(crate) fn have_ended(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    /// The fault of the next call.
    pub(crate) fn next_fault(&self, operation: &str, dice: &mut Dice) -> Option<ServiceFault> {
        if self.have_ended() {
            return None;
        }
        let (rate, kinds) = if operation == "PutEvents" { &self.bus } else { &self.queue };
        dice.chance(*rate).then(|| dice.one_of(kinds))
    }
}
