//! Checks of the outbox rows against their events.

use std::collections::{HashMap, HashSet};

use daybook_decider::record::FIRST_EPOCH;
use daybook_event_store::StoreSettings;
use daybook_event_store::internal::Item;
use daybook_event_store::limits::MAX_TRANSACTION_ITEMS;
use daybook_table::{OutboxItem, attributes, keys};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use ulid::Ulid;

use super::events::{Events, Fact, MessageHash};
use super::finding::{Discrepancy, Report};

const LEAST_TTL: SignedDuration = SignedDuration::from_hours(24 * *StoreSettings::OUTBOX_TTL_DAYS.start());

/// The outbox rows of the aggregate that exist, with which its events are compared: if event 4 is from yesterday and published
/// one message, `recent` must contain (4, 0).
pub(super) struct Messages {
    /// Events after this time must have all their rows.
    since: Timestamp,
    ids: HashMap<Ulid, String>,
    /// The event and index of each row whose event is after `since`.
    recent: HashSet<(u64, usize)>,
    /// The epoch of the store's settings, and the highest of the rows so far.
    epoch: u32,
    highest_epoch: u64,
}

impl Messages {
    pub(super) fn new(now: Timestamp, epoch: u32) -> Self {
        let since = now.checked_sub(LEAST_TTL).unwrap_or(Timestamp::MIN);
        Self { since, ids: HashMap::new(), recent: HashSet::new(), epoch, highest_epoch: FIRST_EPOCH.into() }
    }

    pub(super) fn row(&mut self, sk: String, row: Item, events: &Events<'_>, report: &mut Report<'_>) {
        report.verified.messages += 1;
        let Some((seq_num, index)) = seq_num_and_index(&sk) else {
            return report.add(&sk, Discrepancy::Unreadable { reason: "its sort key is not a message's".to_owned() });
        };
        // The row counts as existing even if it cannot be read.
        if events.fact(seq_num).is_some_and(|event| event.at > self.since) {
            self.recent.insert((seq_num, index));
        }
        let (item, message_id, detail, data) = match read(row) {
            Ok(read) => read,
            Err(reason) => return report.add(&sk, Discrepancy::Unreadable { reason }),
        };
        let first = self.ids.entry(message_id).or_insert_with(|| sk.clone());
        if *first != sk {
            let (value, first) = (item.message_id, first.clone());
            report.add(&sk, Discrepancy::Repeated { attribute: "messageId", value, first });
        }
        if seq_num > events.last() {
            report.add(&sk, Discrepancy::Unannounced { reason: format!("there is no event {seq_num}") });
        }
        self.check_epoch(&sk, &detail["epoch"], report);
        let Some(event) = events.fact(seq_num) else { return };
        if !event.is_published {
            let reason = format!("event {seq_num} was imported without its messages");
            report.add(&sk, Discrepancy::Unannounced { reason });
        }
        if !report.changed.contains(&sk)
            && let Some(attribute) = other_than_announced(event, index, &item.message_type, &data)
        {
            report.warn(&sk, Discrepancy::DiffersFromCode { attribute, seq_num });
        }
        let event_id = event.event_id.to_string();
        if detail["eventId"] != *event_id {
            let attribute = "detail/metadata/eventId";
            report.add(&sk, Discrepancy::differs(attribute, detail["eventId"].clone(), event_id));
        }
        let Some(before) = events.messages_before(seq_num) else { return };
        let (announced, number) = (event.message_seq.saturating_sub(before), before + index as u64 + 1);
        if index as u64 >= announced {
            let reason = format!("event {seq_num} announced {announced} messages, this is its index {index}");
            report.add(&sk, Discrepancy::Unannounced { reason });
        } else if item.message_seq != number {
            report.add(&sk, Discrepancy::differs(attributes::MESSAGE_SEQ, item.message_seq, number));
        }
    }

    /// Checks that epochs never fall within an aggregate, and are not above that of the settings: consumers ignore a message
    /// with a lower epoch than that of an earlier one.
    fn check_epoch(&mut self, sk: &str, found: &Value, report: &mut Report<'_>) {
        let epoch = found.as_u64();
        let expected = match epoch {
            None => "a number, at least 1".to_owned(),
            Some(epoch) if epoch < self.highest_epoch => {
                format!("at least {}, the epoch of an earlier message", self.highest_epoch)
            }
            Some(epoch) if epoch > u64::from(self.epoch) => format!("at most {}, the setting EPOCH", self.epoch),
            Some(_) => String::new(),
        };
        self.highest_epoch = self.highest_epoch.max(epoch.unwrap_or_default());
        if !expected.is_empty() {
            report.add(sk, Discrepancy::differs("detail/metadata/epoch", found.clone(), expected));
        }
    }

    pub(super) fn finish(&self, events: &Events<'_>, report: &mut Report<'_>) {
        for (seq_num, event) in events.facts().filter(|(_, event)| event.is_published && event.at > self.since) {
            let Some(before) = events.messages_before(seq_num) else { continue };
            // A larger count than an append can hold is reported at the event.
            let announced = (before + 1..=event.message_seq).take(MAX_TRANSACTION_ITEMS);
            for (index, message_seq) in announced.enumerate() {
                if !self.recent.contains(&(seq_num, index)) {
                    let sk = keys::outbox_sk(seq_num, index);
                    report.add(sk, Discrepancy::MessageMissing { message_seq });
                }
            }
        }
    }
}

/// What of a message is not as this code publishes it for its event.
fn other_than_announced(event: &Fact, index: usize, message_type: &str, data: &Value) -> Option<&'static str> {
    let (announced, found) = (event.announced.as_ref()?, MessageHash::of(message_type, data));
    match announced.get(index) {
        Some(expected) if *expected == found => None,
        Some(expected) if expected.message_type == found.message_type => Some("detail/data"),
        Some(_) => Some("messageType"),
        None => Some("the row"),
    }
}

fn seq_num_and_index(sk: &str) -> Option<(u64, usize)> {
    let (seq_num, index) = sk.strip_prefix(keys::OUTBOX_PREFIX)?.split_once('#')?;
    let (seq_num, index) = (seq_num.parse().ok()?, index.parse().ok()?);
    (keys::outbox_sk(seq_num, index) == sk).then_some((seq_num, index))
}

/// The row, its id, and the metadata and the data within its detail.
fn read(row: Item) -> Result<(OutboxItem, Ulid, Value, Value), String> {
    let item: OutboxItem = serde_dynamo::from_item(row).map_err(|error| error.to_string())?;
    let id = Ulid::from_string(&item.message_id);
    let id = id.map_err(|_| format!("messageId cannot be {:?}", item.message_id))?;
    let mut detail: Value = serde_json::from_str(&item.detail).map_err(|error| format!("detail: {error}"))?;
    let metadata = detail.get_mut("metadata").map(Value::take).ok_or("the detail has no metadata")?;
    let data = detail.get_mut("data").map(Value::take).unwrap_or_default();
    Ok((item, id, metadata, data))
}
