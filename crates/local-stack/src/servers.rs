//! The parts that the HTTP servers of the local stack share.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daybook_local_aws::dynamodb::StartError;
use serde_json::json;
use tokio::net::TcpListener;

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

/// An error response of the stack itself. `kind` is its problem type.
pub(crate) fn problem(status: StatusCode, kind: &str, title: &str, detail: &str) -> Response {
    let problem = json!({"type": kind, "title": title, "status": status.as_u16(), "detail": detail});
    (status, [(CONTENT_TYPE, "application/problem+json")], problem.to_string()).into_response()
}
