//! The mark of a version: how far a version of a projection is filled. Operator commands write and read it; the
//! projector reads it.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, if_condition_holds, row_key};
use daybook_table::attributes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::items::{View, mark_sk, projection_pk, read};
use crate::store::ViewStore;

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

pub(crate) fn mark_key(view: &View) -> Item {
    row_key(projection_pk(&view.name), mark_sk(view.version))
}

/// An update expression that sets and removes attributes, with its names and values.
pub(crate) fn changes(
    set: &[(&'static str, String)],
    remove: &[&'static str],
) -> (String, HashMap<String, String>, Option<Item>) {
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
