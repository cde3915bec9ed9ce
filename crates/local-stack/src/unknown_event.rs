//! The explanation of a stored event that the code does not know. In a deployment, a newer release wrote it. On the local stack,
//! the code has changed since.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

/// The type of the problem.
const NEWER_RELEASE: &str = "urn:daybook:problem:newer-release";

const DETAIL: &str = "a stored event has a name or version that this code does not know; restore them in the code, or start the stack \
                      with an empty table (without the file of --data)";

/// Replaces the detail of the problem in a response.
pub(crate) async fn explain(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status() != StatusCode::SERVICE_UNAVAILABLE {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_GATEWAY.into_response() };
    let mut problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    if problem["type"] != NEWER_RELEASE {
        return Response::from_parts(parts, body.into());
    }
    eprintln!("daybook: {DETAIL}");
    problem["detail"] = DETAIL.into();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use axum::{Router, middleware};
    use tower::ServiceExt;

    use super::*;
    use crate::servers::problem;

    #[tokio::test]
    async fn unknown_event_is_explained_and_other_problems_stay_as_they_are() {
        for (kind, expected) in [(NEWER_RELEASE, DETAIL), ("urn:daybook:problem:unavailable", "try again")] {
            let failing = async move || problem(StatusCode::SERVICE_UNAVAILABLE, kind, "A title", "try again");
            let router = Router::new().fallback(failing).layer(middleware::from_fn(explain));
            let response = router.oneshot(Request::get("/todo/1").body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let problem: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&problem["type"], &problem["detail"]), (&kind.into(), &expected.into()));
        }
    }
}
