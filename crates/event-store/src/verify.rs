//! Verification: whether the rows of an aggregate are what appends and snapshots leave behind.
//!
//! It looks at every row of the partition, so it finds what a load does not need to see: a last event that is lost, a
//! metadata that disagrees, an outbox row that was changed, a snapshot that is not the fold of the events. It changes
//! nothing.
//!
//! In reading order:
//! - `finding`: what can be wrong.
//! - `events`, `messages`, `snapshots`: the rows of each kind against the others.

mod events;
mod finding;
mod messages;
mod snapshots;

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Model;
use daybook_table::{AggregateKey, Metadata, attributes, keys};
use jiff::Timestamp;

use self::events::Events;
pub use self::finding::{Discrepancy, Finding};
use self::messages::Messages;
use self::snapshots::Snapshots;
use crate::error::StoreError;
use crate::load::{Item, text};
use crate::store::EventStore;

/// A query beside a transaction may see some of its rows and not others, so what is wrong must be so at every look.
const LOOKS: usize = 3;

/// A transaction commits within milliseconds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What the rows of one aggregate are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows of all kinds; 0 when the aggregate does not exist.
    pub rows: u64,
    /// Rows of events.
    pub events: u64,
    /// Outbox rows that are still there.
    pub messages: u64,
    /// Snapshots of the current state version, the kept ones too.
    pub snapshots: u64,
    /// Snapshots of another state version. They are ignored and replaced in time, and so not wrong.
    pub outdated: u64,
    /// What is wrong; empty when all is as it should be.
    pub findings: Vec<Finding>,
}

impl EventStore {
    /// Checks every row of an aggregate against the others, and against what the code makes of them.
    ///
    /// - **Events**: numbers without gap or duplicate, up to what the metadata says; ids unique; readable by this code;
    ///   in an index partition that the feed reads, under their own id; the count of messages never falls; the events of
    ///   an append agree on its end.
    /// - **Metadata**: equal to the last event: number, messages, deleted flag, times; of this aggregate.
    /// - **Messages**: indexes and numbers are those that the events announced, without gap; ids unique; the detail says
    ///   what the row says. A row may be gone once the least time that outbox rows are kept has passed since its event
    ///   (2 days before `now`, which is the least that `OUTBOX_TTL_DAYS` may say).
    /// - **Snapshots**, the kept ones too: equal to the fold of the events up to theirs. One of another state version is
    ///   only counted.
    ///
    /// Ids are compared within the aggregate. Commands may be appended meanwhile: what is found is looked at twice more.
    ///
    /// The capacity of one strongly consistent read of the whole partition, in two queries or more; three times that when
    /// something is wrong. About 100 bytes of memory an event.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]; what is stored never makes one.
    pub async fn verify(&self, model: &dyn Model, key: &AggregateKey, now: Timestamp) -> Result<Verified, StoreError> {
        let mut verified = self.look(model, key, now).await?;
        for _ in 1..LOOKS {
            if verified.findings.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let mut again = self.look(model, key, now).await?;
            again.findings.retain(|finding| verified.findings.iter().any(|before| finding.is_like(before)));
            verified = again;
        }
        Ok(verified)
    }

    async fn look(&self, model: &dyn Model, key: &AggregateKey, now: Timestamp) -> Result<Verified, StoreError> {
        let mut look = Look {
            verified: Verified::default(),
            key,
            metadata: None,
            events: Events::new(model, key, self.settings.event_type_shards),
            messages: Messages::new(key, now),
            snapshots: Snapshots::new(model, key),
        };
        // The kept snapshots first, although they sort last: each is compared as the fold passes by.
        for condition in [format!("{} >= :kept", attributes::SK), format!("{} < :kept", attributes::SK)] {
            let mut pages = self
                .client
                .query()
                .table_name(&self.settings.table_name)
                .key_condition_expression(format!("{} = :pk AND {condition}", attributes::PK))
                .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
                .expression_attribute_values(":kept", AttributeValue::S(keys::KEPT_SNAPSHOT_PREFIX.to_owned()))
                .consistent_read(true)
                .into_paginator()
                .items()
                .send();
            while let Some(row) = pages.next().await {
                look.row(row.map_err(|fault| StoreError::of_call("read an aggregate's rows", fault))?);
            }
        }
        // Events that came after the metadata was read.
        let known = look.metadata.as_ref().map_or(0, |metadata| metadata.current_seq_num);
        if look.metadata.is_some() && look.events.last() > known {
            let version = self.version_in_metadata(key).await?.unwrap_or(known);
            look.events.beyond(version);
        }
        Ok(look.finish())
    }

    async fn version_in_metadata(&self, key: &AggregateKey) -> Result<Option<u64>, StoreError> {
        let answer = self
            .row(key, keys::METADATA.to_owned())
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read an aggregate's metadata", fault))?;
        let metadata = answer.item.and_then(|item| serde_dynamo::from_item::<_, Metadata>(item).ok());
        Ok(metadata.map(|metadata| metadata.current_seq_num))
    }
}

/// One look at all rows, in the order of their sort keys.
struct Look<'a> {
    verified: Verified,
    key: &'a AggregateKey,
    metadata: Option<MetadataRow>,
    events: Events<'a>,
    messages: Messages<'a>,
    snapshots: Snapshots<'a>,
}

impl Look<'_> {
    fn row(&mut self, row: Item) {
        self.verified.rows += 1;
        let sk = text(&row, attributes::SK).to_owned();
        if sk == keys::METADATA {
            match MetadataRow::read(row) {
                Ok(metadata) => {
                    self.events.follow(metadata.current_seq_num);
                    self.metadata = Some(metadata);
                }
                Err(reason) => self.find(sk, Discrepancy::Unreadable { reason }),
            }
        } else if sk == keys::SNAPSHOT || sk.starts_with(keys::KEPT_SNAPSHOT_PREFIX) {
            self.snapshots.row(sk, row);
        } else if sk.starts_with(keys::EVENT_PREFIX) {
            self.events.row(sk, row, &mut self.snapshots);
        } else if sk.starts_with(keys::OUTBOX_PREFIX) {
            self.messages.row(sk, row, &self.events);
        } else if !sk.starts_with(keys::IDEMPOTENCY_PREFIX) {
            self.find(sk, Discrepancy::UnknownRow);
        }
    }

    fn find(&mut self, item: String, fault: Discrepancy) {
        self.verified.findings.push(Finding { aggregate: self.key.clone(), item, fault });
    }

    fn finish(mut self) -> Verified {
        if self.verified.rows == 0 {
            return self.verified;
        }
        self.events.finish();
        match self.metadata.take() {
            Some(metadata) => {
                for fault in metadata.faults(self.key, &self.events) {
                    self.find(keys::METADATA.to_owned(), fault);
                }
            }
            None if self.verified.findings.iter().any(|finding| finding.item == keys::METADATA) => {}
            None => self.find(keys::METADATA.to_owned(), Discrepancy::NoMetadata),
        }
        self.messages.finish(&self.events);
        self.snapshots.finish(&self.events);
        let Self { mut verified, events, messages, snapshots, .. } = self;
        verified.events = events.rows;
        verified.messages = messages.rows;
        verified.snapshots = snapshots.rows;
        verified.outdated = snapshots.outdated;
        for findings in [events.findings, messages.findings, snapshots.findings] {
            verified.findings.extend(findings);
        }
        verified.findings.sort_by(|one, other| one.item.cmp(&other.item));
        verified
    }
}

/// The metadata, with what only people and this check read.
struct MetadataRow {
    current_seq_num: u64,
    message_seq: u64,
    deleted: bool,
    texts: [(&'static str, String); 4],
}

impl MetadataRow {
    fn read(row: Item) -> Result<Self, String> {
        let names =
            [attributes::AGGREGATE_TYPE, attributes::AGGREGATE_ID, attributes::CREATED_AT, attributes::UPDATED_AT];
        let texts = names.map(|name| (name, text(&row, name).to_owned()));
        let metadata: Metadata = serde_dynamo::from_item(row).map_err(|fault| fault.to_string())?;
        let Metadata { current_seq_num, message_seq, deleted } = metadata;
        Ok(Self { current_seq_num, message_seq, deleted, texts })
    }

    /// What it says otherwise than the events do. That there are fewer or more of them is found there.
    fn faults(&self, key: &AggregateKey, events: &Events<'_>) -> Vec<Discrepancy> {
        let mut faults = Vec::new();
        let (first, last) = (events.fact(1), events.fact(self.current_seq_num));
        let expected = [
            Some(key.aggregate_type.as_str()),
            Some(key.id.as_str()),
            first.map(|event| event.occurred_at.as_str()),
            last.map(|event| event.occurred_at.as_str()),
        ];
        for ((name, says), expected) in self.texts.iter().zip(expected) {
            if let Some(expected) = expected.filter(|expected| expected != says) {
                faults.push(Discrepancy::differs(*name, says, expected));
            }
        }
        if let Some(expected) = last.map(|event| event.message_seq).filter(|expected| *expected != self.message_seq) {
            faults.push(Discrepancy::differs(attributes::MESSAGE_SEQ, self.message_seq, expected));
        }
        if let Some(expected) = events.deleted().filter(|expected| *expected != self.deleted) {
            faults.push(Discrepancy::differs(attributes::DELETED, self.deleted, expected));
        }
        faults
    }
}

/// The number at the front of what follows a sort key's prefix.
fn number(text: &str) -> Option<u64> {
    text.get(..12).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}
