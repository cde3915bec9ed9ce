//! Clients whose calls and units are counted, or whose requests are changed for the speed of the local table.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem, slice};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use daybook_function_runtime::SdkConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallUsage {
    pub calls: BTreeMap<String, u64>,
    pub read_units: f64,
    /// In the table and the index.
    pub write_units: f64,
}

impl CallUsage {
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }

    fn count(&mut self, operation: &str, units: f64) {
        *self.calls.entry(operation.to_owned()).or_default() += 1;
        let is_read = matches!(operation, "GetItem" | "BatchGetItem" | "Query" | "Scan" | "TransactGetItems");
        *if is_read { &mut self.read_units } else { &mut self.write_units } += units;
    }
}

impl AddAssign for CallUsage {
    fn add_assign(&mut self, other: Self) {
        other.calls.into_iter().for_each(|(name, count)| *self.calls.entry(name).or_default() += count);
        self.read_units += other.read_units;
        self.write_units += other.write_units;
    }
}

/// Counts calls. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct CallMeter(Arc<Mutex<CallUsage>>);

impl CallMeter {
    /// What was used since this was last called.
    pub fn take(&self) -> CallUsage {
        mem::take(&mut *self.counts())
    }

    fn counts(&self) -> MutexGuard<'_, CallUsage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration of a client whose calls are counted, with the units of those that ask for them.
    pub fn metered(&self, config: &SdkConfig) -> SdkConfig {
        self.counted(config, false)
    }

    /// The configuration of a client of the local DynamoDB, which checks no signatures: its requests are changed so that they ask
    /// for their units, and its calls are counted.
    pub fn metered_with_units(&self, dynamodb: &SdkConfig) -> SdkConfig {
        self.counted(dynamodb, true)
    }

    fn counted(&self, config: &SdkConfig, asks_for_units: bool) -> SdkConfig {
        let meter = self.clone();
        intercepted(config, move |operation, mut request, connector| {
            if asks_for_units && let Some(body) = request.body().bytes().and_then(with_consumed_capacity) {
                replace_body(&mut request, body);
            }
            let (operation, meter) = (operation.to_owned(), meter.clone());
            HttpConnectorFuture::new(async move {
                let mut response: HttpResponse = connector.call(request).await?;
                let body = ByteStream::new(mem::replace(response.body_mut(), SdkBody::taken()));
                let body = body.collect().await.map_err(|error| ConnectorError::io(error.into()))?.into_bytes();
                let units = consumed_units(&body);
                meter.counts().count(&operation, units);
                *response.body_mut() = SdkBody::from(body);
                Ok(response)
            })
        })
    }
}

/// The configuration of a client of the local DynamoDB, which checks no signatures, that sends no tokens with its transactions. The
/// engine of the local table stores the tokens of ten minutes and reads all of them for each new one, so that a command would take
/// longer after many others. A token only has an effect if its transaction is sent again. Daybook sends each append and each fold
/// once; their conditions keep a second one out.
pub fn without_tokens(dynamodb: &SdkConfig) -> SdkConfig {
    intercepted(dynamodb, |operation, mut request, connector| {
        let body = request.body().bytes().filter(|_| operation == "TransactWriteItems");
        if let Some(body) = body.and_then(without_token) {
            replace_body(&mut request, body);
        }
        connector.call(request)
    })
}

/// The body of a transaction without its token, which is none of its first members.
fn without_token(body: &[u8]) -> Option<Vec<u8>> {
    let (members, token) = str::from_utf8(body).ok()?.rsplit_once(r#","ClientRequestToken":""#)?;
    let (_, others) = token.split_once('"')?;
    Some([members, others].concat().into_bytes())
}

/// The service must not check signatures, because the request was signed before.
fn replace_body(request: &mut HttpRequest, body: Vec<u8>) {
    request.headers_mut().insert("content-length", body.len().to_string());
    *request.body_mut() = SdkBody::from(body);
}

/// The configuration of a client whose calls `call` makes, with the operation, the request and the connector.
fn intercepted(
    config: &SdkConfig,
    call: impl Fn(&str, HttpRequest, SharedHttpConnector) -> HttpConnectorFuture + Send + Sync + 'static,
) -> SdkConfig {
    let Some(client) = config.http_client() else { return config.clone() };
    let call: Arc<Call> = Arc::new(call);
    let client = http_client_fn(move |settings, components| {
        let connector = HttpClient::http_connector(&client, settings, components);
        SharedHttpConnector::new(Intercepted { connector, call: call.clone() })
    });
    config.to_builder().http_client(client).build()
}

type Call = dyn Fn(&str, HttpRequest, SharedHttpConnector) -> HttpConnectorFuture + Send + Sync;

struct Intercepted {
    connector: SharedHttpConnector,
    call: Arc<Call>,
}

impl fmt::Debug for Intercepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intercepted").finish_non_exhaustive()
    }
}

impl HttpConnector for Intercepted {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        (self.call)(&operation, request, self.connector.clone())
    }
}

/// The member of a request that asks for the consumed units.
const ASKS: &[u8] = b"\"ReturnConsumedCapacity\"";

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
        consumed_capacity: Value,
    }
    let Ok(Consumed { consumed_capacity: one }) = serde_json::from_slice(body) else { return 0.0 };
    // A response about several tables has a list.
    let all = one.as_array().map_or(slice::from_ref(&one), Vec::as_slice);
    all.iter().filter_map(|consumed| consumed["CapacityUnits"].as_f64()).sum()
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
