//! The injected faults of the calls to the views table. `PUT /_dev/faults` replaces all faults, which are described with
//! [`Faults`](daybook_local_aws::messaging::Faults).

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::messaging::{CallFault, ViewFaults};
use serde_json::json;
use tokio::time::sleep;

use crate::usage::intercepted;

/// The faults of the calls to the views table in the running functions. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyViews(Arc<Mutex<ViewFaults>>);

impl FaultyViews {
    /// Replaces all faults. Returns those that were left.
    pub(crate) fn replace(&self, faults: ViewFaults) -> ViewFaults {
        mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), faults)
    }

    /// The configuration of a client of the views table whose calls have these faults.
    pub(crate) fn inject_into(&self, dynamodb: &SdkConfig) -> SdkConfig {
        let faults = self.clone();
        intercepted(dynamodb, move |operation, request, connector| {
            let fault = faults.next_call(operation);
            HttpConnectorFuture::new(async move {
                sleep(Duration::from_millis(fault.delay_ms)).await;
                let error = fault.status_and_code().map(|(status, code)| error_response(status, &code));
                match error {
                    Some(error) if !fault.accept_then_drop => error,
                    None if !fault.accept_then_drop => connector.call(request).await,
                    error => {
                        connector.call(request).await?;
                        error.unwrap_or_else(|| Err(ConnectorError::io("injected fault: the connection broke".into())))
                    }
                }
            })
        })
    }

    fn next_call(&self, operation: &str) -> CallFault {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.get_mut(operation).map(CallFault::next).unwrap_or_default()
    }
}

fn error_response(status: u16, code: &str) -> Result<HttpResponse, ConnectorError> {
    let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "injected fault"});
    let status = status.try_into().map_err(|error| ConnectorError::user(Box::new(error)))?;
    Ok(HttpResponse::new(status, SdkBody::from(body.to_string())))
}
