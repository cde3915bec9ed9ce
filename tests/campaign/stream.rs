//! The table's stream in any form that DynamoDB's guarantees allow: in order per item, and otherwise in any order, with
//! the records of other rows between the outbox rows, and with unreadable rows. A shard may close, and its records then
//! go on in one or two children.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::Record;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::log::Log;

pub(crate) const STREAM: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/daybook-campaign/stream/1";

/// A message in the stream.
#[derive(Clone, Debug)]
pub(crate) struct CampaignMessage {
    pub(crate) id: String,
    pub(crate) pk: String,
    pub(crate) seq: u64,
    /// The row as the stream contains it, in DynamoDB's JSON.
    pub(crate) image: Value,
    /// The row as the table contains it: the same, unless it is damaged in the stream.
    pub(crate) committed: Value,
    pub(crate) kind: MessageKind,
}

/// The condition of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// The message can be sent.
    Sound,
    /// Its row can be read, but the bus always rejects it.
    Unsendable,
    /// Its row cannot be read.
    Unreadable,
}

/// The meaning of a stream record for the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The message of this index.
    Message(usize),
    /// A record that the relay ignores.
    SomethingElse,
    /// A record that must be sent to the dead-letter queue unchanged, with its partition if it has one.
    Poison(Option<String>),
}

/// A shard's records in order, each with the time of its arrival.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// The shard that closed before this one began.
    pub(crate) parent: Option<usize>,
    pub(crate) records: Vec<(Duration, Arc<ShardRecord>)>,
}

/// A record and its meaning.
#[derive(Debug)]
pub(crate) struct ShardRecord {
    pub(crate) record: Record,
    pub(crate) content: Content,
}

/// The properties of a schedule's stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamShape {
    /// Whether records of different items arrive in the order in which they were committed.
    pub(crate) in_order: bool,
    /// The number of shards at the beginning.
    pub(crate) shards: usize,
    /// The number of shards that close before the end of the stream.
    pub(crate) splits: usize,
    /// The share of damaged rows.
    pub(crate) damage: f64,
    /// Whether the damage may be a malformed detail, which only the bus detects.
    pub(crate) malformed: bool,
    /// The maximum number of other records between the outbox rows.
    pub(crate) noise: usize,
    /// The time during which the records arrive.
    pub(crate) spread: Duration,
}

impl Default for StreamShape {
    /// One shard with the records of the table only.
    fn default() -> Self {
        Self { in_order: true, shards: 1, splits: 0, damage: 0.0, malformed: false, noise: 0, spread: Duration::ZERO }
    }
}

/// The stream, ready to be delivered.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) messages: Vec<CampaignMessage>,
    pub(crate) shards: Vec<Arc<Shard>>,
}

/// Creates the stream of these records (as `GetRecords` returns them, in the order of commits), beginning at the time
/// `from`.
pub(crate) fn build_stream(
    recorded: Vec<Value>,
    shape: StreamShape,
    dice: &mut Dice,
    log: &Log,
    from: Duration,
) -> Stream {
    let mut messages = Vec::new();
    let mut entries = Vec::new();
    for mut record in recorded {
        let content = match message(&record) {
            Some(mut message) => {
                if dice.chance(shape.damage) {
                    damage(&mut message, shape.malformed, dice, log);
                    record["dynamodb"]["NewImage"] = message.image.clone();
                }
                messages.push(message);
                Content::Message(messages.len() - 1)
            }
            None => Content::SomethingElse,
        };
        entries.push((record, content));
    }
    for _ in 0..dice.size(0..=shape.noise) {
        let (at, record, content) = noise(&entries, dice, log);
        entries.insert(at, (record, content));
    }
    if !shape.in_order {
        scatter(&mut entries, dice);
        log.count("stream out of order");
    }

    let mut shards = OpenShards::new(shape.shards, dice);
    let mut closing: Vec<usize> = (0..shape.splits).map(|_| dice.size(0..=entries.len())).collect();
    closing.sort_unstable();
    let mut arrival = from;
    let gap = shape.spread.as_millis() as u64 / (entries.len() as u64).max(1);
    for (index, (mut record, content)) in entries.into_iter().enumerate() {
        for _ in closing.extract_if(.., |at| *at == index) {
            shards.close_one(dice, log);
        }
        arrival += dice.milliseconds(0..=2 * gap);
        let pk = record["dynamodb"]["Keys"]["pk"]["S"].as_str().unwrap_or_default().to_owned();
        let (shard, number) = shards.next_number(&pk, dice);
        record["eventID"] = format!("{shard}-{index}").into();
        record["dynamodb"]["SequenceNumber"] = number.to_string().into();
        record["dynamodb"]["ApproximateCreationDateTime"] = arrival.as_secs_f64().into();
        let record = Record::from_stream(record, STREAM).unwrap();
        shards.shards[shard].records.push((arrival, Arc::new(ShardRecord { record, content })));
    }
    let shards = shards.shards;
    count_moved_aggregates(&shards, &messages, log);
    Stream { messages, shards: shards.into_iter().map(Arc::new).collect() }
}

/// The shards of a stream while records are added. A partition is in exactly one open shard.
struct OpenShards {
    shards: Vec<Shard>,
    /// The last sequence number of each shard.
    numbers: Vec<u128>,
    /// The children of each closed shard.
    children: BTreeMap<usize, Vec<usize>>,
    roots: usize,
}

impl OpenShards {
    fn new(roots: usize, dice: &mut Dice) -> Self {
        // The number of digits increases within the stream, so text order would be wrong; or the numbers exceed a `u128`.
        let start = dice.one_of(&["95", "9990", "99999999999999999985", "99999999999999999999999999999999999985"]);
        let shards = (0..roots).map(|_| Shard::default()).collect();
        Self { shards, numbers: vec![start.parse().unwrap(); roots], children: BTreeMap::new(), roots }
    }

    /// Closes an open shard. Two children follow it, or one, as after the hours for which DynamoDB writes to a shard.
    fn close_one(&mut self, dice: &mut Dice, log: &Log) {
        let open: Vec<_> = (0..self.shards.len()).filter(|shard| !self.children.contains_key(shard)).collect();
        let closed = dice.one_of(&open);
        let children = dice.size(1..=2);
        log.count(if children == 1 { "shard followed by one" } else { "shard split in two" });
        let first = self.shards.len();
        self.children.insert(closed, (first..first + children).collect());
        for _ in 0..children {
            self.shards.push(Shard { parent: Some(closed), records: vec![] });
            self.numbers.push(self.numbers[closed]);
        }
    }

    /// The open shard of a partition, and the sequence number of its next record.
    fn next_number(&mut self, pk: &str, dice: &mut Dice) -> (usize, u128) {
        let mut hash = pk.bytes().fold(7, |hash: usize, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte)));
        let mut shard = hash % self.roots;
        while let Some(children) = self.children.get(&shard) {
            hash /= 2;
            shard = children[hash % children.len()];
        }
        self.numbers[shard] += u128::from(dice.number(1..=4));
        (shard, self.numbers[shard])
    }
}

/// Counts the aggregates whose messages are in several shards.
fn count_moved_aggregates(shards: &[Shard], messages: &[CampaignMessage], log: &Log) {
    let mut shards_of: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        for (_, entry) in &shard.records {
            if let Content::Message(index) = entry.content {
                shards_of.entry(&messages[index].pk).or_default().insert(number);
            }
        }
    }
    let moved = shards_of.values().filter(|of_aggregate| of_aggregate.len() > 1).count();
    if moved > 0 {
        log.count_times("aggregate goes on in another shard", moved as u64);
    }
}

/// The message of a record, if it is a new outbox row.
pub(crate) fn message(record: &Value) -> Option<CampaignMessage> {
    let change = &record["dynamodb"];
    let is_row = change["Keys"]["sk"]["S"].as_str()?.starts_with("OUTBOX#") && record["eventName"] == "INSERT";
    let image = &change["NewImage"];
    is_row.then(|| CampaignMessage {
        id: image["messageId"]["S"].as_str().unwrap().to_owned(),
        pk: image["pk"]["S"].as_str().unwrap().to_owned(),
        seq: image["messageSeq"]["N"].as_str().unwrap().parse().unwrap(),
        image: image.clone(),
        committed: image.clone(),
        kind: MessageKind::Sound,
    })
}

/// Damages the row of a message.
fn damage(message: &mut CampaignMessage, malformed: bool, dice: &mut Dice, log: &Log) {
    let (kind, name, value) = match dice.number(0..=if malformed { 6 } else { 5 }) {
        0 => (MessageKind::Unreadable, "messageSeq", json!({"S": "three"})),
        1 => (MessageKind::Unreadable, "messageId", json!({"NULL": true})),
        2 => (MessageKind::Unreadable, "occurredAt", json!({"S": "yesterday"})),
        3 => (MessageKind::Unreadable, "detail", json!({"?": "{}"})),
        4 => (MessageKind::Unsendable, "messageType", json!({"S": "x".repeat(129)})),
        5 => (MessageKind::Unsendable, "messageType", json!({"S": ""})),
        _ => {
            let detail = message.image["detail"]["S"].as_str().unwrap();
            (MessageKind::Unsendable, "detail", json!({"S": detail[..detail.len() - 1]}))
        }
    };
    log.count(&format!("damaged row {kind:?}"));
    message.kind = kind;
    message.image[name] = value;
}

/// An additional record and its position. The record of a change comes after the insert of its row.
fn noise(entries: &[(Value, Content)], dice: &mut Dice, log: &Log) -> (usize, Value, Content) {
    let rows: Vec<_> = (0..entries.len()).filter(|&at| matches!(entries[at].1, Content::Message(_))).collect();
    let keys = |pk: &str, sk: &str| json!({"pk": {"S": pk}, "sk": {"S": sk}});
    let some_pk = match rows.as_slice() {
        [] => "AGGREGATE#todo#nobody".to_owned(),
        rows => entries[dice.one_of(rows)].0["dynamodb"]["Keys"]["pk"]["S"].as_str().unwrap().to_owned(),
    };
    let anywhere = dice.size(0..=entries.len());
    let unique = format!("{:012}", dice.number(0..=999_999_999_999));
    let insert = |keys: Value, rest: Value| {
        let mut image = keys.clone();
        image.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!({"eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb", "awsRegion": "eu-west-1",
            "dynamodb": {"Keys": keys, "NewImage": image, "SizeBytes": 100, "StreamViewType": "NEW_IMAGE"}})
    };
    let after = |at: usize, dice: &mut Dice| dice.size(at + 1..=entries.len());
    match dice.number(0..=9) {
        0 | 1 if !rows.is_empty() => {
            log.count("noise: a row that TTL deletes");
            let at = dice.one_of(&rows);
            let mut record = entries[at].0.clone();
            record["eventName"] = "REMOVE".into();
            record["userIdentity"] = json!({"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"});
            record["dynamodb"].as_object_mut().unwrap().remove("NewImage");
            (after(at, dice), record, Content::SomethingElse)
        }
        2 if !rows.is_empty() => {
            log.count("noise: a row that changes");
            let at = dice.one_of(&rows);
            let mut record = entries[at].0.clone();
            record["eventName"] = "MODIFY".into();
            record["dynamodb"]["NewImage"]["ttl"] = json!({"N": "1"});
            (after(at, dice), record, Content::SomethingElse)
        }
        3 => {
            log.count("noise: an old row that TTL deletes");
            let mut record = insert(keys(&some_pk, &format!("OUTBOX#{unique}#0")), json!({}));
            record["eventName"] = "REMOVE".into();
            record["userIdentity"] = json!({"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"});
            record["dynamodb"].as_object_mut().unwrap().remove("NewImage");
            (anywhere, record, Content::SomethingElse)
        }
        4 => {
            log.count("noise: a snapshot");
            let sk = if dice.chance(0.5) { "#SNAPSHOT".to_owned() } else { format!("SNAPSHOT#{unique}") };
            (anywhere, insert(keys("AGGREGATE#todo#other", &sk), json!({"state": {"S": "{}"}})), Content::SomethingElse)
        }
        5 => {
            log.count("noise: a stored response");
            let record =
                insert(keys(&some_pk, &format!("IDEMPOTENCY#OUTBOX#{unique}")), json!({"status": {"N": "200"}}));
            (anywhere, record, Content::SomethingElse)
        }
        6 => {
            log.count("poison: a row without attributes");
            let record = insert(keys(&some_pk, &format!("OUTBOX#{unique}#0")), json!({}));
            (anywhere, record, Content::Poison(Some(some_pk)))
        }
        7 => {
            log.count("poison: a row of no aggregate");
            let pk = "AGGREGATE#";
            let record = insert(keys(pk, &format!("OUTBOX#{unique}#0")), json!({"messageId": {"S": "m"}}));
            (anywhere, record, Content::Poison(Some(pk.to_owned())))
        }
        8 => {
            log.count("poison: a row without an image");
            let mut record = insert(keys(&some_pk, &format!("OUTBOX#{unique}#0")), json!({}));
            record["dynamodb"].as_object_mut().unwrap().remove("NewImage");
            (anywhere, record, Content::Poison(Some(some_pk)))
        }
        _ => {
            log.count("poison: keys of another table");
            let record = insert(json!({"id": {"S": unique}}), json!({}));
            (anywhere, record, Content::Poison(None))
        }
    }
}

/// Another order that keeps the order of each item's records.
fn scatter(entries: &mut Vec<(Value, Content)>, dice: &mut Dice) {
    let reach = dice.one_of(&[2, 5, 20, 1_000]);
    let mut latest: BTreeMap<String, usize> = BTreeMap::new();
    let mut placed: Vec<(usize, (Value, Content))> = std::mem::take(entries)
        .into_iter()
        .enumerate()
        .map(|(index, entry)| {
            let place = latest.entry(entry.0["dynamodb"]["Keys"].to_string()).or_default();
            *place = (*place).max(index + dice.size(0..=reach));
            (*place, entry)
        })
        .collect();
    // A stable sort: two records of an item with the same position keep their order.
    placed.sort_by_key(|(place, _)| *place);
    entries.extend(placed.into_iter().map(|(_, entry)| entry));
}
