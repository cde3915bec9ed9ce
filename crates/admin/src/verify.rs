//! Verification: checks that the rows of an aggregate are those that appends and snapshots write.
//!
//! It reads every row of the partition, so it finds damage that a load does not notice: a lost last event, metadata
//! that disagrees, a changed outbox row, a snapshot that is not the fold of the events. It changes nothing.

mod derived;
mod events;
mod finding;
mod messages;
mod snapshots;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_decider::personal::{self, Form};
use daybook_decider::{Folded, Model};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, is_valid_checksum, text, unpack};
use daybook_table::{AggregateKey, StoredText, attributes, keys};
use jiff::Timestamp;

use self::derived::Deadlines;
use self::events::{Events, MetadataRow, Positions};
use self::finding::Report;
pub use self::finding::{Discrepancy, Finding, Verified};
use self::messages::Messages;
use self::snapshots::Snapshots;
use crate::handle::Admin;

/// Number of reads. A query during a transaction may return some of its rows and not others, so only a finding of
/// every read counts.
const READS: usize = 3;

/// The pause between reads. A transaction commits within milliseconds.
const BETWEEN_READS: Duration = Duration::from_millis(50);

impl Admin<'_> {
    /// Checks every row of an aggregate against the others, and against the results of the code.
    ///
    /// - **Checksums** of all rows but the metadata: the row is as it was written, in each attribute.
    /// - **Events**: numbers without gap or duplicate, up to the version in the metadata; ids unique; readable by this
    ///   code; in an index partition that the feed reads; the count of messages never falls; the events of an append agree
    ///   on its end.
    /// - **Metadata**: equal to the last event: number, messages, deleted flag, times; of this aggregate.
    /// - **Messages**: indexes and numbers match the counts in the events, without gap; ids unique; the event is the one
    ///   in the table. A row may be missing once its event is older than 2 days before `now`, which is the minimum of
    ///   `OUTBOX_TTL_DAYS`. Events that were imported without their messages have no rows.
    ///   A message that is not the one that this code publishes for its event is a warning, because another release may have
    ///   written it.
    ///   Its epoch is not lower than that of an earlier message, nor higher than that of the settings.
    /// - **Claims**: the aggregate has those that the code returns for its state.
    /// - **Deadlines**: the aggregate has those that the code returns for its state, where they are found when they are due; their
    ///   event is the one in the table.
    /// - **Personal values** are sealed, and their key has ended exactly if the state says that they are forgotten.
    /// - **Positions** of processes: they can be read, and none is after the last event.
    /// - **Snapshots**, including kept ones: equal to the fold of the events up to theirs. A snapshot of another state
    ///   version is only counted.
    ///
    /// Ids are compared within the aggregate. Commands may be appended during a verification: when there are findings,
    /// the rows are read twice more.
    ///
    /// It costs the capacity of one strongly consistent read of the whole partition, in two queries or more, and three
    /// times that when something is wrong. It takes about 100 bytes of memory per event.
    pub async fn verify(&self, model: &dyn Model, key: &AggregateKey, now: Timestamp) -> Result<Verified, StoreError> {
        let mut verified = self.verify_once(model, key, now).await?;
        for _ in 1..READS {
            if verified.findings.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_READS).await;
            let mut again = self.verify_once(model, key, now).await?;
            again.findings.retain(|finding| verified.findings.iter().any(|before| finding.is_like(before)));
            verified = again;
        }
        Ok(verified)
    }

    async fn verify_once(&self, model: &dyn Model, key: &AggregateKey, now: Timestamp) -> Result<Verified, StoreError> {
        let settings = self.store.settings();
        let mut rows = Rows::new(model, key, settings.event_type_shards, settings.epoch, now);
        // The kept snapshots are read first, although they sort last, so that each can be compared when the fold
        // reaches its version.
        for condition in [format!("{} >= :kept", attributes::SK), format!("{} < :kept", attributes::SK)] {
            let condition = format!("{} = :pk AND {condition}", attributes::PK);
            let values = [(":pk", keys::pk(key)), (":kept", keys::KEPT_SNAPSHOT_PREFIX.to_owned())];
            let query = self.store.query(condition, values).consistent_read(true);
            let mut pages = query.into_paginator().items().send();
            while let Some(row) = pages.next().await {
                let mut row = row.map_err(|error| StoreError::of_call("read an aggregate's rows", error))?;
                let is_intact = is_valid_checksum(&row);
                if has_open_value(&row) {
                    rows.report.warn(text(&row, attributes::SK), Discrepancy::PlainText);
                }
                match self.store.open_row(key, &mut row).await {
                    // Its values stay sealed, which is reported.
                    Ok(()) | Err(StoreError::Corrupt { .. }) => rows.read(row, is_intact),
                    Err(error) => return Err(error),
                }
            }
        }
        // Events that were appended after the metadata was read.
        let known = rows.metadata.as_ref().map_or(0, |metadata| metadata.current_seq_num);
        if rows.metadata.is_some() && rows.events.last().max(rows.positions.last()) > known {
            let version = self.version_in_metadata(key).await?.unwrap_or(known);
            rows.events.version_after = Some(version);
        }
        if let Some(folded) = rows.events.folded() {
            self.verify_claims(model, key, folded, &mut rows.report).await?;
            self.verify_forgotten(model, key, folded, &mut rows.report).await?;
        }
        Ok(rows.finish())
    }

    /// Checks that the key of the aggregate's personal data has ended exactly if its state says so.
    async fn verify_forgotten(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        folded: &Folded,
        report: &mut Report<'_>,
    ) -> Result<(), StoreError> {
        let unreadable = |reason: String| Discrepancy::Unreadable { reason };
        let says = model.is_forgotten(folded);
        if model.forget().is_none() && matches!(says, Ok(false)) {
            return Ok(());
        }
        let discrepancy = match (self.store.is_forgotten(key).await, says) {
            (Err(StoreError::Corrupt { item, source }), _) => unreadable(format!("{item}: {source}")),
            (Err(error), _) => return Err(error),
            (_, Err(panic)) => unreadable(panic.to_string()),
            (Ok(Some(false)), Ok(true)) => Discrepancy::KeyRemains,
            (Ok(Some(true)), Ok(false)) => Discrepancy::KeyEnded,
            _ => return Ok(()),
        };
        report.add(keys::METADATA, discrepancy);
        Ok(())
    }

    pub(crate) async fn version_in_metadata(&self, key: &AggregateKey) -> Result<Option<u64>, StoreError> {
        match self.metadata(key).await {
            Err(StoreError::Corrupt { .. }) => Ok(None),
            metadata => Ok(metadata?.map(|metadata| metadata.current_seq_num)),
        }
    }
}

/// Whether a row contains a value that is marked as personal and was not sealed.
fn has_open_value(row: &Item) -> bool {
    let is_open = |form: Form| if form.value.is_some() { Err(()) } else { Ok(String::new()) };
    let texts = [attributes::DATA, attributes::STATE, attributes::BODY].into_iter().filter_map(|name| {
        let stored = serde_dynamo::from_attribute_value::<_, StoredText>(row.get(name)?.clone());
        unpack(stored.ok()?).ok()
    });
    texts.into_iter().any(|text| personal::replace(&text, is_open).is_err())
}

/// All rows of one read, in the order of their sort keys.
struct Rows<'a> {
    report: Report<'a>,
    has_metadata: bool,
    metadata: Option<MetadataRow>,
    events: Events<'a>,
    messages: Messages,
    snapshots: Snapshots<'a>,
    deadlines: Deadlines,
    positions: Positions,
    responses: u64,
}

impl<'a> Rows<'a> {
    fn new(model: &'a dyn Model, key: &'a AggregateKey, shards: u32, epoch: u32, now: Timestamp) -> Self {
        Self {
            report: Report { key, verified: Verified::default(), changed: BTreeSet::new() },
            has_metadata: false,
            metadata: None,
            events: Events::new(model, shards, now),
            messages: Messages::new(now, epoch),
            snapshots: Snapshots::new(model, key),
            deadlines: Deadlines::default(),
            positions: Positions::default(),
            responses: 0,
        }
    }

    fn read(&mut self, row: Item, is_intact: bool) {
        let report = &mut self.report;
        report.verified.rows += 1;
        let sk = text(&row, attributes::SK).to_owned();
        if sk != keys::METADATA && !is_intact {
            report.changed.insert(sk.clone());
        }
        if sk == keys::METADATA {
            self.has_metadata = true;
            if row.contains_key(attributes::TTL) {
                let expected = "none, because DynamoDB would delete the row";
                report.add(sk.clone(), Discrepancy::differs(attributes::TTL, "set", expected));
            }
            match MetadataRow::read(row) {
                Ok(metadata) => {
                    self.events.version = Some(metadata.current_seq_num);
                    self.metadata = Some(metadata);
                }
                Err(reason) => report.add(sk, Discrepancy::Unreadable { reason }),
            }
        } else if sk == keys::SNAPSHOT || sk.starts_with(keys::KEPT_SNAPSHOT_PREFIX) {
            self.snapshots.row(sk, row, report);
        } else if sk.starts_with(keys::EVENT_PREFIX) {
            self.events.row(sk, row, &mut self.snapshots, report);
        } else if sk.starts_with(keys::OUTBOX_PREFIX) {
            self.messages.row(sk, row, &self.events, report);
        } else if sk.starts_with(keys::DEADLINE_PREFIX) {
            self.deadlines.row(sk, row, self.events.shards, report);
        } else if sk.starts_with(keys::POSITION_PREFIX) {
            self.positions.row(sk, row, report);
        } else if sk.starts_with(keys::IDEMPOTENCY_PREFIX) {
            self.responses += 1;
        } else {
            report.add(sk, Discrepancy::UnknownRow);
        }
    }

    fn finish(mut self) -> Verified {
        let report = &mut self.report;
        if report.verified.rows == 0 {
            return Verified::default();
        }
        self.events.finish(report);
        if let Some(metadata) = &self.metadata {
            metadata.compare(&self.events, report);
        } else if !self.has_metadata && report.verified.rows > self.responses {
            // The reactor also stores the outcomes of commands to aggregates that do not exist.
            report.add(keys::METADATA, Discrepancy::NoMetadata);
        }
        self.messages.finish(&self.events, report);
        self.snapshots.finish(self.events.last(), report);
        self.deadlines.compare(self.events.model, &self.events, report);
        let versions = [self.events.version, self.events.version_after].into_iter().flatten();
        self.positions.compare(versions.fold(self.events.last(), u64::max), report);
        report.add_changed();
        let mut verified = self.report.verified;
        verified.findings.sort_by(|one, other| one.item.cmp(&other.item));
        verified
    }
}
