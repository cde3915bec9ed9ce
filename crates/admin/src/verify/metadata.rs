//! Checks of the metadata against the events.

use daybook_decider::record::timestamp;
use daybook_event_store::internal::{Item, text};
use daybook_table::{Metadata, attributes, keys};

use super::events::Events;
use super::finding::{Discrepancy, Report};

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
