//! The end of a transaction whose time is over. Time is simulated, and so is DynamoDB.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use daybook_event_store::{EventStore, TransactError, TransactOptions};
use daybook_function_runtime::aws_config_at;
use daybook_test_support::table::settings;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{Subject, Write};

/// How long the second append takes.
const SECOND_APPEND: Duration = Duration::from_millis(550);

/// A DynamoDB without a row. The connection of the first append breaks. The second append fails late, because the
/// metadata is at version 5.
#[derive(Clone, Debug, Default)]
struct EmptyTable {
    has_failed: Arc<AtomicBool>,
}

impl HttpClient for EmptyTable {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for EmptyTable {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let is_append = request.headers().get("x-amz-target").unwrap().ends_with("TransactWriteItems");
        let has_failed = is_append && self.has_failed.swap(true, Ordering::Relaxed);
        HttpConnectorFuture::new(async move {
            match (is_append, has_failed) {
                (true, false) => Err(ConnectorError::io("the connection broke".into())),
                (true, true) => {
                    sleep(SECOND_APPEND).await;
                    Ok(response(400, &cancelled_at(5)))
                }
                (false, _) => Ok(response(200, &json!({}))),
            }
        })
    }
}

fn response(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body.to_string()))
}

/// The error of an append whose metadata is at another version.
fn cancelled_at(version: u64) -> Value {
    let metadata = json!({"currentSeqNum": {"N": version.to_string()}, "messageSeq": {"N": version.to_string()}});
    json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "CancellationReasons": [{"Code": "ConditionalCheckFailed", "Item": metadata}, {"Code": "None"}, {"Code": "None"}],
    })
}

#[tokio::test(start_paused = true)]
async fn search_for_a_lost_append_ends_with_the_last_calls() {
    let aws = aws_config_at("http://localhost").into_builder().http_client(EmptyTable::default()).build();
    let store = EventStore::new(&aws, settings());
    let todo = Subject::shipped("todo", "1");
    let creation = Write::new(&todo, "CreateTodo", json!({"title": "A", "message": ""}));
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = creation.send_until(&store, deadline).await.unwrap_err();
    assert!(matches!(error, TransactError::OutcomeUnknown { after: 0, .. }), "{error:?}");
    assert_eq!(creation.decisions().len(), 2);
    let late = Instant::now() - deadline;
    assert!(late > SECOND_APPEND, "{late:?}");
    // The timer of the runtime rounds to milliseconds.
    assert!(late <= TransactOptions::LAST_CALLS + Duration::from_millis(5), "{late:?}");
}
