//! An HTTP client that counts calls to DynamoDB, and the read and write units that their responses report.

use std::fmt;
use std::sync::Arc;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use serde::Deserialize;

/// The member of a request that asks for the consumed units.
const ASKS: &[u8] = b"\"ReturnConsumedCapacity\"";

/// Counts a call by its operation and its units.
type CountCall = Arc<dyn Fn(&str, f64) + Send + Sync>;

/// An HTTP client whose calls are counted.
#[derive(Clone)]
pub struct MeteredClient<T> {
    client: T,
    count: CountCall,
    asks_for_units: bool,
}

pub fn is_read(operation: &str) -> bool {
    matches!(operation, "GetItem" | "BatchGetItem" | "Query" | "Scan" | "TransactGetItems")
}

impl MeteredClient<SharedHttpClient> {
    /// A client that counts the units of those calls that ask for them.
    pub fn new(client: SharedHttpClient, count: impl Fn(&str, f64) + Send + Sync + 'static) -> Self {
        Self { client, count: Arc::new(count), asks_for_units: false }
    }

    /// A client that makes all calls ask for their units. The service must not check signatures: the request is changed
    /// after it was signed.
    pub fn asking_for_units(client: SharedHttpClient, count: impl Fn(&str, f64) + Send + Sync + 'static) -> Self {
        Self { asks_for_units: true, ..Self::new(client, count) }
    }
}

impl<T> fmt::Debug for MeteredClient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredClient").finish_non_exhaustive()
    }
}

impl HttpClient for MeteredClient<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let client = self.client.http_connector(settings, components);
        let Self { count, asks_for_units, .. } = self.clone();
        SharedHttpConnector::new(MeteredClient { client, count, asks_for_units })
    }
}

impl HttpConnector for MeteredClient<SharedHttpConnector> {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        if self.asks_for_units
            && let Some(body) = request.body().bytes().and_then(with_consumed_capacity)
        {
            request.headers_mut().insert("content-length", body.len().to_string());
            *request.body_mut() = SdkBody::from(body);
        }
        let Self { client, count, .. } = self.clone();
        HttpConnectorFuture::new(async move {
            let mut response: HttpResponse = client.call(request).await?;
            let body = ByteStream::new(std::mem::replace(response.body_mut(), SdkBody::taken()));
            let body = body.collect().await.map_err(|error| ConnectorError::io(error.into()))?.into_bytes();
            count(&operation, consumed_units(&body));
            *response.body_mut() = SdkBody::from(body);
            Ok(response)
        })
    }
}

/// The body of a request that also asks for the consumed units; `None` if it asks for them already.
fn with_consumed_capacity(body: &[u8]) -> Option<Vec<u8>> {
    if body.windows(ASKS.len()).any(|part| part == ASKS) {
        return None;
    }
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
        assert_eq!(with_consumed_capacity(br#"{"TableName":"t","ReturnConsumedCapacity":"INDEXES"}"#), None);
    }

    #[test]
    fn units_of_all_tables_are_added() {
        assert_eq!(consumed_units(br#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":1.5},"Items":[]}"#), 1.5);
        assert_eq!(consumed_units(br#"{"ConsumedCapacity":[{"CapacityUnits":7.0},{"CapacityUnits":2.0}]}"#), 9.0);
        assert_eq!(consumed_units(br#"{"Items":[]}"#), 0.0);
    }
}
