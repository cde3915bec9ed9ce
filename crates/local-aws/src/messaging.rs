//! EventBridge, SQS and KMS, in memory or in a file, for development and tests: real HTTP, the services' limits and error
//! codes, and injected faults.
//!
//! Invariant: requests that the services would reject are rejected with the same code. `aws-behaviour.md` in this crate
//! lists the behaviour with its sources, and what is left out. The same calls in the same order have the same result:
//! nothing is random, except for the key and the ciphertexts of KMS. EventBridge has `PutEvents`, `DescribeEventBus`, and rules that
//! send events to queues. SQS has the operations that send, receive, delete and hide messages of a standard queue. KMS encrypts and
//! decrypts with one key. Tests read accepted entries and messages from the [`Bus`], which stores them until it is dropped,
//! including messages that were deleted from their queue.
//!
//! This file has the endpoint of the services. In reading order:
//! - [`Bus`]: the accepted entries and messages, and the recorded calls. `search`: some of them.
//! - [`faults`]: the injected faults.
//! - `put_events`, `deliveries`, `sqs` and `kms`: the operations and their limits, and which events reach which queues.

mod bus;
mod deliveries;
pub mod faults;
mod kms;
mod put_events;
mod search;
mod sqs;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::routing::post;

use self::deliveries::{delete_rule, describe_event_bus, put_rule, put_targets, remove_targets};
use self::put_events::put_events;
use crate::json_protocol::{self, CallError, CallResponse, JSON_1_0, JSON_1_1};

pub use bus::{Bus, Delivered, PutEventsCall, PutEventsResultEntry, WaitingMessage};
pub use daybook_event_pattern::EventPattern;
pub use deliveries::QueueTarget;
pub use faults::{CallFault, DeliveryFault, EntryFault, Faults, FunctionFault, TextFault};
pub use search::{BusPart, FoundMessage, MessageQuery};
pub use sqs::{QueueMessage, ReceivedMessage, TargetOutcome, TargetRecord};

pub use crate::server::Server;

/// Maximum bytes of a request: more than any request within the limits has, including escapes.
const MAX_BODY: usize = 16 * 1024 * 1024;

impl Bus {
    /// The endpoint of the services: `POST /`, where `X-Amz-Target` names the operation.
    pub fn router(&self) -> Router {
        Router::new().route("/", post(dispatch)).layer(DefaultBodyLimit::max(MAX_BODY)).with_state(self.clone())
    }
}

async fn dispatch(State(bus): State<Bus>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let target = json_protocol::target(&headers);
    let result = match target {
        "AWSEvents.PutEvents" => put_events(&bus, &body).await,
        "AWSEvents.DescribeEventBus" => describe_event_bus(&bus, &body).await,
        "AWSEvents.PutRule" => put_rule(&bus, &body),
        "AWSEvents.PutTargets" => put_targets(&bus, &body),
        "AWSEvents.RemoveTargets" => remove_targets(&bus, &body),
        "AWSEvents.DeleteRule" => delete_rule(&bus, &body),
        "AmazonSQS.CreateQueue" => sqs::create_queue(&bus, &body),
        "AmazonSQS.DeleteQueue" => sqs::delete_queue(&bus, &body),
        "AmazonSQS.SendMessage" => sqs::send_message(&bus, &body).await,
        "AmazonSQS.ReceiveMessage" => sqs::receive_message(&bus, &body).await,
        "AmazonSQS.DeleteMessage" => sqs::delete_message(&bus, &body).await,
        "AmazonSQS.DeleteMessageBatch" => sqs::delete_message_batch(&bus, &body).await,
        "AmazonSQS.ChangeMessageVisibility" => sqs::change_visibility(&bus, &body),
        "AmazonSQS.ChangeMessageVisibilityBatch" => sqs::change_visibility_batch(&bus, &body),
        "AmazonSQS.GetQueueAttributes" => sqs::get_queue_attributes(&bus, &body).await,
        "TrentService.Encrypt" => kms::encrypt(&bus, &body).await,
        "TrentService.Decrypt" => kms::decrypt(&bus, &body).await,
        _ => Err(CallError::bad_request("UnknownOperationException", "")),
    };
    let request_id = bus.state().new_id();
    if target.starts_with("AmazonSQS.") {
        respond(result.map_err(sqs::error), JSON_1_0, &request_id)
    } else {
        respond(result.map_err(|error| (error, None)), JSON_1_1, &request_id)
    }
}

/// The response of a call. An error may come with the value of `x-amzn-query-error`.
fn respond(
    result: Result<CallResponse, (CallError, Option<String>)>,
    content_type: &'static str,
    request_id: &str,
) -> Response<Body> {
    let (status, error_code, query_error, body) = match result {
        Ok(CallResponse::Json(json)) => (StatusCode::OK, None, None, json.to_string().into()),
        Ok(CallResponse::BrokenConnection) => (StatusCode::OK, None, None, json_protocol::broken_body()),
        Ok(CallResponse::Text(status, text)) => (status, None, None, text.into()),
        Err((CallError { status, code, message }, query_error)) => {
            let body = json_protocol::error_body(&code, &message).to_string();
            (status, Some(code), query_error, body.into())
        }
    };
    let mut response = json_protocol::response(status, content_type, body);
    let headers = [
        ("x-amzn-errortype", error_code.as_deref()),
        ("x-amzn-query-error", query_error.as_deref()),
        ("x-amzn-requestid", Some(request_id)),
    ];
    for (name, value) in headers {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
