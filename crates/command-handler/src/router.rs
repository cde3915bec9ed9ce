//! The router: the same in Lambda, in the local stack and in tests, with or without a path below which clients find the API.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use lambda_http::tower::ServiceExt;

use crate::api::Api;
use crate::endpoints::document::WriteDocument;
use crate::endpoints::endpoint::AGGREGATE_PATH;
use crate::problem::{self, Problem};
use crate::request::body::MAX_BODY;
use crate::request::{PathParameters, bounds};
use crate::{canary, endpoints, openapi};

/// The routes of all endpoints, within the bounds of every request. Requests of a deployment's hook get the same routes
/// over the canary.
pub fn router(api: Api) -> Router {
    let routes = ServiceExt::<Request>::map_response(routes(api.clone()), without_other_allow);
    Router::new().fallback_service(routes).layer(from_fn_with_state(api, divert_to_canary))
}

/// Responds to a request of a deployment's hook. There are a few of them in each deployment, so the routes over the canary
/// are made for each.
async fn divert_to_canary(State(api): State<Api>, request: Request, next: Next) -> Response {
    if !canary::is_from_hook(&request) {
        return next.run(request).await;
    }
    match canary::api(&api) {
        Ok(api) => routes(api).oneshot(request).await.into_response(),
        Err(error) => problem::internal(error).into_response(),
    }
}

fn routes(api: Api) -> Router {
    let routes = endpoints::served(api.views.is_some())
        .fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.route()));
    let base_path = api.settings.base_path.clone();
    let routes = routes
        .fallback(async |uri: Uri| problem::unknown_route(uri.path()))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(Extension(openapi::document as WriteDocument))
        .layer(from_fn(bounds::enforce))
        .with_state(api);
    below(&base_path, routes)
}

/// The response to a method that the resource does not support. The router knows the methods of a path, but not those
/// of an aggregate, which depend on its type.
async fn method_not_allowed(
    State(api): State<Api>,
    route: MatchedPath,
    names: Result<PathParameters<HashMap<String, String>>, Problem>,
    method: Method,
) -> Problem {
    let mut names = names.map(|PathParameters(names)| names).unwrap_or_default();
    if let Some(Err(unknown_view)) = names.get("view").map(|name| api.require_view(name)) {
        return unknown_view;
    }
    let type_name = names.remove("type");
    match type_name.map(|type_name| api.model(&type_name)).transpose() {
        // A resource that does not exist supports no other method either.
        Err(unknown_type) => unknown_type,
        Ok(model) => problem::method_not_allowed(method.as_str(), model.filter(|_| route.as_str() == AGGREGATE_PATH)),
    }
}

/// Removes `Allow` from responses other than 405. Axum adds it to every response of [`method_not_allowed`], but a
/// resource that does not exist supports no method.
fn without_other_allow(mut response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().remove(header::ALLOW);
    }
    response
}

/// The routes below a base path. A request may come with or without the base path; the paths in responses always have
/// it.
fn below(base_path: &str, routes: Router) -> Router {
    if base_path.is_empty() {
        return routes;
    }
    let (base, of_responses) = (Arc::<str>::from(base_path), Arc::<str>::from(base_path));
    let stripped = move |mut request: Request| {
        if let Some(uri) = without_base_path(&base, request.uri()) {
            *request.uri_mut() = uri;
        }
        request
    };
    let prefixed = move |mut response: Response| {
        add_base_path(&of_responses, response.headers_mut());
        response
    };
    Router::new().fallback_service(routes.map_request(stripped).map_response(prefixed))
}

fn without_base_path(base_path: &str, uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(base_path).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = PathAndQuery::try_from(format!("/{}{query}", rest.trim_start_matches('/'))).ok()?;
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// Adds the base path to the paths in `Location` and `Link`.
fn add_base_path(base_path: &str, headers: &mut HeaderMap) {
    for (name, begins) in [(header::LOCATION, ""), (header::LINK, "<")] {
        let Some(value) = headers.get_mut(name) else { continue };
        let path = value.to_str().ok().and_then(|text| text.strip_prefix(begins));
        let path = path.filter(|path| path.starts_with('/')).map(|path| format!("{begins}{base_path}{path}"));
        if let Some(path) = path.and_then(|path| HeaderValue::try_from(path).ok()) {
            *value = path;
        }
    }
}
