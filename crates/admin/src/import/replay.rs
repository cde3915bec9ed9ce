//! The events of an aggregate as they will be stored: what a line leaves out is assigned, and each event is read by the
//! registered code.

use std::collections::HashSet;

use daybook_decider::record::{FIRST_EPOCH, timestamp};
use daybook_decider::{EventType, Folded, Json, LastEvent, Model, OutboxMessage, RecordedEvent, personal};
use daybook_event_store::internal::ImportWrite;
use daybook_event_store::limits::MAX_TRANSACTION_ITEMS;
use daybook_history::line::EventLine;
use daybook_table::AggregateKey;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use ulid::Ulid;

/// The distance between the ids of two events of the same millisecond. The ids of an event's messages follow its own.
const ID_DISTANCE: u128 = 1 << 20;

/// The digits of a random part that ids leave for [`ID_DISTANCE`]s.
const RANDOM: u128 = (1 << 79) - 1;

/// Maximum difference between the clock of the other system and that of this machine.
const CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_mins(5);

/// An aggregate of a history, folded up to some event.
pub(super) struct Replay<'a> {
    model: &'a dyn Model,
    key: &'a AggregateKey,
    options: ImportWrite,
    epoch: u32,
    folded: Folded,
    /// The ids of the events so far and of their messages.
    ids: HashSet<Ulid>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(model: &'a dyn Model, key: &'a AggregateKey, options: ImportWrite, epoch: u32) -> Self {
        Self { model, key, options, epoch, folded: model.before_first_event(), ids: HashSet::new() }
    }

    pub(super) fn folded(&self) -> &Folded {
        &self.folded
    }

    pub(super) fn next_number(&self) -> u64 {
        self.folded.version() + 1
    }

    /// The next event, with its messages if they are published. `stored` is the event with its number in the table.
    pub(super) fn event(
        &self,
        line: EventLine,
        stored: Option<&RecordedEvent>,
    ) -> Result<(RecordedEvent, Vec<OutboxMessage>), String> {
        let seq_num = self.next_number();
        if let Some(found) = line.seq_num.filter(|found| *found != seq_num) {
            return Err(format!(
                "seqNum is {found}, expected {seq_num}: the file must have all events of an aggregate in order, from 1 on"
            ));
        }
        let opening = self.model.opening_events();
        if seq_num == 1 && !opening.contains(&line.event_type.as_str()) {
            let (found, opening) = (&line.event_type, opening.join(" or "));
            return Err(format!(
                "the first event is {found:?}, but each {} begins with {opening}",
                self.key.aggregate_type
            ));
        }
        let event_version = self.event_version(&line)?;
        let last = self.folded.last_event();
        let (occurred_at, event_id) = match line.event_id {
            Some(event_id) => (given_time(&line, event_id)?, event_id),
            None => self.assign(&line, last, stored)?,
        };
        if self.ids.contains(&event_id) {
            return Err(format!(
                "eventId {event_id} belongs to an earlier event of the aggregate, or to a message of it, already; leave \
                 eventId out of all lines of the aggregate to get new ones"
            ));
        }
        let mut event = RecordedEvent {
            seq_num,
            event_id,
            event_type: line.event_type,
            event_version,
            data: line.data,
            meta: line.meta,
            occurred_at,
            message_seq: self.folded.message_seq(),
            // Messages that are not published are of no epoch that consumers know.
            message_epoch: if self.options.publish { self.epoch } else { FIRST_EPOCH },
            together: line.together,
        };
        event.data = self.marked(&event);
        let messages = if self.options.publish {
            let announced = self.model.announced(&self.folded, &self.key.id, &event, self.epoch);
            announced.map_err(|error| error.to_string())?
        } else {
            Vec::new()
        };
        if let Some(message) = messages.iter().find(|message| self.ids.contains(&message.message_id)) {
            return Err(format!(
                "the id of a message of the event would be {}, which belongs to an earlier event of the aggregate, or to a \
                 message of it, already; leave eventId out of all lines of the aggregate to get new ones",
                message.message_id
            ));
        }
        let announced = event.message_seq + messages.len() as u64;
        event.message_seq = line.message_seq.unwrap_or(announced);
        self.check_messages(event.message_seq, announced)?;
        Ok((event, messages))
    }

    pub(super) fn fold(&mut self, event: &RecordedEvent, messages: &[OutboxMessage]) -> Result<(), String> {
        let before = std::mem::replace(&mut self.folded, self.model.before_first_event());
        self.folded = self.model.fold(before, std::slice::from_ref(event)).map_err(|error| {
            format!(
                "{error}; correct the line, or import with a daybook that was built from code that reads this event"
            )
        })?;
        self.ids.insert(event.event_id);
        self.ids.extend(messages.iter().map(|message| message.message_id));
        Ok(())
    }

    /// The data of an event, with its personal values marked if the file has them as plain values.
    fn marked(&self, event: &RecordedEvent) -> Json {
        let is_written = |known: &EventType| known.name == event.event_type && known.version == event.event_version;
        match self.model.read(event).as_deref() {
            Ok([(_, data)])
                if self.model.events().iter().any(is_written) && personal::subjects(data.text()).contains("") =>
            {
                let subject = (&*self.key.aggregate_type, &*self.key.id);
                personal::attributed(data.clone(), subject).unwrap_or_else(|_| event.data.clone())
            }
            _ => event.data.clone(),
        }
    }

    fn event_version(&self, line: &EventLine) -> Result<u32, String> {
        let written = self.model.events().iter().find(|known| known.name == line.event_type);
        line.event_version.or(written.map(|known| known.version)).ok_or_else(|| {
            let known: Vec<_> = self.model.events().iter().map(|known| known.name).collect();
            format!(
                "eventType {:?} is not an event that {} writes now ({}): correct it, or add eventVersion if it is an earlier \
                 name",
                line.event_type,
                self.key.aggregate_type,
                known.join(", ")
            )
        })
    }

    /// Time and id of an event without an id. The same file always leads to the same ids, as far as it has times.
    fn assign(
        &self,
        line: &EventLine,
        last: Option<LastEvent>,
        stored: Option<&RecordedEvent>,
    ) -> Result<(Timestamp, Ulid), String> {
        let last_time = last.map(|last| last.occurred_at);
        let known = line.occurred_at.or(stored.map(|stored| stored.occurred_at)).or(last_time);
        let milliseconds = known.unwrap_or(self.options.now).as_millisecond();
        let of_id = u64::try_from(milliseconds).map_err(|_| "occurredAt is before 1970".to_owned())?;
        let occurred_at = Timestamp::from_millisecond(milliseconds).map_err(|error| error.to_string())?;
        if let Some(last) = last_time.filter(|last| *last > occurred_at) {
            let (time, last) = (timestamp(occurred_at), timestamp(last));
            return Err(format!(
                "occurredAt {time} is before that of the event before it, {last}: sort the events of the aggregate by time, or \
                 leave occurredAt out"
            ));
        }
        if occurred_at > self.options.now + CLOCK_DIFFERENCE {
            return Err(format!("occurredAt {} is in the future", timestamp(occurred_at)));
        }
        let event_id = match last.filter(|last| last.event_id.timestamp_ms() == of_id) {
            Some(last) => Ulid::from(u128::from(last.event_id) + ID_DISTANCE),
            None => Ulid::from_parts(of_id, self.random(line)),
        };
        Ok((occurred_at, event_id))
    }

    /// The random part of an id, from the content of the event.
    fn random(&self, line: &EventLine) -> u128 {
        let mut hash = Sha256::new();
        let (aggregate, number) = (self.key.to_string(), self.next_number().to_string());
        for part in [aggregate.as_str(), &number, &line.event_type, line.data.text()] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().take(10).fold(0, |random, byte| (random << 8) | u128::from(*byte)) & RANDOM
    }

    /// Checks the count of messages up to the event against those before it, and against those that are published.
    fn check_messages(&self, found: u64, announced: u64) -> Result<(), String> {
        let before = self.folded.message_seq();
        if self.options.publish && found != announced {
            return Err(format!(
                "messageSeq is {found}, so the event published {} messages, but this code publishes {}: import with \
                 --no-publish, or remove messageSeq from all lines of the aggregate",
                found.saturating_sub(before),
                announced - before
            ));
        }
        let most = before + MAX_TRANSACTION_ITEMS as u64 - 1;
        if !(before..=most).contains(&found) {
            return Err(format!("messageSeq is {found}, expected {before} to {most}"));
        }
        Ok(())
    }
}

/// The time of an event with an id, which contains the time too.
fn given_time(line: &EventLine, event_id: Ulid) -> Result<Timestamp, String> {
    let of_id = i64::try_from(event_id.timestamp_ms()).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
    let of_id = of_id.ok_or_else(|| format!("the time in eventId {event_id} is out of range"))?;
    match line.occurred_at {
        Some(time) if timestamp(time) != timestamp(of_id) => Err(format!(
            "occurredAt is {}, but the time in eventId {event_id} is {}: leave eventId out to get a new one",
            timestamp(time),
            timestamp(of_id)
        )),
        _ => Ok(of_id),
    }
}
