//! The order of an aggregate's messages: which one is next, and which are missing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::message::{BusMessage, Number};

/// Messages of an aggregate by their epoch and number: (1, 7) is before (2, 3).
pub(crate) type Messages = BTreeMap<Number, BusMessage>;

/// Consecutive messages that are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Their epoch.
    pub epoch: u32,
    /// The number of the first one. `None` if it is unknown which message is the first of the epoch.
    pub from: Option<u64>,
    /// The number of the last one.
    pub to: u64,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            None => write!(f, "up to {}", self.to)?,
            Some(from) if from == self.to => write!(f, "{from}")?,
            Some(from) => write!(f, "{from}-{}", self.to)?,
        }
        if self.epoch > 1 { write!(f, " of epoch {}", self.epoch) } else { Ok(()) }
    }
}

/// Whether this message is the next one after `last`.
///
/// The first message of an aggregate in an epoch contains the epoch of the message before it, or has number 1. The table
/// was restored to a time before that message, so messages of earlier epochs with its number or a higher one are of lost
/// events. `last` may be one of them.
fn is_next(last: Number, message: &BusMessage) -> bool {
    let Number { epoch, message_seq } = message.number();
    if epoch == last.epoch {
        return message_seq == last.message_seq + 1;
    }
    let follows_known_epoch = message.metadata.previous_epoch.is_some_and(|previous| previous <= last.epoch);
    epoch > last.epoch && message_seq <= last.message_seq + 1 && (message_seq == 1 || follows_known_epoch)
}

/// The messages that can be applied after `last`, in their order.
pub(crate) fn next_messages(last: Number, messages: &Messages) -> Vec<&BusMessage> {
    let (mut last, mut next) = (last, Vec::new());
    loop {
        // The first message of a later epoch comes before others: it shows that messages of earlier epochs with its number
        // are of lost events.
        let later =
            messages.range(last..).map(|(_, message)| message).filter(|message| message.metadata.epoch > last.epoch);
        let firsts = later.filter(|message| is_next(last, message));
        let in_later_epoch = firsts.max_by_key(|message| (message.metadata.epoch, Reverse(message.number())));
        let in_epoch = Number { message_seq: last.message_seq + 1, ..last };
        let Some(message) = in_later_epoch.or_else(|| messages.get(&in_epoch)) else { return next };
        last = message.number();
        next.push(message);
    }
}

/// The messages that must arrive before all of these can be applied after `last`.
pub(crate) fn missing(last: Number, messages: &Messages) -> Vec<Missing> {
    let (mut last, mut all) = (last, Vec::new());
    let applied = last;
    for (&number, message) in messages.iter().filter(|(number, _)| **number > applied) {
        let is_first = number.message_seq == 1 || message.metadata.previous_epoch.is_some();
        let before = number.message_seq - 1;
        if number.epoch != last.epoch && !is_first && last.epoch != 0 {
            all.push(Missing { epoch: number.epoch, from: None, to: before });
        } else if before > last.message_seq {
            let epoch = if number.epoch == last.epoch { last.epoch } else { last.epoch.max(1) };
            all.push(Missing { epoch, from: Some(last.message_seq + 1), to: before });
        }
        last = number;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    fn number(epoch: u32, message_seq: u64) -> Number {
        Number { epoch, message_seq }
    }

    /// A message of an epoch, with the epoch of the message before it if that is not 0.
    fn of(epoch: u32, message_seq: u64, previous: u32) -> BusMessage {
        let message = message("order/1", message_seq, ("OrderPlaced", 1), serde_json::json!({}));
        message.in_epoch(epoch, (previous > 0).then_some(previous))
    }

    fn all(messages: impl IntoIterator<Item = BusMessage>) -> Messages {
        messages.into_iter().map(|message| (message.number(), message)).collect()
    }

    fn next(last: Number, messages: impl IntoIterator<Item = BusMessage>) -> Vec<Number> {
        next_messages(last, &all(messages)).into_iter().map(BusMessage::number).collect()
    }

    fn gaps(last: Number, messages: impl IntoIterator<Item = BusMessage>) -> Vec<String> {
        missing(last, &all(messages)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn messages_are_applied_up_to_the_first_gap() {
        assert_eq!(next(Number::default(), [of(1, 3, 0), of(1, 1, 0), of(1, 2, 0)]).len(), 3);
        assert_eq!(next(number(1, 1), [of(1, 1, 0), of(1, 2, 0), of(1, 4, 0)]), [number(1, 2)]);
        assert_eq!(next(Number::default(), [of(1, 2, 0)]), []);
    }

    #[test]
    fn epoch_begins_with_its_first_message_only() {
        // Message 6 follows message 5 only by its number: the epoch may have begun with message 4.
        assert_eq!(next(number(1, 5), [of(2, 6, 0)]), []);
        let from_4 = || [of(2, 6, 0), of(2, 4, 1), of(2, 5, 0)];
        assert_eq!(next(number(1, 5), from_4()), [number(2, 4), number(2, 5), number(2, 6)]);
        // Messages 2 and 3 of epoch 1 are not lost, and come first.
        assert_eq!(next(number(1, 1), from_4()), []);
        let before = [of(1, 2, 0), of(1, 3, 0), of(1, 4, 0)];
        let applied = next(number(1, 1), before.into_iter().chain(from_4()));
        assert_eq!(applied, [number(1, 2), number(1, 3), number(2, 4), number(2, 5), number(2, 6)]);
        // An aggregate that was created again.
        assert_eq!(next(number(1, 5), [of(2, 1, 0)]), [number(2, 1)]);
        assert_eq!(next(Number::default(), [of(2, 1, 0), of(2, 2, 0)]).len(), 2);
    }

    #[test]
    fn epoch_in_between_is_waited_for() {
        assert_eq!(next(number(1, 5), [of(3, 6, 2)]), []);
        assert_eq!(next(number(1, 5), [of(3, 6, 2), of(2, 5, 1)]), [number(2, 5), number(3, 6)]);
        // The epoch in between had no message of the aggregate, or only lost ones.
        assert_eq!(next(number(1, 5), [of(3, 6, 1), of(2, 6, 1)]), [number(3, 6)]);
    }

    #[test]
    fn missing_messages_are_listed_exactly() {
        assert_eq!(gaps(Number::default(), [of(1, 3, 0), of(1, 4, 0), of(1, 6, 0)]), ["1-2", "5"]);
        assert_eq!(gaps(number(1, 4), [of(1, 3, 0), of(1, 6, 0)]), ["5"]);
        assert_eq!(gaps(number(1, 2), [of(2, 5, 1), of(2, 7, 0)]), ["3-4", "6 of epoch 2"]);
        assert_eq!(gaps(number(1, 5), [of(2, 6, 0)]), ["up to 5 of epoch 2"]);
        assert_eq!(gaps(number(2, 5), [of(2, 7, 0)]), ["6 of epoch 2"]);
    }
}
