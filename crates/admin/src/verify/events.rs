//! Checks of the events against each other and against the code that reads them; of the metadata, which contains how far the events
//! go; and of the positions of processes, none of which is after the last event.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use daybook_decider::record::timestamp;
use daybook_decider::{Folded, Json, Model, OutboxMessage, RecordedEvent, personal};
use daybook_event_store::StoreSettings;
use daybook_event_store::internal::{Item, text};
use daybook_event_store::limits::MAX_TRANSACTION_ITEMS;
use daybook_table::{EventItem, Metadata, PositionItem, attributes, keys};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use ulid::Ulid;

use super::finding::{Discrepancy, Report};
use super::snapshots::Snapshots;

/// The longest time for which outbox rows are stored, with a day for their deletion.
const LONGEST_TTL: SignedDuration = SignedDuration::from_hours(24 * (*StoreSettings::OUTBOX_TTL_DAYS.end() + 1));

pub(super) struct Events<'a> {
    pub(super) model: &'a dyn Model,
    pub(super) shards: u32,
    /// The outbox rows of events before this time have expired.
    rows_since: Timestamp,
    /// The facts to compare other rows with; `None` for an event that exists and cannot be read.
    facts: BTreeMap<u64, Option<Fact>>,
    ids: HashMap<Ulid, u64>,
    /// The last event according to the metadata.
    pub(super) version: Option<u64>,
    /// The same, read again after all events, when there are events beyond the first value.
    pub(super) version_after: Option<u64>,
    /// The end of the append of the previous event, if that append continues.
    append_end: Option<u64>,
    /// The fold of all events so far. After a gap, it is the fold of the events since the gap, which only shows
    /// whether they can be read.
    folded: Option<Folded>,
    has_gap: bool,
    /// Whether the aggregate is deleted after the events up to the metadata's version, if that is known.
    deleted: Option<bool>,
}

pub(super) struct Fact {
    pub(super) event_id: Ulid,
    pub(super) message_seq: u64,
    pub(super) at: Timestamp,
    /// Whether its messages were published: they are not if it was imported without them.
    pub(super) is_published: bool,
    /// The messages that this code publishes for the event, if they are known.
    pub(super) announced: Option<Vec<MessageHash>>,
}

/// The hashes of a message's type and of its data: they need less memory than the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHash {
    pub(super) message_type: u64,
    pub(super) data: u64,
}

impl MessageHash {
    pub(super) fn of(message_type: &str, data: &Value) -> Self {
        let hash = |text: &str| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        };
        Self { message_type: hash(message_type), data: hash(&data.to_string()) }
    }
}

/// Whether a personal value is in plain text: only one that was sealed has a subject.
fn is_plain(data: &Json) -> bool {
    personal::subjects(data.text()).contains("")
}

impl<'a> Events<'a> {
    pub(super) fn new(model: &'a dyn Model, shards: u32, now: Timestamp) -> Self {
        Self {
            model,
            shards,
            rows_since: now.checked_sub(LONGEST_TTL).unwrap_or(Timestamp::MIN),
            facts: BTreeMap::new(),
            ids: HashMap::new(),
            version: None,
            version_after: None,
            append_end: None,
            folded: Some(model.before_first_event()),
            has_gap: false,
            deleted: None,
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.facts.last_key_value().map_or(0, |(&last, _)| last)
    }

    /// The facts about event `seq_num`, when it exists and can be read.
    pub(super) fn fact(&self, seq_num: u64) -> Option<&Fact> {
        self.facts.get(&seq_num)?.as_ref()
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = (u64, &Fact)> {
        self.facts.iter().filter_map(|(&seq_num, fact)| Some((seq_num, fact.as_ref()?)))
    }

    /// The aggregate after the events up to the metadata's version, if that is known.
    pub(super) fn folded(&self) -> Option<&Folded> {
        self.folded.as_ref().filter(|folded| !self.has_gap && self.version == Some(folded.version()))
    }

    /// The number of messages before event `seq_num`, if that is known.
    pub(super) fn messages_before(&self, seq_num: u64) -> Option<u64> {
        match seq_num.checked_sub(1)? {
            0 => Some(0),
            before => self.fact(before).map(|event| event.message_seq),
        }
    }

    pub(super) fn row(&mut self, sk: String, row: Item, snapshots: &mut Snapshots<'_>, report: &mut Report<'_>) {
        report.verified.events += 1;
        let Some(seq_num) = keys::event_seq_num(&sk) else {
            return report.add(sk, Discrepancy::Unreadable { reason: "its sort key is not an event's".to_owned() });
        };
        self.gap(self.last() + 1, seq_num - 1, report);
        let item: EventItem = match serde_dynamo::from_item(row) {
            Ok(item) => item,
            Err(error) => return self.unreadable(seq_num, sk, error.to_string(), report),
        };
        let (append_end, gsi1pk) = (item.append_end, item.gsi1pk.clone());
        let is_published = item.not_published != Some(true);
        let event = match item.into_event() {
            Ok(event) => event,
            Err(error) => return self.unreadable(seq_num, sk, error.to_string(), report),
        };
        if self.model.read(&event).is_ok_and(|read| read.iter().any(|(_, data)| is_plain(data))) {
            report.warn(sk.clone(), Discrepancy::PlainText);
        }
        let partitions = keys::gsi1pks(&event.event_type, self.shards);
        if !partitions.contains(&gsi1pk) {
            // The feed would not return it.
            report.add(sk.clone(), Discrepancy::differs(attributes::GSI1PK, gsi1pk, partitions.join(" or ")));
        }
        self.append(&sk, seq_num, append_end, report);
        if let Some(before) = self.messages_before(seq_num) {
            let most = before + MAX_TRANSACTION_ITEMS as u64 - 1;
            if !(before..=most).contains(&event.message_seq) {
                let expected = format!("{before} to {most}: an append holds no more");
                report.add(sk.clone(), Discrepancy::differs(attributes::MESSAGE_SEQ, event.message_seq, expected));
            }
        }
        let first = *self.ids.entry(event.event_id).or_insert(seq_num);
        if first != seq_num {
            let (value, first) = (event.event_id.to_string(), keys::event_sk(first));
            report.add(sk.clone(), Discrepancy::Repeated { attribute: "eventId", value, first });
        }
        let announced = self.announced(&report.key.id, &event);
        self.fold(sk, &event, report);
        if let Some(folded) = self.folded.as_ref().filter(|_| !self.has_gap) {
            snapshots.compare(folded, report);
            if self.version == Some(seq_num) {
                self.deleted = Some(self.model.is_deleted(folded));
            }
        }
        let fact = Fact {
            event_id: event.event_id,
            message_seq: event.message_seq,
            at: event.occurred_at,
            is_published,
            announced,
        };
        self.facts.insert(seq_num, Some(fact));
    }

    pub(super) fn finish(&mut self, report: &mut Report<'_>) {
        let last = self.last();
        let end = self.version.max(self.append_end).unwrap_or_default();
        self.gap(last + 1, end, report);
        if let Some(version) = self.version_after {
            let beyond: Vec<_> = self.facts.range(version + 1..).map(|(&seq_num, _)| seq_num).collect();
            for seq_num in beyond {
                report.add(keys::event_sk(seq_num), Discrepancy::BeyondMetadata { version });
            }
        }
    }

    /// Records that the events from `first` to `last` are missing.
    fn gap(&mut self, first: u64, last: u64, report: &mut Report<'_>) {
        if first <= last {
            self.has_gap = true;
            report.add(keys::event_sk(first), Discrepancy::EventsMissing { first, last });
        }
    }

    fn unreadable(&mut self, seq_num: u64, sk: String, reason: String, report: &mut Report<'_>) {
        self.has_gap = true;
        self.append_end = None;
        self.facts.insert(seq_num, None);
        report.add(sk, Discrepancy::Unreadable { reason });
    }

    /// Checks that every event of an append but the last contains where the append ends.
    fn append(&mut self, sk: &str, seq_num: u64, append_end: Option<u64>, report: &mut Report<'_>) {
        let continuing = self.append_end.filter(|&end| end >= seq_num);
        let reason = match (continuing, append_end) {
            (_, Some(end)) if end <= seq_num => Some(format!("it ends its append at event {end}")),
            (Some(end), None) if end > seq_num => {
                Some(format!("the events before it end their append at event {end}, it ends the append itself"))
            }
            (Some(end), Some(other)) if end != other => {
                Some(format!("the events before it end their append at event {end}, it ends the append at {other}"))
            }
            _ => None,
        };
        if let Some(reason) = reason {
            report.add(sk.to_owned(), Discrepancy::AppendEndsDiffer { reason });
        }
        self.append_end = append_end.filter(|&end| end > seq_num);
    }

    /// The messages that this code publishes for the next event. Unknown after a gap, and left out if the event has no messages,
    /// or none whose row still exists.
    fn announced(&self, id: &str, event: &RecordedEvent) -> Option<Vec<MessageHash>> {
        let before = self.folded.as_ref().filter(|before| !self.has_gap && before.version() + 1 == event.seq_num)?;
        if event.occurred_at < self.rows_since || event.message_seq == before.message_seq() {
            return None;
        }
        let messages = self.model.announced(before, id, event, 1).ok()?;
        let hash = |message: OutboxMessage| Some(MessageHash::of(&message.message_type, &message.data.read().ok()?));
        messages.into_iter().map(hash).collect()
    }

    /// Folds the event onto the events before it. When these cannot be folded correctly, it folds onto the state
    /// before the first event, to check that the code can read the event.
    fn fold(&mut self, sk: String, event: &RecordedEvent, report: &mut Report<'_>) {
        let before = event.seq_num - 1;
        let onto = match self.folded.take() {
            Some(folded) if folded.version() == before => Some(folded),
            _ => {
                let before_first = self.model.before_first_event();
                self.model.state(&before_first).and_then(|state| self.model.restore(before, 0, &state)).ok()
            }
        };
        let Some(onto) = onto else { return };
        match self.model.fold(onto, std::slice::from_ref(event)) {
            // As a load does, also of values from before their fields were personal.
            Ok(folded) if self.model.is_forgotten(&folded).unwrap_or_default() => {
                self.folded = self.model.without_personal(folded, &report.key.id).ok();
            }
            Ok(folded) => self.folded = Some(folded),
            Err(unreadable) => {
                self.has_gap = true;
                report.add(sk, Discrepancy::Unreadable { reason: unreadable.to_string() });
            }
        }
    }
}

/// The metadata, with the attributes that only people and this check read.
pub(super) struct MetadataRow {
    pub(super) current_seq_num: u64,
    message_seq: u64,
    deleted: bool,
    texts: [(&'static str, String); 4],
}

impl MetadataRow {
    pub(super) fn read(row: Item) -> Result<Self, String> {
        let names =
            [attributes::AGGREGATE_TYPE, attributes::AGGREGATE_ID, attributes::CREATED_AT, attributes::UPDATED_AT];
        let texts = names.map(|name| (name, text(&row, name).to_owned()));
        let metadata: Metadata = serde_dynamo::from_item(row).map_err(|error| error.to_string())?;
        let Metadata { current_seq_num, message_seq, deleted } = metadata;
        Ok(Self { current_seq_num, message_seq, deleted, texts })
    }

    /// Reports what differs from the events. Missing and additional events are reported by the checks of the events.
    pub(super) fn compare(&self, events: &Events<'_>, report: &mut Report<'_>) {
        let (first, last) = (events.fact(1), events.fact(self.current_seq_num));
        let expected = [
            Some(report.key.aggregate_type.clone()),
            Some(report.key.id.clone()),
            first.map(|event| timestamp(event.at)),
            last.map(|event| timestamp(event.at)),
        ];
        for ((name, found), expected) in self.texts.iter().zip(expected) {
            if let Some(expected) = expected.filter(|expected| expected != found) {
                report.add(keys::METADATA, Discrepancy::differs(*name, found, expected));
            }
        }
        if let Some(expected) = last.map(|event| event.message_seq).filter(|expected| *expected != self.message_seq) {
            report.add(keys::METADATA, Discrepancy::differs(attributes::MESSAGE_SEQ, self.message_seq, expected));
        }
        if let Some(expected) = events.deleted.filter(|expected| *expected != self.deleted) {
            report.add(keys::METADATA, Discrepancy::differs(attributes::DELETED, self.deleted, expected));
        }
    }
}

/// The positions of processes so far: the number of the last handled event of each, by sort key.
#[derive(Default)]
pub(super) struct Positions(Vec<(String, u64)>);

impl Positions {
    pub(super) fn row(&mut self, sk: String, row: Item, report: &mut Report<'_>) {
        match serde_dynamo::from_item::<_, PositionItem>(row) {
            Ok(position) => self.0.push((sk, position.seq_num)),
            Err(error) => report.add(sk, Discrepancy::Unreadable { reason: error.to_string() }),
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.0.iter().map(|(_, seq_num)| *seq_num).max().unwrap_or_default()
    }

    /// Compares the positions with the last event, or the version in the metadata if that is higher.
    pub(super) fn compare(&self, last: u64, report: &mut Report<'_>) {
        for (sk, seq_num) in self.0.iter().filter(|(_, seq_num)| *seq_num > last) {
            let expected = format!("at most {last}, the last event");
            report.add(sk, Discrepancy::differs("seqNum", seq_num, expected));
        }
    }
}
