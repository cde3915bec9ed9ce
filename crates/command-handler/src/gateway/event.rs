//! Reads the event of an invocation, even if its headers or the authorizer's result have an unexpected form.
//!
//! `lambda_http` expects every claim of a token to be a string. An event with another claim would fail the invocation,
//! so such a claim is first converted into a string.

use std::collections::BTreeMap;

use lambda_http::request::LambdaRequest;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::headers::with_any_headers;

/// A request of API Gateway.
#[derive(Debug)]
pub struct ApiEvent(pub LambdaRequest);

impl<'de> Deserialize<'de> for ApiEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let event = Box::<RawValue>::deserialize(deserializer)?;
        // `LambdaRequest` itself would read the text twice, to find out which kind of event it is.
        let read_plain = |text: &str| serde_json::from_str(text).map(LambdaRequest::ApiGatewayV2);
        let read = |text: &str| read_plain(text).or_else(|_| with_any_headers(text, read_plain));
        let request = read(event.get())
            .or_else(|error| read(&with_authorizer(event.get(), plain).ok_or(error)?))
            // Values that nest too deeply are still unreadable. Then the request is read without the authorizer's
            // values, so its caller has no name.
            .or_else(|error| read(&with_authorizer(event.get(), |_| json!({})).ok_or(error)?));
        request.map(Self).map_err(D::Error::custom)
    }
}

/// The text of an event, with another result of the authorizer.
fn with_authorizer(event: &str, replace: fn(&RawValue) -> Value) -> Option<String> {
    let mut event = members(event);
    let mut context = members(event.get("requestContext")?.get());
    let authorizer = to_raw(&replace(context.get("authorizer")?))?;
    context.insert("authorizer".to_owned(), &authorizer);
    let context = to_raw(&context)?;
    event.insert("requestContext".to_owned(), &context);
    serde_json::to_string(&event).ok()
}

/// The result of an authorizer in the form that `lambda_http` reads, without values that do not fit this form.
fn plain(authorizer: &RawValue) -> Value {
    let kinds = members(authorizer.get());
    let members_of = |kind: &str| kinds.get(kind).map(|kind| members(kind.get()));
    let mut plain = Map::new();
    if let Some(jwt) = members_of("jwt") {
        let claims = jwt.get("claims").map(|claims| texts_by_name(claims)).unwrap_or_default();
        plain.insert(
            "jwt".to_owned(),
            json!({"claims": claims, "scopes": jwt.get("scopes").map(|scopes| texts(scopes))}),
        );
    }
    if let Some(mut iam) = members_of("iam") {
        let pool_user = iam.remove("cognitoIdentity").filter(|pool_user| pool_user.get() != "null");
        let mut identity =
            iam.into_iter().filter_map(|(name, value)| Some((name, text(value)?.into()))).collect::<Map<_, _>>();
        if let Some(pool_user) = pool_user.map(|pool_user| members(pool_user.get())) {
            let text_of = |name: &str| pool_user.get(name).and_then(|value| text(value));
            identity.insert(
                "cognitoIdentity".to_owned(),
                json!({
                    "amr": pool_user.get("amr").map(|methods| texts(methods)).unwrap_or_default(),
                    "identityId": text_of("identityId"),
                    "identityPoolId": text_of("identityPoolId"),
                }),
            );
        }
        plain.insert("iam".to_owned(), identity.into());
    }
    if let Some(context) = members_of("lambda") {
        let value = |(name, value): (String, &RawValue)| Some((name, serde_json::from_str(value.get()).ok()?));
        plain.insert("lambda".to_owned(), context.into_iter().filter_map(value).collect::<Map<_, _>>().into());
    }
    plain.into()
}

/// The claims as strings. A subject or an issuer that is neither a string nor a number is left out.
fn texts_by_name(claims: &RawValue) -> BTreeMap<String, String> {
    let is_usable = |name: &str, value: &RawValue| {
        !matches!(name, "sub" | "iss") || value.get().starts_with(|first: char| first == '"' || first.is_ascii_digit())
    };
    let claims = members(claims.get()).into_iter().filter(|(name, value)| is_usable(name, value));
    claims.filter_map(|(name, value)| Some((name, text(value)?))).collect()
}

/// A value as a string: its characters if it is a string, its JSON otherwise, and `None` for null.
fn text(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

fn texts(list: &RawValue) -> Vec<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
    elements.into_iter().filter_map(text).collect()
}

/// The unparsed members of an object; empty for another value.
fn members(json: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(json).unwrap_or_default()
}

fn to_raw(value: &impl Serialize) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(value).ok()
}
