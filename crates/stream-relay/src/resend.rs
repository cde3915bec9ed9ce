//! Outbox rows that an operator sends again. No stream stands behind them and none goes to the dead-letter queue: a message
//! that the bus does not take stays where it was.

use std::num::NonZeroU32;
use std::time::Duration;

use daybook_table::OutboxItem;

use crate::limits::Limits;
use crate::message::{EntryError, PendingMessage};
use crate::published::Published;
use crate::publisher::Publisher;
use crate::record::OutboxRow;
use crate::settings::RelaySettings;

/// Sending ends when the bus has answered with nothing but failures for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResendOutcome {
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
    publisher: Publisher,
    settings: RelaySettings,
    limits: Limits,
}

impl Resend {
    /// A sender of at most so many messages a second, over a client that does not retry by itself, such as that of
    /// [`clients`](crate::clients).
    pub fn new(bus: aws_sdk_eventbridge::Client, settings: RelaySettings, per_second: NonZeroU32) -> Self {
        let publisher = Publisher { bus, retry: settings.retry, dead_letter_queue: None };
        let limits = Limits { rate: Some(per_second), patience: Some(PATIENCE), ..Limits::default() };
        Self { publisher, settings, limits }
    }

    /// Ends sending when the bus has answered with nothing but failures for so long; a minute by default.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.limits.patience = Some(patience);
        self
    }

    /// Sends the rows, each aggregate's in order of `messageSeq`, and returns what became of each, in the order in which
    /// they were given. A row that the bus refuses for good holds up nothing; a transient failure is retried; an error of
    /// the deployment, a bus that takes nothing any more, or `stop` end it once the requests in flight are back.
    pub async fn send(&mut self, rows: Vec<OutboxItem>, stop: impl Future<Output = ()>) -> Vec<ResendOutcome> {
        let mut unreadable = Vec::with_capacity(rows.len());
        let mut messages = Vec::with_capacity(rows.len());
        for row in rows {
            match OutboxRow::of(row) {
                Ok(row) => {
                    messages.push(PendingMessage::of_row(row, Vec::new(), &self.settings));
                    unreadable.push(None);
                }
                Err(reason) => unreadable.push(Some(EntryError::new("UnreadableRow", reason))),
            }
        }
        let mut published = outcomes(self.publisher.publish(messages, &mut self.limits, stop).await);
        unreadable
            .into_iter()
            .filter_map(|error| error.map(ResendOutcome::Refused).or_else(|| published.next()))
            .collect()
    }
}

fn outcomes(Published { messages, unsettled, .. }: Published) -> impl Iterator<Item = ResendOutcome> {
    messages.into_iter().enumerate().map(move |(index, message)| match message.permanent_error {
        _ if unsettled.contains(&index) => ResendOutcome::Unsent(message.last_error),
        Some(error) => ResendOutcome::Refused(error),
        None => ResendOutcome::Sent,
    })
}
