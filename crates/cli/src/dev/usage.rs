//! What the stack has used since its start: calls, and the read and write units that the table charges for them.
//!
//! The calls of the API and the stream functions are counted, not those of other processes. The units are those that the
//! stack's own DynamoDB reports for successful calls; AWS also charges for transactions that are cancelled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use daybook_function_runtime::SdkConfig;
use serde::{Deserialize, Serialize};

/// What the stack has used since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Requests to the API.
    pub api_requests: u64,
    /// Invocations of the stream functions, by function.
    pub stream_invocations: BTreeMap<String, u64>,
    /// Calls to DynamoDB, by operation.
    pub dynamodb_calls: BTreeMap<String, u64>,
    /// Units of reads; `None` if DynamoDB is not the stack's own.
    pub read_units: Option<f64>,
    /// Units of writes, in the table and the index; `None` if DynamoDB is not the stack's own.
    pub write_units: Option<f64>,
    /// Calls of `PutEvents`.
    pub put_events_calls: u64,
    /// Entries in these calls.
    pub put_events_entries: u64,
}

/// Counts the usage of a running stack. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageMeter(Arc<Mutex<Usage>>);

impl UsageMeter {
    pub(super) fn usage(&self) -> Usage {
        self.counts().clone()
    }

    pub(super) fn count_invocation(&self, function: &str) {
        *self.counts().stream_invocations.entry(function.to_owned()).or_default() += 1;
    }

    /// The configuration of a DynamoDB client whose calls are counted. The client must not check signatures: the request is
    /// changed after it was signed.
    pub(super) fn metered(&self, dynamodb: &SdkConfig) -> SdkConfig {
        let Some(client) = dynamodb.http_client() else { return dynamodb.clone() };
        {
            let mut counts = self.counts();
            counts.read_units.get_or_insert_default();
            counts.write_units.get_or_insert_default();
        }
        dynamodb.to_builder().http_client(MeteredClient { client, meter: self.clone() }).build()
    }

    fn count_call(&self, operation: &str, units: f64) {
        let mut counts = self.counts();
        *counts.dynamodb_calls.entry(operation.to_owned()).or_default() += 1;
        let is_read = matches!(operation, "GetItem" | "BatchGetItem" | "Query" | "Scan" | "TransactGetItems");
        *if is_read { &mut counts.read_units } else { &mut counts.write_units }.get_or_insert_default() += units;
    }

    fn counts(&self) -> MutexGuard<'_, Usage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a request to the API.
pub(super) async fn count_request(State(meter): State<UsageMeter>, request: Request, next: Next) -> Response {
    meter.counts().api_requests += 1;
    next.run(request).await
}

/// An HTTP client that counts calls to DynamoDB and their units.
#[derive(Clone, Debug)]
struct MeteredClient<T> {
    client: T,
    meter: UsageMeter,
}

impl HttpClient for MeteredClient<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let client = self.client.http_connector(settings, components);
        SharedHttpConnector::new(MeteredClient { client, meter: self.meter.clone() })
    }
}

impl HttpConnector for MeteredClient<SharedHttpConnector> {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        if let Some(body) = request.body().bytes().and_then(with_consumed_capacity) {
            request.headers_mut().insert("content-length", body.len().to_string());
            *request.body_mut() = SdkBody::from(body);
        }
        let Self { client, meter } = self.clone();
        HttpConnectorFuture::new(async move {
            let mut response: HttpResponse = client.call(request).await?;
            let body = ByteStream::new(std::mem::replace(response.body_mut(), SdkBody::taken()));
            let body = body.collect().await.map_err(|error| ConnectorError::io(error.into()))?.into_bytes();
            meter.count_call(&operation, consumed_units(&body));
            *response.body_mut() = SdkBody::from(body);
            Ok(response)
        })
    }
}

/// The body of a request that also asks for the consumed units.
fn with_consumed_capacity(body: &[u8]) -> Option<Vec<u8>> {
    let members = body.strip_prefix(b"{")?;
    let separator: &[u8] = if members.starts_with(b"}") { b"" } else { b"," };
    Some([br#"{"ReturnConsumedCapacity":"TOTAL""#, separator, members].concat())
}

/// The units in a response: of the table and its index together.
fn consumed_units(body: &[u8]) -> f64 {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Consumed {
        consumed_capacity: OneOrSeveral,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral {
        One(Capacity),
        Several(Vec<Capacity>),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Capacity {
        capacity_units: f64,
    }
    match serde_json::from_slice(body) {
        Ok(Consumed { consumed_capacity: OneOrSeveral::One(one) }) => one.capacity_units,
        Ok(Consumed { consumed_capacity: OneOrSeveral::Several(several) }) => {
            several.iter().map(|one| one.capacity_units).sum()
        }
        Err(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_units_is_added_to_the_members_of_a_body() {
        let with = |body: &str| String::from_utf8(with_consumed_capacity(body.as_bytes()).unwrap()).unwrap();
        assert_eq!(with("{}"), r#"{"ReturnConsumedCapacity":"TOTAL"}"#);
        assert_eq!(with(r#"{"TableName":"t"}"#), r#"{"ReturnConsumedCapacity":"TOTAL","TableName":"t"}"#);
        assert_eq!(with_consumed_capacity(b""), None);
    }

    #[test]
    fn units_of_all_tables_are_added() {
        assert_eq!(consumed_units(br#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":1.5},"Items":[]}"#), 1.5);
        assert_eq!(consumed_units(br#"{"ConsumedCapacity":[{"CapacityUnits":7.0},{"CapacityUnits":2.0}]}"#), 9.0);
        assert_eq!(consumed_units(br#"{"Items":[]}"#), 0.0);
    }
}
