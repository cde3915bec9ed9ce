//! Snapshots: a folded state that saves reading the events before it. Never trusted beyond that: one of another state
//! version, or one that cannot be read, is ignored.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::AttributeValue;
use decider::record::timestamp;
use decider::{Folded, Json, Model};
use jiff::Timestamp;
use table::{AggregateKey, SnapshotItem, attributes, keys};

use crate::error::{Cause, StoreError};
use crate::limits;
use crate::load::{Item, Loaded};
use crate::packing::{pack, unpack};
use crate::store::EventStore;

/// What became of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOutcome {
    /// It is stored.
    Taken {
        /// The last event that is folded into it.
        version: u64,
    },
    /// One as new is stored already: a late, repeated or reordered request changes nothing.
    NotNewer,
    /// The state does not fit an item even when compressed. The aggregate works on without a snapshot.
    TooLarge {
        /// What the item would have had, in bytes.
        bytes: usize,
    },
    /// The aggregate cannot use one: it has no events, or wants its full history.
    NotNeeded,
}

impl EventStore {
    /// Stores the aggregate's present state as its snapshot, unless one as new is there.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn take_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        if model.full_history() {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let loaded = self.load(model, key).await?;
        if loaded.version() == 0 {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let newest = encode(model, key, &loaded, now)?;
        let bytes = limits::item_size(&to_item(&newest, key)?);
        if bytes > limits::MAX_ITEM {
            return Ok(SnapshotOutcome::TooLarge { bytes });
        }
        // The kept copy first: were it second, a crash between the two would lose it for good.
        if self.settings.snapshot_keep > 0 {
            let kept = SnapshotItem { sk: keys::kept_snapshot_sk(loaded.version()), ..newest.clone() };
            self.put_snapshot(model, to_item(&kept, key)?, loaded.version()).await?;
            self.retire_snapshots(key, now).await?;
        }
        let stored = self.put_snapshot(model, to_item(&newest, key)?, loaded.version()).await?;
        Ok(if stored { SnapshotOutcome::Taken { version: loaded.version() } } else { SnapshotOutcome::NotNewer })
    }

    /// What a fold of all events goes on from: the newest snapshot, if it is good.
    pub(crate) async fn base(&self, model: &dyn Model, key: &AggregateKey) -> Result<Folded, StoreError> {
        if model.full_history() {
            return Ok(model.before_first_event());
        }
        let answer = self
            .client
            .get_item()
            .table_name(&self.settings.table_name)
            .key(attributes::PK, AttributeValue::S(key.pk()))
            .key(attributes::SK, AttributeValue::S(keys::SNAPSHOT.to_owned()))
            .consistent_read(true)
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read a snapshot", fault))?;
        let snapshot = answer.item.and_then(|item| decode(model, key, item));
        Ok(snapshot.unwrap_or_else(|| model.before_first_event()))
    }

    /// What a fold up to event `version` goes on from: the newest kept snapshot that is not beyond it.
    pub(crate) async fn base_at(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        version: u64,
    ) -> Result<Folded, StoreError> {
        if model.full_history() || version == 0 {
            return Ok(model.before_first_event());
        }
        let page = self
            .client
            .query()
            .table_name(&self.settings.table_name)
            .key_condition_expression(format!(
                "{} = :pk AND {} BETWEEN :first AND :last",
                attributes::PK,
                attributes::SK
            ))
            .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
            .expression_attribute_values(":first", AttributeValue::S(keys::kept_snapshot_sk(0)))
            .expression_attribute_values(":last", AttributeValue::S(keys::kept_snapshot_sk(version)))
            .scan_index_forward(false)
            .limit(1)
            .consistent_read(true)
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read a kept snapshot", fault))?;
        let kept = page.items.unwrap_or_default().into_iter().find_map(|item| decode(model, key, item));
        Ok(kept.unwrap_or_else(|| model.before_first_event()))
    }

    /// Puts a snapshot where there is none as new. `false` when there is.
    async fn put_snapshot(&self, model: &dyn Model, item: Item, version: u64) -> Result<bool, StoreError> {
        let put = self
            .client
            .put_item()
            .table_name(&self.settings.table_name)
            .set_item(Some(item))
            // One whose number is no number cannot be compared, and must not stand for ever.
            .condition_expression(format!(
                "attribute_not_exists({pk}) OR {last} < :version OR {state} <> :stateVersion \
                 OR NOT attribute_type({last}, :number)",
                pk = attributes::PK,
                last = attributes::LAST_SEQ_NUM,
                state = attributes::STATE_VERSION
            ))
            .expression_attribute_values(":number", AttributeValue::S("N".to_owned()))
            .expression_attribute_values(":version", AttributeValue::N(version.to_string()))
            .expression_attribute_values(":stateVersion", AttributeValue::N(model.state_version().to_string()))
            .send()
            .await;
        match put {
            Ok(_) => Ok(true),
            Err(fault)
                if matches!(fault.as_service_error(), Some(PutItemError::ConditionalCheckFailedException(_))) =>
            {
                Ok(false)
            }
            Err(fault) => Err(StoreError::of_call("write a snapshot", fault)),
        }
    }

    /// Gives the kept snapshots beyond the newest few a TTL of now: DynamoDB deletes them at no cost.
    async fn retire_snapshots(&self, key: &AggregateKey, now: Timestamp) -> Result<(), StoreError> {
        let mut pages = self
            .client
            .query()
            .table_name(&self.settings.table_name)
            .key_condition_expression(format!("{} = :pk AND begins_with({}, :kept)", attributes::PK, attributes::SK))
            .filter_expression("attribute_not_exists(#ttl)")
            .projection_expression(attributes::SK)
            .expression_attribute_names("#ttl", attributes::TTL)
            .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
            .expression_attribute_values(":kept", AttributeValue::S(keys::KEPT_SNAPSHOT_PREFIX.to_owned()))
            .scan_index_forward(false)
            .consistent_read(true)
            .into_paginator()
            .items()
            .send();
        // The newest is the copy of `#SNAPSHOT` itself, so one more than asked for stays.
        let mut stay = self.settings.snapshot_keep + 1;
        while let Some(item) = pages.next().await {
            let mut item = item.map_err(|fault| StoreError::of_call("list kept snapshots", fault))?;
            if stay > 0 {
                stay -= 1;
                continue;
            }
            let Some(sk) = item.remove(attributes::SK) else { continue };
            self.client
                .update_item()
                .table_name(&self.settings.table_name)
                .key(attributes::PK, AttributeValue::S(key.pk()))
                .key(attributes::SK, sk)
                .update_expression("SET #ttl = :now")
                .condition_expression(format!("attribute_exists({})", attributes::PK))
                .expression_attribute_names("#ttl", attributes::TTL)
                .expression_attribute_values(":now", AttributeValue::N(now.as_second().to_string()))
                .send()
                .await
                .map_err(|fault| StoreError::of_call("retire a kept snapshot", fault))?;
        }
        Ok(())
    }
}

fn encode(model: &dyn Model, key: &AggregateKey, loaded: &Loaded, now: Timestamp) -> Result<SnapshotItem, StoreError> {
    let state = pack(loaded.state.text()).map_err(|fault| corrupt_state(key, fault))?;
    Ok(SnapshotItem {
        pk: key.pk(),
        sk: keys::SNAPSHOT.to_owned(),
        state,
        last_seq_num: loaded.version(),
        message_seq: loaded.folded.message_seq(),
        state_version: model.state_version(),
        taken_at: timestamp(now),
        ttl: None,
    })
}

fn to_item(snapshot: &SnapshotItem, key: &AggregateKey) -> Result<Item, StoreError> {
    serde_dynamo::to_item(snapshot).map_err(|fault| corrupt_state(key, fault))
}

fn corrupt_state(key: &AggregateKey, fault: impl Into<Cause>) -> StoreError {
    StoreError::Corrupt { item: format!("the state of {key}"), source: fault.into() }
}

/// The snapshot, unless it is of another state version or cannot be read.
fn decode(model: &dyn Model, key: &AggregateKey, item: Item) -> Option<Folded> {
    let read = || -> Result<Option<Folded>, Cause> {
        let snapshot: SnapshotItem = serde_dynamo::from_item(item)?;
        if snapshot.state_version != model.state_version() {
            return Ok(None);
        }
        let text = unpack(snapshot.state)?;
        Ok(Some(model.restore(snapshot.last_seq_num, snapshot.message_seq, &Json::parse(text)?)?))
    };
    read().unwrap_or_else(|fault| {
        tracing::warn!(aggregate = %key, fault, "ignoring a snapshot that cannot be read");
        None
    })
}
