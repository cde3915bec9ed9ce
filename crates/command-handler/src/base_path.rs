//! The path below which clients find the API: a named stage of API Gateway, or the key of an API mapping.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
use lambda_http::tower::ServiceExt;

/// The routes below a base path. A request may come with or without the base path; the paths in responses always have
/// it.
pub(crate) fn below(base_path: &str, routes: Router) -> Router {
    if base_path.is_empty() {
        return routes;
    }
    let (base, of_responses) = (Arc::<str>::from(base_path), Arc::<str>::from(base_path));
    let stripped = move |mut request: Request| {
        if let Some(uri) = without(&base, request.uri()) {
            *request.uri_mut() = uri;
        }
        request
    };
    let prefixed = move |mut response: Response| {
        prefix(response.headers_mut(), &of_responses);
        response
    };
    Router::new().fallback_service(routes.map_request(stripped).map_response(prefixed))
}

/// The URI without the base path, if it begins with it.
fn without(base_path: &str, uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(base_path).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = PathAndQuery::try_from(format!("/{}{query}", rest.trim_start_matches('/'))).ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// Adds the base path to the paths in `Location` and `Link`.
fn prefix(headers: &mut HeaderMap, base_path: &str) {
    for (name, begins) in [(header::LOCATION, ""), (header::LINK, "<")] {
        let Some(value) = headers.get_mut(name) else { continue };
        let path = value.to_str().ok().and_then(|text| text.strip_prefix(begins));
        let path = path.filter(|path| path.starts_with('/')).map(|path| format!("{begins}{base_path}{path}"));
        if let Some(path) = path.and_then(|path| HeaderValue::try_from(path).ok()) {
            *value = path;
        }
    }
}
