//! The pointer of a projection: the version that readers get.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem, Update};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, row_key};
use daybook_table::attributes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::items::{MARK, POINTER, View, is_conflict, projection_pk, read};
use crate::mark::{VersionMark, changes, mark_key};
use crate::store::ViewStore;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pointer {
    pub version: u32,
    pub switched_at: Timestamp,
}

/// What the table contains about the versions of a projection.
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
