//! The latest events of an aggregate type, from the index.

use daybook_decider::Model;
use daybook_event_store::StoreError;
use daybook_event_store::admin::IndexEntry;
use futures_util::future::try_join_all;
use ulid::Ulid;

use crate::console::Console;

/// The latest `limit` events of the type before the event `before`, the latest first, and whether there are more. It reads up to
/// `limit` events of each partition of the type's events.
pub(crate) async fn latest_events(
    console: &Console,
    model: &dyn Model,
    before: Option<Ulid>,
    limit: usize,
) -> Result<(Vec<IndexEntry>, bool), StoreError> {
    let admin = console.store.admin();
    let partitions = console.partitions_of_events(model);
    let pages = try_join_all(partitions.iter().map(|partition| admin.latest(partition, before, limit))).await?;
    let more = pages.iter().any(|page| page.more);
    let mut events: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
    // Another type may have events of the same name.
    events.retain(|event| event.aggregate.aggregate_type == model.type_name());
    events.sort_by_key(|event| std::cmp::Reverse(event.event_id));
    let more = more || events.len() > limit;
    events.truncate(limit);
    Ok((events, more))
}
