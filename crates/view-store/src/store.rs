//! The [`ViewStore`] and its client.

use aws_sdk_dynamodb::Client;
use aws_types::SdkConfig;
use daybook_event_store::{dynamodb_client, without_retries};

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
}
