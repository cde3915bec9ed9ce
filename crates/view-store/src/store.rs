//! The [`ViewStore`], its client, and its reads of positions and rows, for folding events into them.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use aws_types::SdkConfig;
use daybook_decider::Json;
use daybook_event_store::internal::{Item, batch_get, row_key};
use daybook_event_store::{Sealing, StoreError, dynamodb_client, without_retries};
use daybook_table::{AggregateKey, attributes};

use crate::items::{POSITION, PartKey, Position, PositionItem, RowItem, View, json, read};

#[derive(Clone, Debug)]
pub struct ViewStore {
    pub(crate) client: Client,
    /// A client that sends each call once.
    pub(crate) once: Client,
    pub(crate) table_name: String,
    pub(crate) sealing: Sealing,
}

impl ViewStore {
    /// The views in this table, at the endpoint of `aws`.
    pub fn new(aws: &SdkConfig, table_name: impl Into<String>) -> Self {
        let client = dynamodb_client(aws);
        let (table_name, sealing) = (table_name.into(), Sealing::default());
        Self { once: without_retries(&client), client, table_name, sealing }
    }

    /// Opens and seals personal values as the event store does.
    pub fn with_sealing(self, sealing: &Sealing) -> Self {
        Self { sealing: sealing.clone(), ..self }
    }

    /// Creates the table, unless it exists. In a deployment, the template creates it.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let call = self.client.create_table().table_name(&self.table_name).billing_mode(BillingMode::PayPerRequest);
        let keys = [(attributes::PK, KeyType::Hash), (attributes::SK, KeyType::Range)];
        let call = keys.into_iter().fold(call, |call, (name, key_type)| {
            let attribute =
                AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build();
            let key = KeySchemaElement::builder().attribute_name(name).key_type(key_type).build();
            call.attribute_definitions(attribute.expect("name and type are set"))
                .key_schema(key.expect("name and type are set"))
        });
        match call.send().await {
            Err(error) if !matches!(error.as_service_error(), Some(CreateTableError::ResourceInUseException(_))) => {
                Err(StoreError::of_call("create the views table", error))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    pub row: Json,
    pub write_id: String,
}

impl ViewStore {
    pub async fn positions(
        &self,
        view: &View,
        aggregates: &BTreeSet<AggregateKey>,
    ) -> Result<BTreeMap<AggregateKey, Position>, StoreError> {
        let by_pk: BTreeMap<_, _> = aggregates.iter().map(|key| (view.position_pk(key), key)).collect();
        let keys = by_pk.keys().map(|pk| row_key(pk.clone(), POSITION.to_owned())).collect();
        let mut positions = BTreeMap::new();
        for item in self.batch_get(keys).await? {
            let PositionItem { pk, seq_num, state, suspended, resumed_at, .. } = read(item)?;
            if let Some(&key) = by_pk.get(&pk) {
                let state = json(&pk, state)?;
                positions.insert(key.clone(), Position { seq_num, state, suspended, resumed_at });
            }
        }
        let states = positions.iter_mut().map(|(key, position)| (view.position_pk(key), &mut position.state));
        self.sealing.open(states).await?;
        Ok(positions)
    }

    /// The parts of rows with these keys, without those that do not exist.
    pub async fn rows(&self, view: &View, of: &BTreeSet<PartKey>) -> Result<BTreeMap<PartKey, StoredPart>, StoreError> {
        let by_key: BTreeMap<_, _> = of.iter().map(|of| ((view.rows_pk(of.part), of.key.as_str()), of)).collect();
        let keys = by_key.keys().map(|(pk, sk)| row_key(pk.clone(), (*sk).to_owned())).collect();
        let mut rows = BTreeMap::new();
        for item in self.batch_get(keys).await? {
            let RowItem { pk, sk, row, write_id } = read(item)?;
            if let Some(&key) = by_key.get(&(pk, sk.as_str())) {
                rows.insert(key.clone(), StoredPart { row: json(&sk, row)?, write_id });
            }
        }
        self.sealing.open(rows.iter_mut().map(|(key, row)| (view.rows_pk(key.part), &mut row.row))).await?;
        Ok(rows)
    }

    /// The items with these keys that exist, in any order, strongly consistent. The keys must differ.
    pub(crate) async fn batch_get(&self, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        batch_get((&self.client, &self.table_name), keys, None, "read a view").await
    }
}
