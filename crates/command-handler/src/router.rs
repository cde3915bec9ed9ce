//! The router: the same in Lambda, in the local stack and in tests.

use std::collections::HashMap;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use lambda_http::tower::ServiceExt;

use crate::api::Api;
use crate::base_path;
use crate::canary;
use crate::endpoints;
use crate::endpoints::document::WriteDocument;
use crate::endpoints::endpoint::AGGREGATE_PATH;
use crate::openapi;
use crate::problem::{self, Problem};
use crate::request::body::MAX_BODY;
use crate::request::{PathParameters, bounds};

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
    base_path::below(&base_path, routes)
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
    if let Some(Err(unknown_view)) = names.get("view").map(|name| api.view(name)) {
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
