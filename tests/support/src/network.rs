//! The network of the AWS clients, without sockets: a request is a function call, and a lost request an error.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use daybook_function_runtime::SdkConfig;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

/// A call that was sent.
#[derive(Clone, Debug)]
pub struct AwsCall {
    /// `TransactWriteItems`, `PutEvents`, …
    pub operation: String,
    /// JSON.
    pub body: String,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// The connection broke.
#[derive(Debug)]
pub struct ConnectionLost;

/// The service that receives the calls.
pub trait Service: Debug + Send + Sync + 'static {
    /// Serves a call.
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>>;
}

/// The configuration of clients whose calls all go to `service`.
pub fn config(service: impl Service) -> SdkConfig {
    let connector = SharedHttpConnector::new(InProcess(Arc::new(service)));
    let client = http_client_fn(move |_, _| connector.clone());
    let config = daybook_function_runtime::aws_config_at("http://in.process").into_builder();
    config.http_client(client).time_source(TokioTime(Instant::now())).build()
}

/// The time of a client by the clock of its runtime, which may be virtual: the client gives up a call that takes too long.
#[derive(Debug)]
struct TokioTime(Instant);

impl TimeSource for TokioTime {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.0.elapsed()
    }
}

#[derive(Debug)]
struct InProcess(Arc<dyn Service>);

impl HttpConnector for InProcess {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body = request.body().bytes().unwrap_or_default();
        let call = AwsCall { operation, body: String::from_utf8(body.to_vec()).expect("JSON is UTF-8") };
        let reply = self.0.serve(call);
        HttpConnectorFuture::new(async move {
            let Reply { status, body } =
                reply.await.map_err(|ConnectionLost| ConnectorError::io("the connection broke".into()))?;
            let status = StatusCode::try_from(status).expect("a status has three digits");
            Ok(HttpResponse::new(status, SdkBody::from(body)))
        })
    }
}
