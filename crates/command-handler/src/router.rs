//! The service: the same in Lambda, on one machine and under test.

use axum::extract::{DefaultBodyLimit, MatchedPath, State};
use axum::http::{Method, Uri};
use axum::middleware::from_fn;
use axum::{Extension, Router};

use crate::api::Api;
use crate::endpoints::ENDPOINTS;
use crate::endpoints::document::WriteDocument;
use crate::endpoints::endpoint::AGGREGATE_PATH;
use crate::openapi;
use crate::problem::{self, Problem};
use crate::request::body::MAX_BODY;
use crate::request::{PathParameters, bounds};

/// The routes of all endpoints, within the bounds of every request.
pub fn router(api: Api) -> Router {
    let routes = ENDPOINTS.iter().fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.route()));
    routes
        .fallback(async |uri: Uri| problem::unknown_route(uri.path()))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(Extension(openapi::document as WriteDocument))
        .layer(from_fn(bounds::enforce))
        .with_state(api)
}

/// The router knows which methods a path takes, but not which an aggregate of some type does.
async fn method_not_allowed(
    State(api): State<Api>,
    route: MatchedPath,
    names: Result<PathParameters<(String, String)>, Problem>,
    method: Method,
) -> Problem {
    let aggregate = names.ok().filter(|_| route.as_str() == AGGREGATE_PATH);
    let model = aggregate.and_then(|PathParameters((type_name, _))| api.registry.get(&type_name));
    problem::method_not_allowed(method.as_str(), model)
}
