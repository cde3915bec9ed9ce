//! What can go wrong with a call to the bus or to the queue.

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_local_aws::messaging::EntryFault;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::dice::Dice;
use crate::wire::Reply;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Some entries fail, and it passes.
    SomeEntries,
    /// One entry fails with a code that is not documented.
    AnUnknownCode,
    /// One entry is refused for good.
    ARefusal,
    /// The deployment is refused, for one entry.
    ADenial,
    /// 400 or 429.
    Throttled,
    /// 500 or 503, and nothing was done.
    FailedBefore,
    /// 500 or 502, and it was done.
    FailedAfter,
    /// The deployment is refused, for all.
    Denied,
    /// The request is said to be wrong.
    Invalid,
    /// The connection breaks before the call arrives.
    LostBefore,
    /// The connection breaks before the answer arrives.
    LostAfter,
    /// The call never arrives, and nothing says so.
    HangsBefore,
    /// The answer never arrives, and nothing says so.
    HangsAfter,
    /// The call arrives when nobody waits for it any more.
    Late,
    /// Entries fail, and the count of failures is 0.
    WrongCount,
    /// Entries fail, and their results are missing.
    MissingResults,
    /// Entries fail, and their results say nothing.
    EmptyResults,
    /// It is done, and the answer cannot be read.
    Garbage,
    /// It takes seconds.
    Slow,
}

const FAULTS: [Fault; 19] = [
    Fault::SomeEntries,
    Fault::AnUnknownCode,
    Fault::ARefusal,
    Fault::ADenial,
    Fault::Throttled,
    Fault::FailedBefore,
    Fault::FailedAfter,
    Fault::Denied,
    Fault::Invalid,
    Fault::LostBefore,
    Fault::LostAfter,
    Fault::HangsBefore,
    Fault::HangsAfter,
    Fault::Late,
    Fault::WrongCount,
    Fault::MissingResults,
    Fault::EmptyResults,
    Fault::Garbage,
    Fault::Slow,
];

/// Those that `SendMessage` can meet.
const FAULTS_OF_PARKING: [Fault; 11] = [
    Fault::Throttled,
    Fault::FailedBefore,
    Fault::FailedAfter,
    Fault::Denied,
    Fault::LostBefore,
    Fault::LostAfter,
    Fault::HangsBefore,
    Fault::HangsAfter,
    Fault::Late,
    Fault::Garbage,
    Fault::Slow,
];

impl Fault {
    /// The answer where nothing is done.
    pub(crate) fn refusal(self, dice: &mut Dice) -> Option<Reply> {
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
        Some(refusal(status, code))
    }

    /// The entries of a request that fail by it.
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
            Self::AnUnknownCode => one(dice, &["SomethingNew"]),
            Self::ARefusal => one(dice, &["MalformedDetail", "InvalidArgument", "RedactionFailure"]),
            Self::ADenial => one(
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

    /// The answer of `PutEvents` as it leaves it.
    pub(crate) fn spoil(self, body: String) -> String {
        match self {
            Self::Garbage => return body[..body.len() / 2].to_owned(),
            Self::WrongCount | Self::MissingResults | Self::EmptyResults => {}
            _ => return body,
        }
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        let Some(entries) = answer["Entries"].as_array_mut() else { return body };
        let failed = |entry: &Value| entry["ErrorCode"].is_string();
        match self {
            Self::MissingResults => entries.retain(|entry| !failed(entry)),
            Self::EmptyResults => {
                entries.iter_mut().filter(|entry| failed(entry)).for_each(|entry| *entry = json!({}));
            }
            _ => {}
        }
        if self != Self::EmptyResults {
            answer["FailedEntryCount"] = json!(0);
        }
        answer.to_string()
    }
}

/// The time that a call takes, there and back.
pub(crate) fn latency(fault: Option<Fault>, dice: &mut Dice) -> (Duration, Duration) {
    match fault {
        Some(Fault::Slow) => (dice.milliseconds(1..=2_400), dice.milliseconds(1..=2_400)),
        // A client waits for 5 s.
        Some(Fault::Late) => (dice.milliseconds(100..=60_000), Duration::ZERO),
        _ => (dice.milliseconds(2..=20), dice.milliseconds(2..=20)),
    }
}

pub(crate) fn refusal(status: u16, code: &str) -> Reply {
    Reply { status, body: json!({"__type": code, "message": "told to fail"}).to_string() }
}

/// How ill the services are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Illness {
    pub(crate) until: Option<Instant>,
    /// Of the bus: how many calls in a hundred go wrong, and how.
    bus: (f64, Vec<Fault>),
    queue: (f64, Vec<Fault>),
}

impl Illness {
    /// Some of the faults that there are.
    pub(crate) fn draw(dice: &mut Dice, until: Instant) -> Self {
        let mut some_of = |faults: &[Fault]| {
            let mut faults = faults.to_vec();
            dice.shuffle(&mut faults);
            faults.truncate(dice.size(1..=faults.len()));
            (dice.one_of(&[0.0, 0.1, 0.3, 0.6, 1.0]), faults)
        };
        Self { until: Some(until), bus: some_of(&FAULTS), queue: some_of(&FAULTS_OF_PARKING) }
    }

    pub(crate) fn passed(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() >= until)
    }

    /// What goes wrong with the next call.
    pub(crate) fn strike(&self, operation: &str, dice: &mut Dice) -> Option<Fault> {
        if self.passed() {
            return None;
        }
        let (rate, kinds) = if operation == "PutEvents" { &self.bus } else { &self.queue };
        dice.chance(*rate).then(|| dice.one_of(kinds))
    }
}
