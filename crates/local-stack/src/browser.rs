//! A browser at the root of the API.

use axum::extract::Request;
use axum::http::Method;
use axum::http::header::ACCEPT;
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

/// Leads a browser from `/` to the console. The API has nothing there, and programs get this response as from API Gateway: only a
/// browser accepts HTML.
pub(crate) async fn lead_to_console(request: Request, next: Next) -> Response {
    let accepted = request.headers().get(ACCEPT).and_then(|accepted| accepted.to_str().ok());
    let is_browser = accepted.is_some_and(|accepted| accepted.contains("text/html"));
    if is_browser && request.method() == Method::GET && request.uri().path() == "/" {
        return Redirect::to("/_console").into_response();
    }
    next.run(request).await
}
