//! What the HTTP servers of the local stack share, and how they forward requests to another process: bodies are passed on as they
//! arrive.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::uri::{Authority, Parts, Scheme};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daybook_function_runtime::with_causes;
use daybook_local_aws::dynamodb::StartError;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::error::DevError;

/// API Gateway's limit for a request, in bytes.
const MAX_REQUEST: usize = 10 * 1024 * 1024;

/// Binds a port of a host; `option` changes the port.
pub(crate) async fn listen(host: IpAddr, port: u16, option: &'static str) -> Result<TcpListener, DevError> {
    let failed = |source| DevError::Listen { address: format!("{host}:{port}"), option, source };
    TcpListener::bind((host, port)).await.map_err(failed)
}

/// The address of a listener for a client on this machine.
pub(crate) fn address_here(listener: &TcpListener) -> Result<SocketAddr, DevError> {
    let mut address = listener.local_addr().map_err(StartError::from)?;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Ok(address)
}

/// Reads a request to its end before the response is sent, as API Gateway does. After an earlier response, the
/// connection would be closed, and the client's next request on it would fail.
pub(crate) async fn read_whole(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match to_bytes(body, MAX_REQUEST).await {
        Ok(body) => next.run(Request::from_parts(parts, body.into())).await,
        Err(_) => (StatusCode::PAYLOAD_TOO_LARGE, [(CONNECTION, "close")]).into_response(),
    }
}

pub(crate) type CallFailure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) async fn call(router: Router, method: Method, path: &str, body: String) -> Result<String, CallFailure> {
    let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
    let response = router.oneshot(request.body(Body::from(body))?).await.unwrap_or_else(|never| match never {});
    let is_success = response.status().is_success();
    let text = String::from_utf8(to_bytes(response.into_body(), usize::MAX).await?.into())?;
    if is_success { Ok(text) } else { Err(text.into()) }
}

/// An error response of the stack itself. `kind` is its problem type.
pub(crate) fn problem(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response {
    let problem = json!({"type": kind, "title": title, "status": status.as_u16(), "detail": detail});
    (status, [(CONTENT_TYPE, "application/problem+json")], problem.to_string()).into_response()
}

/// How long a connection may take. The server runs on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

const OF_CONNECTION: [header::HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::EXPECT];

pub(crate) fn forwarding_to(server: SocketAddr) -> Router {
    let server = Authority::try_from(server.to_string()).expect("an address and a port are an authority");
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    Router::new().fallback(async move |request: Request| forward(&client, server, request).await)
}

async fn forward(client: &Client<HttpConnector, Body>, server: Authority, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut uri = Parts::default();
    (uri.scheme, uri.authority) = (Some(Scheme::HTTP), Some(server));
    uri.path_and_query = parts.uri.path_and_query().cloned();
    let Ok(uri) = Uri::from_parts(uri) else { return StatusCode::BAD_REQUEST.into_response() };
    let mut forwarded = Request::new(body);
    (*forwarded.method_mut(), *forwarded.uri_mut()) = (parts.method, uri);
    *forwarded.headers_mut() = without_connection(parts.headers);
    match client.request(forwarded).await {
        Ok(response) => {
            let (mut parts, body) = response.into_parts();
            parts.headers = without_connection(parts.headers);
            Response::from_parts(parts, Body::new(body))
        }
        Err(error) => {
            let detail = format!("the process of the functions did not respond: {}", with_causes(&error));
            problem(StatusCode::BAD_GATEWAY, "about:blank", "Bad gateway", &detail)
        }
    }
}

fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use axum::extract::DefaultBodyLimit;
    use axum::routing::{get, post};
    use daybook_local_aws::server::Server;
    use futures_util::{StreamExt, stream};
    use tokio::sync::mpsc;

    use super::*;

    fn forwarding_to(server: &Server) -> Router {
        super::forwarding_to(server.url().trim_start_matches("http://").parse().unwrap())
    }

    async fn send(router: &Router, method: Method, path: &str, body: Body) -> Response {
        router.clone().oneshot(Request::builder().method(method).uri(path).body(body).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn forwarded_response_arrives_part_by_part_while_the_server_still_writes_it() {
        let (parts, received) = mpsc::unbounded_channel::<&str>();
        let received = Arc::new(Mutex::new(Some(received)));
        let events = async move || {
            let received = received.lock().unwrap().take().unwrap();
            let parts = stream::unfold(received, |mut parts| async move { Some((parts.recv().await?, parts)) });
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts.map(Ok::<_, Infallible>)))
        };
        let server = Server::start(Router::new().route("/events", get(events))).await.unwrap();
        let response = send(&forwarding_to(&server), Method::GET, "/events", Body::empty()).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        let mut body = response.into_body().into_data_stream();
        for part in ["data: 1\n\n", "data: 2\n\n"] {
            parts.send(part).unwrap();
            assert_eq!(body.next().await.unwrap().unwrap(), part);
        }
        drop(parts);
        assert!(body.next().await.is_none());
    }

    #[tokio::test]
    async fn forwarded_request_keeps_its_method_target_headers_and_a_large_body() {
        let echo = async |request: Request| {
            let (parts, body) = request.into_parts();
            let target = format!("{} {}", parts.method, parts.uri);
            ([("x-target", target), ("x-host", parts.headers["host"].to_str().unwrap().to_owned())], body)
        };
        let routes = Router::new().route("/echo/{*rest}", post(echo)).layer(DefaultBodyLimit::disable());
        let server = Server::start(routes).await.unwrap();
        let large = "x".repeat(9 * 1024 * 1024);
        let request =
            Request::post("/echo/a%2Fb?q=%20&r").header("host", "localhost:3000").header("expect", "100-continue");
        let response = forwarding_to(&server).oneshot(request.body(Body::from(large.clone())).unwrap()).await.unwrap();
        assert_eq!(response.headers()["x-target"], "POST /echo/a%2Fb?q=%20&r");
        assert_eq!(response.headers()["x-host"], "localhost:3000");
        assert!(axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap() == large);
    }

    #[tokio::test]
    async fn request_to_a_server_that_has_ended_is_a_bad_gateway() {
        let server = Server::start(Router::new()).await.unwrap();
        let forwarding = forwarding_to(&server);
        server.stop(Duration::from_secs(1)).await;
        let response = send(&forwarding, Method::GET, "/", Body::empty()).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    }
}
