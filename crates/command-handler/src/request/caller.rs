//! The caller, as the authorizer of the API identified it.
//!
//! API Gateway passes on the authorizer's result in the request context. A request without one comes from an API without
//! an authorizer, such as the local stack.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use daybook_decider::{Caller, IamIdentity, PoolUser};
use lambda_http::RequestExt;
use lambda_http::request::RequestContext;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::Api;
use crate::gateway::Authorizer;

pub(crate) struct RequestCaller(pub(crate) Caller);

impl FromRequestParts<Api> for RequestCaller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let authorizer = parts.extensions.get::<Authorizer>();
        let caller = authorizer.map(|Authorizer(result)| identify(result, api.settings.jwt_issuer.as_deref()));
        Ok(Self(caller.unwrap_or_default()))
    }
}

/// The sender of a read; `None` for an operator, who can read the table anyway.
pub(crate) struct RequestReader(pub(crate) Option<Caller>);

impl FromRequestParts<Api> for RequestReader {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        if !api.asks_for_permission {
            return Ok(Self(None));
        }
        let RequestCaller(caller) = RequestCaller::from_request_parts(parts, api).await?;
        Ok(Self(Some(caller)))
    }
}

pub(crate) fn source_ip(parts: &Parts) -> Option<String> {
    match parts.request_context_ref()? {
        RequestContext::ApiGatewayV2(context) => context.http.source_ip.clone(),
        _ => None,
    }
}

/// The caller whom an authorizer identified. `issuer` is the one that the API is deployed with. Values of an unexpected
/// form are left out: a token can have any claims, and a Lambda authorizer returns what it likes.
fn identify(authorizer: &RawValue, issuer: Option<&str>) -> Caller {
    let kinds = members(authorizer);
    let of_kind = |kind| kinds.get(kind).filter(|kind| kind.get() != "null").map(|kind| members(kind));
    let (jwt, iam) = (of_kind("jwt"), of_kind("iam").as_ref().map(iam_identity));
    let (claims, mut scopes): (Map<_, _>, _) = match &jwt {
        Some(jwt) => (
            jwt.get("claims").map(|claims| token_claims(claims)).unwrap_or_default(),
            jwt.get("scopes").map(|scopes| texts(scopes)).unwrap_or_default(),
        ),
        None => {
            let value = |(name, value): (_, &RawValue)| Some((name, serde_json::from_str(value.get()).ok()?));
            (of_kind("lambda").into_iter().flatten().filter_map(value).collect(), Vec::new())
        }
    };
    let claimed: Vec<_> = ["scope", "scp"].into_iter().filter_map(|claim| claims.get(claim)).flat_map(list).collect();
    for scope in claimed.iter().flat_map(|claim| claim.split_ascii_whitespace()) {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    let principal = match (&iam, &jwt) {
        (Some(iam), _) => iam_principal(iam),
        (None, Some(_)) => jwt_principal(&claims, issuer),
        (None, None) => name(&claims, "principalId").or_else(|| name(&claims, "sub")),
    };
    let groups = ["cognito:groups", "groups"].iter().find_map(|claim| claims.get(*claim));
    let groups = groups.map(list).unwrap_or_default();
    Caller { is_authenticated: true, principal, groups, claims, scopes, iam, ..Caller::default() }
}

/// The id of a user of an identity pool, or of an IAM user or role. For an assumed role it is the id of the role,
/// without the session: each machine and each login has another session, and a retry may come from another one.
fn iam_principal(iam: &IamIdentity) -> Option<String> {
    if let Some(pool_user) = &iam.pool_user {
        return pool_user.identity_id.clone().filter(|id| !id.is_empty());
    }
    let user = iam.user_id.as_deref().map(|id| match id.split_once(':') {
        Some((role, _session)) if role.starts_with("AROA") => role,
        _ => id,
    });
    user.or(iam.user_arn.as_deref()).filter(|user| !user.is_empty()).map(str::to_owned)
}

/// The subject of a token. Issuers name subjects independently of each other, so the subject of another issuer than the
/// API's own is named together with the issuer, which cannot contain a `#`.
fn jwt_principal(claims: &Map<String, Value>, own: Option<&str>) -> Option<String> {
    let subject = name(claims, "sub")?;
    match (name(claims, "iss"), own) {
        (Some(issuer), Some(own)) if issuer != own => Some(format!("{issuer}#{subject}")),
        _ => Some(subject),
    }
}

fn iam_identity(iam: &BTreeMap<String, &RawValue>) -> IamIdentity {
    let text_of = |members: &BTreeMap<String, &RawValue>, name: &str| members.get(name).and_then(|value| text(value));
    let pool_user = iam.get("cognitoIdentity").filter(|user| user.get() != "null").map(|user| members(user));
    let pool_user = pool_user.map(|user| PoolUser {
        identity_id: text_of(&user, "identityId"),
        pool_id: text_of(&user, "identityPoolId"),
        methods: user.get("amr").map(|methods| texts(methods)).unwrap_or_default(),
    });
    let [user_arn, user_id, account_id] = ["userArn", "userId", "accountId"].map(|name| text_of(iam, name));
    IamIdentity { user_arn, user_id, account_id, pool_user }
}

/// The claims of a token as strings. A subject or an issuer that is neither a string nor a number is left out.
fn token_claims(claims: &RawValue) -> Map<String, Value> {
    let is_usable = |name: &str, value: &RawValue| {
        !matches!(name, "sub" | "iss") || value.get().starts_with(|first: char| first == '"' || first.is_ascii_digit())
    };
    let claims = members(claims).into_iter().filter(|(name, value)| is_usable(name, value));
    claims.filter_map(|(name, value)| Some((name, text(value)?.into()))).collect()
}

/// The unparsed members of an object; empty for another value.
fn members(json: &RawValue) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(json.get()).unwrap_or_default()
}

fn texts(list: &RawValue) -> Vec<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap_or_default();
    elements.into_iter().filter_map(text).collect()
}

/// A value as a string: its characters if it is a string, its JSON otherwise, and `None` for null.
fn text(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

/// A claim that can name somebody: a text that is not empty, or a whole number.
fn name(claims: &Map<String, Value>, claim: &str) -> Option<String> {
    match claims.get(claim)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    }
}

/// The texts of a claim that is a list. API Gateway passes on a token's list as `[a b]`; a Lambda authorizer can return a
/// list, or JSON in a text.
fn list(claim: &Value) -> Vec<String> {
    match claim {
        Value::Array(elements) => elements.iter().filter_map(|element| element.as_str().map(str::to_owned)).collect(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(list @ Value::Array(_)) => self::list(&list),
            _ => match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
                Some(words) => words.split_ascii_whitespace().map(str::to_owned).collect(),
                None => Some(text.clone()).filter(|text| !text.is_empty()).into_iter().collect(),
            },
        },
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn caller(authorizer: Value) -> Caller {
        identify(&to_raw_value(&authorizer).unwrap(), None)
    }

    #[test]
    fn groups_are_read_from_every_form_of_a_list() {
        for (claim, groups) in [
            (json!("[admins editors]"), &["admins", "editors"][..]),
            (json!("[admins]"), &["admins"]),
            (json!("[]"), &[]),
            (json!("admins"), &["admins"]),
            (json!("two words"), &["two words"]),
            (json!(""), &[]),
            (json!(r#"["admins", "two words", 1]"#), &["admins", "two words"]),
        ] {
            for name in ["cognito:groups", "groups"] {
                let caller = caller(json!({"jwt": {"claims": {name: claim}, "scopes": null}}));
                assert_eq!(caller.groups, groups, "{claim}");
            }
        }
        let caller = caller(json!({"lambda": {"groups": ["admins", "two words", {}]}}));
        assert!(caller.is_in_group("admins") && caller.is_in_group("two words") && caller.groups.len() == 2);
    }

    #[test]
    fn scopes_are_those_of_the_gateway_and_of_the_claims() {
        let of = |scopes: Value| caller(json!({"jwt": {"claims": {"scope": "a b"}, "scopes": scopes}}));
        assert_eq!(of(json!(["c", "a"])).scopes, ["c", "a", "b"]);
        assert_eq!(of(Value::Null).scopes, ["a", "b"]);
        assert!(of(Value::Null).has_scope("a") && !of(Value::Null).has_scope("a b"));
        assert_eq!(caller(json!({"lambda": {"scope": "a b", "scp": ["c"]}})).scopes, ["a", "b", "c"]);
    }

    #[test]
    fn caller_has_the_claims_and_the_iam_identity() {
        let token = caller(json!({"jwt": {"claims": {"sub": "ann", "department": "sales"}, "scopes": null}}));
        assert_eq!((token.claim("department"), token.claim("other")), (Some("sales"), None));
        let context = caller(json!({"lambda": {"tenant": {"id": 7}}}));
        assert_eq!((&context.claims["tenant"]["id"], context.claim("tenant")), (&json!(7), None));

        let pool_user = json!({"amr": ["unauthenticated"], "identityId": "r:1", "identityPoolId": "r:0"});
        let guest = caller(json!({"iam": {"userArn": "arn", "userId": "AROA:x", "cognitoIdentity": pool_user}}));
        assert_eq!(guest.principal.as_deref(), Some("r:1"));
        let pool_user = guest.iam.unwrap().pool_user.unwrap();
        assert_eq!((pool_user.pool_id.as_deref(), &pool_user.methods[0][..]), (Some("r:0"), "unauthenticated"));
        // A pool user without an id must not become the role that all users share.
        let nobody = caller(json!({"iam": {"userArn": "arn", "userId": "AROA:x", "cognitoIdentity": {"amr": []}}}));
        assert_eq!((nobody.principal.as_deref(), nobody.actor()), (None, None));
    }
}
