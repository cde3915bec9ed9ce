//! The latest events of several partitions of the index, in one list.
//!
//! A page of a partition may be shorter than its limit, because DynamoDB reads up to 1 MB at once. So an older event of
//! another partition must not be listed before the rest of that page: a list that goes on after it would leave out the
//! rest.

use daybook_admin::{AdminCalls, IndexEntry, IndexPartition};
use daybook_event_store::StoreError;
use daybook_table::keys;
use futures_util::future::try_join_all;
use ulid::Ulid;

use crate::console::Console;
use crate::frame::Failure;

/// The latest events of a partition, the latest first.
pub(crate) type IndexPage = daybook_event_store::Page<IndexEntry, Ulid>;

/// The latest events of several partitions, the latest first.
#[derive(Debug, PartialEq)]
pub(crate) struct LatestEvents {
    pub(crate) events: Vec<IndexEntry>,
    /// The list goes on with the events before this one; `None` at its end.
    pub(crate) next: Option<Ulid>,
}

/// The position in a list: the id of its last event on the page before.
pub(crate) fn position(before: &str) -> Result<Ulid, Failure> {
    let invalid = || Failure::invalid(format!("the position in the list: {before:?} is no id of an event"));
    keys::parse_id(before).ok_or_else(invalid)
}

/// A page of each partition: up to `limit` events before the event `before`.
pub(crate) async fn pages(
    console: &Console,
    partitions: &[IndexPartition],
    before: Option<Ulid>,
    limit: usize,
) -> Result<Vec<IndexPage>, StoreError> {
    let admin = console.store.admin();
    try_join_all(partitions.iter().map(|partition| admin.latest(partition, before, limit))).await
}

/// The latest `limit` events of these pages that are wanted: another aggregate type may have events of the same name.
pub(crate) fn latest_events<'a>(
    pages: impl Iterator<Item = &'a IndexPage> + Clone,
    limit: usize,
    is_wanted: impl Fn(&IndexEntry) -> bool,
) -> LatestEvents {
    // Of the events before this one, a partition may have some that are not in its page.
    let oldest_complete = pages.clone().filter(|page| page.more).map(|page| page.cursor).max();
    let is_complete = |event: &&IndexEntry| oldest_complete.is_none_or(|first| event.event_id >= first);
    let events = pages.flat_map(|page| &page.items).filter(is_complete);
    let mut events: Vec<_> = events.filter(|event| is_wanted(event)).cloned().collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.event_id));
    // Types that share the name of an event share its partition, too.
    events.dedup();
    let is_cut = events.len() > limit;
    events.truncate(limit);
    let next = if is_cut { events.last().map(|event| event.event_id) } else { oldest_complete };
    LatestEvents { events, next }
}

#[cfg(test)]
mod tests {
    use daybook_table::AggregateKey;

    use super::*;

    fn page(times: &[u64], more: bool) -> IndexPage {
        let event = |time: &u64| IndexEntry {
            aggregate: AggregateKey::new("todo", time.to_string()),
            seq_num: 1,
            event_id: Ulid::from_parts(*time, 0),
            message_seq: None,
            messages_before: None,
        };
        let cursor = Ulid::from_parts(times.last().copied().unwrap_or_default(), 0);
        IndexPage { items: times.iter().map(event).collect(), unreadable: Vec::new(), cursor, more }
    }

    fn times(pages: &[IndexPage], limit: usize) -> (Vec<u64>, Option<u64>) {
        let LatestEvents { events, next } = latest_events(pages.iter(), limit, |event| event.aggregate.id != "5");
        let times = events.iter().map(|event| event.event_id.timestamp_ms()).collect();
        (times, next.map(|next| next.timestamp_ms()))
    }

    #[test]
    fn events_before_the_end_of_a_short_page_are_on_the_next_page() {
        // The first partition returned only two events. It may have others between 1 and 8.
        assert_eq!(times(&[page(&[9, 8], true), page(&[7, 2, 1], false)], 10), (vec![9, 8], Some(8)));
        assert_eq!(times(&[page(&[9, 3], true), page(&[7, 2, 1], true)], 10), (vec![9, 7, 3], Some(3)));
        assert_eq!(times(&[page(&[9, 3], false), page(&[7, 2, 1], false)], 10), (vec![9, 7, 3, 2, 1], None));
        assert_eq!(times(&[page(&[9, 3], false), page(&[7, 2, 1], false)], 2), (vec![9, 7], Some(7)));
        assert_eq!(times(&[page(&[9, 3], false), page(&[9, 3], false)], 10), (vec![9, 3], None));
        assert_eq!(times(&[], 2), (vec![], None));
    }

    #[test]
    fn list_goes_on_after_a_page_without_a_wanted_event() {
        assert_eq!(times(&[page(&[5], true)], 10), (vec![], Some(5)));
    }
}
