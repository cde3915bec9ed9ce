//! The positions of processes: none is after the last event.

use daybook_event_store::internal::Item;
use daybook_table::PositionItem;

use super::finding::{Discrepancy, Report};

/// The number of the last handled event of each row so far, by sort key.
#[derive(Default)]
pub(super) struct Positions(Vec<(String, u64)>);

impl Positions {
    pub(super) fn row(&mut self, sk: String, row: Item, report: &mut Report<'_>) {
        match serde_dynamo::from_item::<_, PositionItem>(row) {
            Ok(position) => self.0.push((sk, position.seq_num)),
            Err(error) => report.add(sk, Discrepancy::Unreadable { reason: error.to_string() }),
        }
    }

    /// The number of the last event that any of them contains.
    pub(super) fn last(&self) -> u64 {
        self.0.iter().map(|(_, seq_num)| *seq_num).max().unwrap_or_default()
    }

    /// Compares the rows with the last event, or the version in the metadata if that is higher.
    pub(super) fn compare(&self, last: u64, report: &mut Report<'_>) {
        for (sk, seq_num) in self.0.iter().filter(|(_, seq_num)| *seq_num > last) {
            let expected = format!("at most {last}, the last event");
            report.add(sk, Discrepancy::differs("seqNum", seq_num, expected));
        }
    }
}
