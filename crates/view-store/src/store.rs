//! The [`ViewStore`] and its client.

use aws_sdk_dynamodb::Client;
use aws_types::SdkConfig;

/// The views in one table.
#[derive(Clone, Debug)]
pub struct ViewStore {
    pub(crate) client: Client,
    pub(crate) table_name: String,
}

impl ViewStore {
    /// The views in this table, at the endpoint of `aws`.
    pub fn new(aws: &SdkConfig, table_name: impl Into<String>) -> Self {
        Self { client: daybook_event_store::dynamodb_client(aws), table_name: table_name.into() }
    }
}
