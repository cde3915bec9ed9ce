//! `GET /openapi.json`: the OpenAPI document of this API.

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use daybook_decider::Registry;
use daybook_projection::Projections;
use serde_json::{Value, json};

use super::endpoint::{Body, Endpoint, Success};
use crate::api::Api;
use crate::openapi::schemas::{Content, named};
use crate::problem;
use crate::request::{NoQuery, QueryParameters};
use crate::response::JSON;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/openapi.json",
    handler: |method| on(method, document),
    name: "Describe",
    operation_id: "describe",
    summary: "Read this document",
    description: "The OpenAPI 3.1 document, generated from the code of the API.",
    successes: &[Success {
        status: StatusCode::OK,
        description: "The document.",
        headers: &[],
        body: Some(Body::Service(|_, _| Content {
            schema: json!({"type": "object"}),
            examples: named([("beginning", Some(json!({"openapi": "3.1.1"})))]),
        })),
    }],
    problems: &[&[&problem::BAD_QUERY, &problem::UNAVAILABLE]],
    ..Endpoint::READ
};

/// The function that writes the document. The router passes it to this endpoint: an import would be circular, because
/// the document describes this endpoint too.
pub(crate) type WriteDocument = fn(&Registry, &Projections) -> Value;

async fn document(
    State(api): State<Api>,
    Extension(write): Extension<WriteDocument>,
    _: QueryParameters<NoQuery>,
) -> Response {
    let text = api.document.get_or_init(|| {
        let none = Projections::default();
        let projections = api.views.as_ref().map_or(&none, |views| &views.projections);
        let mut document = write(&api.registry, projections);
        if !api.settings.base_path.is_empty() {
            document["servers"][0]["url"] = api.settings.base_path.as_str().into();
        }
        document.to_string()
    });
    ([(header::CONTENT_TYPE, JSON)], text.clone()).into_response()
}
