//! The [`ViewStore`] and its client.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use aws_types::SdkConfig;
use daybook_event_store::{StoreError, dynamodb_client, without_retries};
use daybook_table::attributes;
use tokio::time::sleep;

/// Maximum calls for the same keys: DynamoDB may leave some of them for another call.
const MAX_CALLS: u32 = 8;

/// The views in one table.
#[derive(Clone, Debug)]
pub struct ViewStore {
    pub(crate) client: Client,
    /// A client that sends each call once.
    pub(crate) once: Client,
    pub(crate) table_name: String,
}

impl ViewStore {
    /// The views in this table, at the endpoint of `aws`.
    pub fn new(aws: &SdkConfig, table_name: impl Into<String>) -> Self {
        let client = dynamodb_client(aws);
        Self { once: without_retries(&client), client, table_name: table_name.into() }
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
            Ok(_) => Ok(()),
            Err(error) if matches!(error.as_service_error(), Some(CreateTableError::ResourceInUseException(_))) => {
                Ok(())
            }
            Err(error) => Err(StoreError::of_call("create the views table", error)),
        }
    }
}

/// Waits before another call for the keys that DynamoDB has left after so many calls. The pause doubles with each call.
pub(crate) async fn pause_before_rest(calls: u32, first: Duration, doing: &'static str) -> Result<(), StoreError> {
    if calls == MAX_CALLS {
        let source = "DynamoDB left keys unprocessed again and again".into();
        return Err(StoreError::Unavailable { doing, source });
    }
    sleep((first * 2_u32.pow(calls - 1)).mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    Ok(())
}
