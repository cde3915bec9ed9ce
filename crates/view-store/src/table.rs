//! The creation of the table, for environments where no template does it.

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType};
use daybook_event_store::StoreError;
use daybook_table::attributes;

use crate::store::ViewStore;

impl ViewStore {
    /// Creates the table, unless it exists.
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
