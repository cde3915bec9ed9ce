//! Sending rows again because an operator says so: the lanes, the packing and the judgement of answers are the relay's. No
//! stream stands behind it and nothing is parked: what the bus does not take stays where it was.

use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

use daybook_table::OutboxItem;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::faults::{Failure, Fault, judge};
use crate::lanes::{Lanes, Step, Verdict};
use crate::message::{EntryError, Message};
use crate::record::OutboxRow;
use crate::settings::RelaySettings;

/// When the bus answers with nothing but failures for so long, it is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bus took it.
    Sent,
    /// It can never be sent as it is.
    Refused(EntryError),
    /// It was not sent, or nobody knows: it can be sent later. With the last failure, if there was one.
    Unsent(Option<EntryError>),
}

/// A sender at a bounded rate.
#[derive(Debug)]
pub struct Resend {
    bus: aws_sdk_eventbridge::Client,
    settings: RelaySettings,
    per_second: NonZeroU32,
    patience: Duration,
    /// No request leaves before.
    next_at: Instant,
}

impl Resend {
    /// A sender of at most so many messages a second, over a client that does not try again itself, such as that of
    /// [`clients`](crate::clients).
    pub fn new(bus: aws_sdk_eventbridge::Client, settings: RelaySettings, per_second: NonZeroU32) -> Self {
        Self { bus, settings, per_second, patience: PATIENCE, next_at: Instant::now() }
    }

    /// Gives the bus up when it answers with nothing but failures for so long; a minute by default.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Sends the rows, each aggregate's in order of `messageSeq`, and answers what became of each, in the order in which
    /// they were given. What the bus refuses for good holds up nothing; what fails for a moment is tried again; a fault of
    /// the deployment, a bus that takes nothing any more, or `stop` end it once what is in flight is back.
    pub async fn send(&mut self, rows: Vec<OutboxItem>, stop: impl Future<Output = ()>) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(rows.len());
        let (mut messages, mut places) = (Vec::new(), Vec::new());
        for (place, row) in rows.into_iter().enumerate() {
            match OutboxRow::of(row) {
                Ok(row) => {
                    outcomes.push(Outcome::Unsent(None));
                    messages.push(Message::of_row(row, &self.settings));
                    places.push(place);
                }
                Err(reason) => outcomes.push(Outcome::Refused(EntryError::new("UnreadableRow", reason))),
            }
        }
        let lanes = Lanes::new(messages.iter().map(Message::place));
        let mut run = Run {
            outcomes: vec![Outcome::Unsent(None); messages.len()],
            messages,
            lanes,
            calls: JoinSet::new(),
            failing_since: None,
        };
        run.until_settled(self, stop).await;
        for (place, outcome) in places.into_iter().zip(run.outcomes) {
            outcomes[place] = outcome;
        }
        outcomes
    }
}

struct Run {
    messages: Vec<Message>,
    outcomes: Vec<Outcome>,
    lanes: Lanes,
    calls: JoinSet<Sent>,
    /// When the first of the answers came that were nothing but failures, up to now.
    failing_since: Option<Instant>,
}

/// A request that is back.
struct Sent {
    request: Vec<usize>,
    results: Vec<Result<(), Failure>>,
}

impl Run {
    async fn until_settled(&mut self, sender: &mut Resend, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut stopped = false;
        loop {
            // One time for all that is asked of it: what is not due now is waited for.
            let now = Instant::now();
            while !stopped
                && sender.next_at <= now
                && let Some(step) = self.lanes.next(now)
            {
                self.start(sender, step);
            }
            if self.calls.is_empty() && (stopped || self.lanes.unsettled().next().is_none()) {
                return;
            }
            let due = self.lanes.wake().into_iter().chain([sender.next_at]).filter(|&at| at > now).min();
            tokio::select! {
                Some(done) = self.calls.join_next() => stopped |= self.finish(sender, done) == Progress::Never,
                () = sleep_until(due.unwrap_or(now)), if !stopped && due.is_some() => {}
                () = &mut stop, if !stopped => stopped = true,
            }
        }
    }

    fn start(&mut self, sender: &mut Resend, step: Step) {
        match step {
            Step::Send(request) => {
                let count = u32::try_from(request.len()).unwrap_or(u32::MAX);
                let time = Duration::from_secs(1) * count / sender.per_second.get();
                sender.next_at = sender.next_at.max(Instant::now()) + time;
                let entries = request.iter().filter_map(|&index| self.messages[index].entry().cloned());
                let call = sender.bus.put_events().set_entries(Some(entries.collect())).send();
                self.calls.spawn(async move {
                    let results = judge(request.len(), call.await);
                    Sent { request, results }
                });
            }
            // It stays where it is, and holds up nothing: so it was when it was parked first.
            Step::Park(index) => {
                let refusal = self.messages[index].refusal.clone();
                let refusal = refusal.unwrap_or_else(|| EntryError::new("Refused", "the bus never takes it"));
                self.outcomes[index] = Outcome::Refused(refusal);
                self.lanes.parked(index, true);
            }
        }
    }

    /// Whether that brings it nearer to the end.
    fn finish(&mut self, sender: &Resend, done: Result<Sent, JoinError>) -> Progress {
        let Sent { request, results } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "a call ended abnormally");
                return Progress::Never;
            }
        };
        let attempts = request.iter().map(|&index| self.lanes.attempts(index)).max().unwrap_or_default();
        let again = Verdict::Again(Instant::now() + sender.settings.pace.wait(attempts));
        let mut progress = Progress::None;
        let mut verdicts = Vec::with_capacity(request.len());
        for (index, result) in request.into_iter().zip(results) {
            let Err(failure) = result else {
                self.outcomes[index] = Outcome::Sent;
                verdicts.push((index, Verdict::Sent));
                if progress == Progress::None {
                    progress = Progress::Some;
                }
                continue;
            };
            if failure.fault == Fault::Deployment {
                progress = Progress::Never;
            }
            let verdict = failure.verdict(&mut self.messages[index].unknown_failures, again);
            if verdict == Verdict::Refused {
                self.messages[index].refusal = Some(failure.refusal);
                if progress == Progress::None {
                    progress = Progress::Some;
                }
            } else {
                self.outcomes[index] = Outcome::Unsent(Some(failure.refusal));
            }
            verdicts.push((index, verdict));
        }
        self.lanes.answer(verdicts);
        if progress == Progress::Some {
            self.failing_since = None;
        } else if self.failing_since.get_or_insert_with(Instant::now).elapsed() >= sender.patience {
            progress = Progress::Never;
        }
        progress
    }
}

/// Whether an answer brings it nearer to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Some,
    None,
    /// The deployment is at fault, or the bus has failed for too long: nothing more is sent.
    Never,
}
