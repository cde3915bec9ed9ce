//! The handle for administrative calls; with it, the table is created where no template does it.

use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, StreamSpecification, StreamViewType, TimeToLiveSpecification,
};
use daybook_decider::AggregatePanic;
use daybook_event_store::{EventStore, StoreError};
use daybook_table::{AggregateKey, attributes};

#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) store: &'a EventStore,
}

pub trait AdminCalls {
    /// The administrative calls, for example `store.admin().verify(model, &key, now)`.
    fn admin(&self) -> Admin<'_>;
}

impl AdminCalls for EventStore {
    fn admin(&self) -> Admin<'_> {
        Admin { store: self }
    }
}

impl Admin<'_> {
    /// Creates the table with its index, stream and TTL, unless it exists.
    pub async fn create_table(&self) -> Result<(), StoreError> {
        let strings = [attributes::PK, attributes::SK, attributes::GSI1PK, attributes::GSI1SK].map(|name| {
            AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(ScalarAttributeType::S)
                .build()
                .expect("name and type are set")
        });
        let index = GlobalSecondaryIndex::builder()
            .index_name(attributes::GSI1)
            .set_key_schema(Some(key_schema(attributes::GSI1PK, attributes::GSI1SK)))
            .projection(Projection::builder().projection_type(ProjectionType::All).build())
            .build()
            .expect("name and keys are set");
        let stream =
            StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewImage).build();
        let (client, name) = (self.store.client(), &self.store.settings().table_name);
        let call = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
        let call = call.set_attribute_definitions(Some(strings.into()));
        let call =
            call.set_key_schema(Some(key_schema(attributes::PK, attributes::SK))).global_secondary_indexes(index);
        match call.stream_specification(stream.expect("stream_enabled is set")).send().await {
            Ok(_) => {}
            Err(error) if matches!(error.as_service_error(), Some(CreateTableError::ResourceInUseException(_))) => {
                return Ok(());
            }
            Err(error) => return Err(StoreError::of_call("create the table", error)),
        }
        let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(attributes::TTL).build();
        let ttl = ttl.expect("enabled and attribute_name are set");
        let set = client.update_time_to_live().table_name(name).time_to_live_specification(ttl).send().await;
        set.map(drop).map_err(|error| StoreError::of_call("set the table's TTL", error))
    }
}

fn key_schema(partition: &str, sort: &str) -> Vec<KeySchemaElement> {
    [(partition, KeyType::Hash), (sort, KeyType::Range)]
        .map(|(name, kind)| {
            KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("name and type are set")
        })
        .into()
}

pub(crate) fn panicked(key: &AggregateKey, panic: AggregatePanic) -> StoreError {
    StoreError::Panicked { item: key.to_string(), source: Box::new(panic) }
}
