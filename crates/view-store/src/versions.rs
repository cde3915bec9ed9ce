//! The versions of a projection: the pointer to the one that readers get; how far each is filled, in a mark that operator
//! commands write and the projector reads; and the deletion of one, with its rows, its positions and its mark.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, DeleteRequest, Put, ReturnConsumedCapacity, TransactWriteItem, Update, WriteRequest,
};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{BATCH_LEFT, BATCH_PATIENCE, Backoff, Item, if_condition_holds, row_key};
use daybook_table::attributes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::items::{MARK, POINTER, View, is_conflict, mark_sk, projection_pk, read};
use crate::store::ViewStore;

const MAX_DELETIONS: usize = 25;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pointer {
    pub version: u32,
    pub switched_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectionVersions {
    /// The version that readers get; `None` if they were never switched.
    pub pointer: Option<Pointer>,
    pub marks: BTreeMap<u32, VersionMark>,
}

impl ViewStore {
    pub async fn pointer(&self, name: &str) -> Result<Option<Pointer>, StoreError> {
        let get = self.client.get_item().table_name(&self.table_name).consistent_read(true);
        let get = get.set_key(Some(row_key(projection_pk(name), POINTER.to_owned())));
        let output = get.send().await.map_err(|error| StoreError::of_call("read the pointer of a view", error))?;
        output.item.map(read).transpose()
    }

    /// The pointer and the marks of a projection, strongly consistent.
    pub async fn projection_versions(&self, name: &str) -> Result<ProjectionVersions, StoreError> {
        let query = self.client.query().table_name(&self.table_name).consistent_read(true);
        let query = query.key_condition_expression(format!("{} = :pk", attributes::PK));
        let query = query.expression_attribute_values(":pk", AttributeValue::S(projection_pk(name)));
        let output = query.send().await.map_err(|error| StoreError::of_call("read the versions of a view", error))?;
        let mut versions = ProjectionVersions::default();
        for item in output.items.unwrap_or_default() {
            let sk = item.get(attributes::SK).and_then(|sk| sk.as_s().ok()).cloned().unwrap_or_default();
            if sk == POINTER {
                versions.pointer = Some(read(item)?);
            } else if let Some(version) = sk.strip_prefix(MARK).and_then(|version| version.parse().ok()) {
                versions.marks.insert(version, read(item)?);
            }
        }
        Ok(versions)
    }

    /// Switches readers to the version of `to`, if the pointer is still that of `before`. `from` is the version that
    /// readers get until then. It leads from now on, so that readers can be switched back to it, unless it may lack
    /// events. Returns `false`, without a change, if somebody else has switched since the pointer was read.
    pub async fn switch(
        &self,
        from: &View,
        to: &View,
        before: &ProjectionVersions,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let pointer = Pointer { version: to.version, switched_at: now };
        let mut item: Item = serde_dynamo::to_item(pointer).expect("a pointer has an item");
        item.extend(row_key(projection_pk(&to.name), POINTER.to_owned()));
        let put = Put::builder().table_name(&self.table_name).set_item(Some(item));
        let put = match &before.pointer {
            None => put.condition_expression(format!("attribute_not_exists({})", attributes::PK)),
            Some(before) => put
                .condition_expression("#version = :version AND #at = :at")
                .expression_attribute_names("#version", "version")
                .expression_attribute_names("#at", "switchedAt")
                .expression_attribute_values(":version", AttributeValue::N(before.version.to_string()))
                .expression_attribute_values(":at", AttributeValue::S(before.switched_at.to_string())),
        };
        let put = TransactWriteItem::builder().put(put.build().expect("table and item are set")).build();
        let mut times = vec![("readUntil", now.to_string())];
        if before.marks.get(&from.version).is_none_or(|mark| mark.missed_since.is_none()) {
            times.push(("leadsSince", now.to_string()));
        }
        let (expression, names, values) = changes(&times, &[]);
        let update = Update::builder().table_name(&self.table_name).set_key(Some(mark_key(from)));
        let update = update.update_expression(expression).set_expression_attribute_names(Some(names));
        let update = update.set_expression_attribute_values(values).build();
        let update = TransactWriteItem::builder().update(update.expect("table, key and expression are set")).build();
        let call = self.client.transact_write_items().transact_items(put).transact_items(update);
        let Err(error) = call.send().await else { return Ok(true) };
        if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error.as_service_error()
            && is_conflict(cancelled.cancellation_reasons())
        {
            return Ok(false);
        }
        Err(StoreError::of_call("switch the version of a view", error))
    }
}

/// The mark of a version of a view: a row of the views table that records how far the version is filled, and whether it leads.
/// For example, the mark of `orders-by-status@2` has `leads_since` after the first pass of its rebuild, and `filled_at` after the
/// second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionMark {
    /// When the rebuild that is under way, or the last one, began.
    pub started_at: Option<Timestamp>,
    /// When the last rebuild ended with every aggregate in the view. `None` while another rebuild is under way.
    pub filled_at: Option<Timestamp>,
    /// When readers were last switched from this version to another one.
    pub read_until: Option<Timestamp>,
    /// Since when this version leads: the projector folds events into it before it folds them into the version that is
    /// read. If `None`, this version comes last, so that readers do not wait until it is filled.
    pub leads_since: Option<Timestamp>,
    /// Since when this version may lack events, because a release that does not register it folds events. A rebuild finds
    /// the events that it lacks.
    pub missed_since: Option<Timestamp>,
    /// The progress of the rebuild that is under way: JSON text that only operator commands read.
    pub progress: Option<String>,
    pub progress_at: Option<Timestamp>,
}

impl ViewStore {
    /// The mark of a version, if it has one, strongly consistent.
    pub async fn mark(&self, view: &View) -> Result<Option<VersionMark>, StoreError> {
        let get = self.client.get_item().table_name(&self.table_name).set_key(Some(mark_key(view)));
        let get = get.consistent_read(true).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let output = get.send().await.map_err(|error| StoreError::of_call("read the mark of a view", error))?;
        output.item.map(read).transpose()
    }

    /// Begins a rebuild. From now on, the version does not count as filled, as leading, or as one that readers got
    /// before.
    pub async fn begin_rebuild(&self, view: &View, progress: &str, now: Timestamp) -> Result<(), StoreError> {
        let set = [("startedAt", now.to_string()), ("progress", progress.to_owned()), ("progressAt", now.to_string())];
        self.update_mark(view, &set, &["filledAt", "leadsSince", "readUntil"], None).await.map(drop)
    }

    pub async fn store_progress(&self, view: &View, progress: &str, now: Timestamp) -> Result<(), StoreError> {
        let set = [("progress", progress.to_owned()), ("progressAt", now.to_string())];
        self.update_mark(view, &set, &[], None).await.map(drop)
    }

    /// Lets the version lead: from now on, the projector folds events into it before the version that is read. Also
    /// stores the progress of the rebuild, which must compare all aggregates from now on.
    pub async fn lead(&self, view: &View, progress: &str, now: Timestamp) -> Result<(), StoreError> {
        let set = [("leadsSince", now.to_string()), ("progress", progress.to_owned()), ("progressAt", now.to_string())];
        self.update_mark(view, &set, &["missedSince"], None).await.map(drop)
    }

    /// Records that a release which does not register the version folds events. The version may lack these events, so it
    /// counts neither as filled nor as leading until the next rebuild. Changes nothing if the version has no mark.
    pub async fn miss_events(&self, view: &View, now: Timestamp) -> Result<(), StoreError> {
        let (set, remove) = ([("missedSince", now.to_string())], ["filledAt", "leadsSince", "readUntil"]);
        let has_mark = format!("attribute_exists({})", attributes::PK);
        self.update_mark(view, &set, &remove, Some(has_mark)).await.map(drop)
    }

    /// Ends a rebuild. `filled_at` is the time from which on the version counts as filled; `None` if the view does not
    /// show every aggregate. Returns whether it was ended: not if the version is to count as filled, but does not lead any
    /// more.
    pub async fn end_rebuild(&self, view: &View, filled_at: Option<Timestamp>) -> Result<bool, StoreError> {
        let set: Vec<_> = filled_at.iter().map(|now| ("filledAt", now.to_string())).collect();
        let leads = filled_at.map(|_| "attribute_exists(leadsSince)".to_owned());
        self.update_mark(view, &set, &["progress", "progressAt"], leads).await
    }

    /// Sets and removes attributes of a mark, if it meets the condition. Returns whether it does.
    async fn update_mark(
        &self,
        view: &View,
        set: &[(&'static str, String)],
        remove: &[&'static str],
        condition: Option<String>,
    ) -> Result<bool, StoreError> {
        let (expression, names, values) = changes(set, remove);
        let update = self.client.update_item().table_name(&self.table_name).set_key(Some(mark_key(view)));
        let update = update.update_expression(expression).set_expression_attribute_names(Some(names));
        let update = update.set_expression_attribute_values(values).set_condition_expression(condition);
        let update = update.return_consumed_capacity(ReturnConsumedCapacity::Total);
        Ok(if_condition_holds("write the mark of a view", update.send().await)?.is_some())
    }
}

#[derive(Clone, Debug, Default)]
pub struct DroppedItems {
    /// The keys of rows and positions that a page of the table contains.
    pub keys: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Item>,
}

impl ViewStore {
    /// A page of the rows and positions of a version, in one of `segments` segments of the table, after the key
    /// `after`. Reads the whole table, page by page.
    pub async fn items_to_drop(
        &self,
        view: &View,
        (segment, segments): (i32, i32),
        after: Option<Item>,
    ) -> Result<DroppedItems, StoreError> {
        let scan = self.client.scan().table_name(&self.table_name).segment(segment).total_segments(segments);
        let scan = scan.filter_expression("begins_with(#pk, :rows) OR begins_with(#pk, :positions)");
        let scan = scan.projection_expression("#pk, #sk").set_exclusive_start_key(after).consistent_read(true);
        let scan =
            scan.expression_attribute_names("#pk", attributes::PK).expression_attribute_names("#sk", attributes::SK);
        let scan = scan.expression_attribute_values(":rows", AttributeValue::S(view.rows_prefix()));
        let scan = scan.expression_attribute_values(":positions", AttributeValue::S(view.positions_prefix()));
        let page = scan.send().await.map_err(|error| StoreError::of_call("find the rows of a view", error))?;
        Ok(DroppedItems { keys: page.items.unwrap_or_default(), next: page.last_evaluated_key })
    }

    /// Deletes the items with these keys, with one call for each 25 of them.
    pub async fn delete_items(&self, keys: &[Item]) -> Result<(), StoreError> {
        const DOING: &str = "delete rows of a view";
        for keys in keys.chunks(MAX_DELETIONS) {
            let deletion = |key: &Item| {
                let delete = DeleteRequest::builder().set_key(Some(key.clone())).build().expect("the key is set");
                WriteRequest::builder().delete_request(delete).build()
            };
            let mut requests: Vec<_> = keys.iter().map(deletion).collect();
            let mut pauses = Backoff::until(Instant::now() + BATCH_PATIENCE);
            loop {
                let output = self.client.batch_write_item().request_items(&self.table_name, requests).send().await;
                let output = output.map_err(|error| StoreError::of_call(DOING, error))?;
                let left = output.unprocessed_items.and_then(|mut left| left.remove(&self.table_name));
                requests = left.unwrap_or_default();
                if requests.is_empty() {
                    break;
                }
                pauses.wait_or_fail(DOING, BATCH_LEFT).await?;
            }
        }
        Ok(())
    }

    /// Deletes the mark of a version. Call it after the rows and positions are deleted.
    pub async fn delete_mark(&self, view: &View) -> Result<(), StoreError> {
        let delete = self.client.delete_item().table_name(&self.table_name).set_key(Some(mark_key(view)));
        delete.send().await.map(drop).map_err(|error| StoreError::of_call("delete the mark of a view", error))
    }
}

fn mark_key(view: &View) -> Item {
    row_key(projection_pk(&view.name), mark_sk(view.version))
}

/// An update expression that sets and removes attributes, with its names and values.
fn changes(set: &[(&'static str, String)], remove: &[&'static str]) -> (String, HashMap<String, String>, Option<Item>) {
    let names = set.iter().map(|(name, _)| *name).chain(remove.iter().copied());
    let names = names.map(|name| (format!("#{name}"), name.to_owned())).collect();
    let values: Item = set.iter().map(|(name, value)| (format!(":{name}"), AttributeValue::S(value.clone()))).collect();
    let mut expression = String::new();
    if !set.is_empty() {
        let set: Vec<_> = set.iter().map(|(name, _)| format!("#{name} = :{name}")).collect();
        expression = format!("SET {} ", set.join(", "));
    }
    if !remove.is_empty() {
        let remove: Vec<_> = remove.iter().map(|name| format!("#{name}")).collect();
        expression += &format!("REMOVE {}", remove.join(", "));
    }
    (expression, names, (!values.is_empty()).then_some(values))
}
