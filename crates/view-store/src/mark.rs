//! The mark of a version: how far a version of a projection is filled. Operator commands write and read it; the
//! projector reads it.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::{UpdateItemError, UpdateItemOutput};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, row_key};
use daybook_table::attributes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::items::read;
use crate::keys::{View, mark_sk, projection_pk};
use crate::store::ViewStore;

/// The mark of a version: what the table contains about how far the version is filled, and whether it leads.
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
        self.update_mark(view, &set, &["filledAt", "leadsSince", "readUntil"]).await
    }

    pub async fn store_progress(&self, view: &View, progress: &str, now: Timestamp) -> Result<(), StoreError> {
        self.update_mark(view, &[("progress", progress.to_owned()), ("progressAt", now.to_string())], &[]).await
    }

    /// Lets the version lead: from now on, the projector folds events into it before the version that is read. Also
    /// stores the progress of the rebuild, which must compare all aggregates from now on.
    pub async fn lead(&self, view: &View, progress: &str, now: Timestamp) -> Result<(), StoreError> {
        let set = [("leadsSince", now.to_string()), ("progress", progress.to_owned()), ("progressAt", now.to_string())];
        self.update_mark(view, &set, &["missedSince"]).await
    }

    /// Records that a release which does not register the version folds events. The version may lack these events, so it
    /// counts neither as filled nor as leading until the next rebuild. Changes nothing if the version has no mark.
    pub async fn miss_events(&self, view: &View, now: Timestamp) -> Result<(), StoreError> {
        let set = [("missedSince", now.to_string())];
        let update = self.mark_update(view, &set, &["filledAt", "leadsSince", "readUntil"]);
        if_condition_holds(update.condition_expression(format!("attribute_exists({})", attributes::PK)).send().await)
            .map(drop)
    }

    /// Ends a rebuild. `filled_at` is the time from which on the version counts as filled; `None` if the view does not
    /// show every aggregate. Returns whether it was ended: not if the version is to count as filled, but does not lead any
    /// more.
    pub async fn end_rebuild(&self, view: &View, filled_at: Option<Timestamp>) -> Result<bool, StoreError> {
        let set: Vec<_> = filled_at.iter().map(|now| ("filledAt", now.to_string())).collect();
        let update = self.mark_update(view, &set, &["progress", "progressAt"]);
        let condition = filled_at.map(|_| "attribute_exists(leadsSince)".to_owned());
        if_condition_holds(update.set_condition_expression(condition).send().await)
    }

    async fn update_mark(
        &self,
        view: &View,
        set: &[(&'static str, String)],
        remove: &[&'static str],
    ) -> Result<(), StoreError> {
        if_condition_holds(self.mark_update(view, set, remove).send().await).map(drop)
    }

    fn mark_update(
        &self,
        view: &View,
        set: &[(&'static str, String)],
        remove: &[&'static str],
    ) -> UpdateItemFluentBuilder {
        let (expression, names, values) = changes(set, remove);
        let update = self.client.update_item().table_name(&self.table_name).set_key(Some(mark_key(view)));
        let update = update.update_expression(expression).set_expression_attribute_names(Some(names));
        let update = update.set_expression_attribute_values(values);
        update.return_consumed_capacity(ReturnConsumedCapacity::Total)
    }
}

/// Whether the condition of an update of a mark held, so that the mark was changed.
fn if_condition_holds(updated: Result<UpdateItemOutput, SdkError<UpdateItemError>>) -> Result<bool, StoreError> {
    match updated {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(false),
        Err(error) => Err(StoreError::of_call("write the mark of a view", error)),
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
