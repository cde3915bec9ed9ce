//! Requests as API Gateway sends them, with the context of an authorizer.

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use suite_tests::ApiResponse;

use crate::fixtures::call_api;
use crate::instance::Instance;

/// The context of an identity pool, all of whose users have one role.
pub(crate) fn cognito(identity_id: &str) -> Value {
    json!({"iam": {
        "accessKey": "ASIAIOSFODNN7EXAMPLE",
        "accountId": "123456789012",
        "callerId": "AROAIOSFODNN7POOL:CognitoIdentityCredentials",
        "cognitoIdentity": {
            "amr": ["authenticated", "cognito-idp.eu-central-1.amazonaws.com/eu-central-1_Example"],
            "identityId": identity_id,
            "identityPoolId": "eu-central-1:00000000-0000-0000-0000-000000000000",
        },
        "principalOrgId": null,
        "userArn": "arn:aws:sts::123456789012:assumed-role/pool-users/CognitoIdentityCredentials",
        "userId": "AROAIOSFODNN7POOL:CognitoIdentityCredentials",
    }})
}

/// The context of a request that is signed with IAM credentials.
pub(crate) fn iam(user_id: &str, user_arn: &str) -> Value {
    json!({"iam": {"userId": user_id, "userArn": user_arn, "cognitoIdentity": null, "accountId": "123456789012"}})
}

/// The context of a JWT with these claims.
pub(crate) fn jwt(claims: Value) -> Value {
    json!({"jwt": {"claims": claims, "scopes": null}})
}

/// The context that a Lambda authorizer returned.
pub(crate) fn lambda(context: Value) -> Value {
    json!({ "lambda": context })
}

/// A request in API Gateway's form.
#[derive(Clone, Debug)]
pub(crate) struct ApiEvent(Value);

impl ApiEvent {
    pub(crate) fn get(path: &str) -> Self {
        Self(json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"host": "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"},
            "requestContext": {
                "http": {"method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7"},
                "stage": "$default",
                "timeEpoch": 0,
            },
            "isBase64Encoded": false,
        }))
    }

    pub(crate) fn post(path: &str, body: &Value) -> Self {
        let mut event = Self::get(path).method("POST").header("content-type", "application/json");
        event.0["body"] = body.to_string().into();
        event
    }

    pub(crate) fn method(mut self, method: &str) -> Self {
        self.0["requestContext"]["http"]["method"] = method.into();
        self
    }

    pub(crate) fn query(mut self, query: &str) -> Self {
        self.0["rawQueryString"] = query.into();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.0["headers"][name] = value.into();
        self
    }

    /// With an `Idempotency-Key`.
    pub(crate) fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// With this context of an authorizer, which names the caller.
    pub(crate) fn of(mut self, authorizer: &Value) -> Self {
        self.0["requestContext"]["authorizer"] = authorizer.clone();
        self
    }

    pub(crate) fn is_head(&self) -> bool {
        self.0["requestContext"]["http"]["method"] == "HEAD"
    }

    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }

    /// The function's response.
    pub(crate) async fn send(&self, instance: &Instance) -> ApiResponse {
        self.send_to(&instance.router).await
    }

    pub(crate) async fn send_to(&self, router: &axum::Router) -> ApiResponse {
        send_text(router, &self.text()).await
    }
}

/// The function's response to an event, given as the JSON text that Lambda passes to it.
pub(crate) async fn send_text(router: &axum::Router, event: &str) -> ApiResponse {
    let response = call_api(router, event).await;
    let status = StatusCode::from_u16(u16::try_from(response["statusCode"].as_u64().unwrap()).unwrap()).unwrap();
    let headers: HeaderMap = response["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| {
            let value = HeaderValue::from_str(value.as_str().unwrap()).unwrap();
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
        })
        .collect();
    ApiResponse::new(status, headers, response["body"].as_str().unwrap_or_default().as_bytes())
}
