//! The injected faults of the local stack, which `PUT /_dev/faults` replaces: those of the bus and the queues, those of the
//! projector's invocations, those of the calls to the views table, and the functions of the stream that are paused.
//!
//! As JSON, besides the members of [`Faults`]:
//!
//! ```json
//! {
//!   "projector": [{"killAfterMs": 0}, {}, {"killAfterMs": 50, "forever": true}],
//!   "views": {"TransactWriteItems": [{"code": "ThrottlingException"}, {"acceptThenDrop": true}]},
//!   "paused": ["stream-relay"]
//! }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::messaging::{CallFault, DeliveryFault, Faults, FunctionFault, Rule};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::sleep;

/// A function of the table's stream.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PausedFunction {
    StreamRelay,
    Snapshotter,
}

/// A fault for each of the next calls to the views table, by operation. `body` and `failEntries` have no effect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ViewFaultScript(BTreeMap<String, Vec<CallFault>>);

/// The fault of one invocation. `{}` is no fault.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct InvocationFault {
    /// End the function after this many milliseconds. With 0, it ends before a call has a response.
    kill_after_ms: Option<u64>,
    /// The fault is not used up: every later invocation has it too.
    forever: bool,
}

/// All faults: the members of [`Faults`], and those of the read models and the stream. One struct has them all, so the error of
/// an unknown member lists all that exist.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct StackFaults {
    put_events: Vec<CallFault>,
    entries: Vec<Rule>,
    send_message: Vec<CallFault>,
    messages: Vec<Rule>,
    receive_message: Vec<CallFault>,
    delete_message: Vec<CallFault>,
    describe_event_bus: Vec<CallFault>,
    deliveries: Vec<DeliveryFault>,
    invocations: Vec<FunctionFault>,
    /// A fault for each of the next invocations of the projector.
    projector: Vec<InvocationFault>,
    pub(crate) views: ViewFaultScript,
    /// The functions of the stream that are not invoked.
    paused: Vec<PausedFunction>,
}

impl StackFaults {
    /// The faults of the bus and the queues.
    pub(crate) fn of_bus(&self) -> Faults {
        let all = self.clone();
        Faults {
            put_events: all.put_events,
            entries: all.entries,
            send_message: all.send_message,
            messages: all.messages,
            receive_message: all.receive_message,
            delete_message: all.delete_message,
            describe_event_bus: all.describe_event_bus,
            deliveries: all.deliveries,
            invocations: all.invocations,
        }
    }

    pub(crate) fn paused(&self) -> BTreeSet<&'static str> {
        let name = |function: &PausedFunction| match function {
            PausedFunction::StreamRelay => "stream-relay",
            PausedFunction::Snapshotter => "snapshotter",
        };
        self.paused.iter().map(name).collect()
    }
}

/// The faults of the projector's invocations in a running stack. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectorFaults(Arc<Mutex<Vec<InvocationFault>>>);

impl ProjectorFaults {
    pub(crate) fn set(&self, faults: &StackFaults) {
        self.lock().clone_from(&faults.projector);
    }

    /// The time after which the next invocation of the projector is killed; `None` if it is not.
    pub(crate) fn next_invocation(&self) -> Option<Duration> {
        let mut script = self.lock();
        let fault = match script.first() {
            None => return None,
            Some(fault) if fault.forever => *fault,
            Some(_) => script.remove(0),
        };
        fault.kill_after_ms.map(Duration::from_millis)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<InvocationFault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The faults of the calls to the views table in the running functions. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewFaults(Arc<Mutex<ViewFaultScript>>);

impl ViewFaults {
    /// Replaces all faults. Returns those that were left.
    pub(crate) fn replace(&self, script: ViewFaultScript) -> ViewFaultScript {
        mem::replace(&mut *self.lock(), script)
    }

    /// The configuration of a client of the views table whose calls have these faults.
    pub(crate) fn inject_into(&self, dynamodb: &SdkConfig) -> SdkConfig {
        let Some(client) = dynamodb.http_client() else { return dynamodb.clone() };
        dynamodb.to_builder().http_client(FaultyClient { client, faults: self.clone() }).build()
    }

    fn next_call(&self, operation: &str) -> CallFault {
        self.lock().0.get_mut(operation).map(CallFault::next).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, ViewFaultScript> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An HTTP client whose calls have faults.
#[derive(Clone)]
struct FaultyClient<T> {
    client: T,
    faults: ViewFaults,
}

impl<T> fmt::Debug for FaultyClient<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyClient").finish_non_exhaustive()
    }
}

impl HttpClient for FaultyClient<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let client = self.client.http_connector(settings, components);
        SharedHttpConnector::new(FaultyClient { client, faults: self.faults.clone() })
    }
}

impl HttpConnector for FaultyClient<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let fault = self.faults.next_call(target.rsplit('.').next().unwrap_or_default());
        let client = self.client.clone();
        HttpConnectorFuture::new(async move {
            sleep(Duration::from_millis(fault.delay_ms)).await;
            let error = fault.status_and_code().map(|(status, code)| error_response(status, &code));
            match error {
                Some(error) if !fault.accept_then_drop => error,
                None if !fault.accept_then_drop => client.call(request).await,
                error => {
                    client.call(request).await?;
                    error.unwrap_or_else(|| Err(ConnectorError::io("injected fault: the connection broke".into())))
                }
            }
        })
    }
}

/// The response of a call that fails with this error.
fn error_response(status: u16, code: &str) -> Result<HttpResponse, ConnectorError> {
    let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "injected fault"});
    let status = status.try_into().map_err(|error| ConnectorError::user(Box::new(error)))?;
    Ok(HttpResponse::new(status, SdkBody::from(body.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_an_unknown_member_lists_all_members() {
        let error = serde_json::from_value::<StackFaults>(json!({"putEvent": []})).unwrap_err().to_string();
        for name in ["unknown field `putEvent`", "`putEvents`", "`invocations`", "`projector`", "`views`", "`paused`"] {
            assert_eq!(error.matches(name).count(), 1, "{error}");
        }
    }

    #[test]
    fn each_member_reaches_its_part_of_the_stack() {
        let call = json!([{"http": 500}]);
        let rule = json!([{"containing": "a", "code": "b"}]);
        let of_bus = json!({
            "putEvents": call, "entries": rule, "sendMessage": [{"http": 501}], "messages": [{"containing": "c", "code": "d"}],
            "receiveMessage": [{"http": 502}], "deleteMessage": [{"http": 503}], "describeEventBus": [{"http": 504}],
            "deliveries": [{"duplicate": true}], "invocations": [{"function": "billing"}],
        });
        let mut all = of_bus.clone();
        all["projector"] = json!([{"killAfterMs": 7}]);
        all["views"] = json!({"PutItem": call});
        all["paused"] = json!(["snapshotter"]);
        let faults: StackFaults = serde_json::from_value(all).unwrap();
        assert_eq!(faults.of_bus(), serde_json::from_value(of_bus).unwrap());
        assert_eq!(faults.projector[0].kill_after_ms, Some(7));
        assert_eq!(faults.views.0["PutItem"][0].http, Some(500));
        assert_eq!(faults.paused(), BTreeSet::from(["snapshotter"]));
    }
}
