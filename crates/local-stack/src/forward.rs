//! Forwards HTTP requests to another process. Bodies are passed on as they arrive.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::uri::{Authority, Parts, Scheme};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use daybook_function_runtime::with_causes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::servers::problem;

/// How long a connection may take. The server runs on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The headers that concern one connection.
const OF_CONNECTION: [header::HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::EXPECT];

/// A router that forwards all requests to the server at this address.
pub(crate) fn router(server: SocketAddr) -> Router {
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
        Err(error) => no_response(&with_causes(&error)),
    }
}

fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    headers
}

fn no_response(error: &str) -> Response {
    let detail = format!("the process of the functions did not respond: {error}");
    problem(StatusCode::BAD_GATEWAY, "about:blank", "Bad gateway", &detail)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use axum::extract::DefaultBodyLimit;
    use axum::http::Method;
    use axum::routing::{get, post};
    use daybook_local_aws::server::Server;
    use futures_util::{StreamExt, stream};
    use tokio::sync::mpsc;
    use tower::ServiceExt;

    use super::*;

    fn forwarding_to(server: &Server) -> Router {
        router(server.url().trim_start_matches("http://").parse().unwrap())
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
