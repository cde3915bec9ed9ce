//! The caller, as the authorizer of the API names it.

use axum::http::request::Parts;
use lambda_http::RequestExt;
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequestContext;
use lambda_http::request::RequestContext;

/// The actor that events are recorded with: the ARN of an IAM caller, or the `sub` of a JWT.
pub(crate) fn actor(parts: &Parts) -> Option<String> {
    let authorizer = gateway_context(parts)?.authorizer.as_ref()?;
    let iam = authorizer.iam.as_ref().and_then(|iam| iam.user_arn.clone());
    iam.or_else(|| jwt_subject(parts))
}

/// The principal that idempotency keys belong to. Of an assumed role the role, and not the session: that is another one
/// on each machine and after each login, and a retry may come from there.
pub(crate) fn principal(parts: &Parts) -> Option<String> {
    let authorizer = gateway_context(parts)?.authorizer.as_ref()?;
    let iam = authorizer.iam.as_ref().and_then(|iam| {
        let user = iam.user_id.as_deref().map(|id| match id.split_once(':') {
            Some((role, _session)) if role.starts_with("AROA") => role,
            _ => id,
        });
        user.or(iam.user_arn.as_deref()).map(str::to_owned)
    });
    iam.or_else(|| jwt_subject(parts))
}

/// The address that the request came from.
pub(crate) fn source_ip(parts: &Parts) -> Option<String> {
    gateway_context(parts)?.http.source_ip.clone()
}

fn jwt_subject(parts: &Parts) -> Option<String> {
    gateway_context(parts)?.authorizer.as_ref()?.jwt.as_ref()?.claims.get("sub").cloned()
}

fn gateway_context(parts: &Parts) -> Option<&ApiGatewayV2httpRequestContext> {
    match parts.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => Some(context),
        _ => None,
    }
}
