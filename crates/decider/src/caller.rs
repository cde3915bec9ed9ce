//! The sender of a request, as the authorizer of the API identified it.

use serde_json::{Map, Value};

/// The sender of a request. The code that receives requests fills it in from the result of the authorizer, which is not
/// verified again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Caller {
    /// Whether an authorizer admitted the request. An API without one, such as the local stack, cannot distinguish its
    /// callers.
    pub is_authenticated: bool,
    /// The unique name of the caller, which is the same in every session. `None` when the authorizer admitted the
    /// request without naming the caller.
    pub principal: Option<String>,
    /// The claims of the caller's token, or the context that a Lambda authorizer returned. API Gateway passes on every
    /// claim of a token as a text.
    pub claims: Map<String, Value>,
    /// The scopes of the caller's token.
    pub scopes: Vec<String>,
    /// The groups that the caller is a member of.
    pub groups: Vec<String>,
    /// The identity of a caller who signs requests with IAM credentials.
    pub iam: Option<IamIdentity>,
    /// Whether it is the system itself, not the sender of a request.
    pub system: bool,
}

/// The identity behind IAM credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IamIdentity {
    /// The ARN of the user, or of the role's session.
    pub user_arn: Option<String>,
    /// The unique id of the user, or that of the role with the name of the session.
    pub user_id: Option<String>,
    /// The account.
    pub account_id: Option<String>,
    /// The user of an identity pool. All users of a pool may share one role, so only this field distinguishes them.
    pub pool_user: Option<PoolUser>,
}

/// A user of an identity pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUser {
    /// The id of the user, unique among all pools.
    pub identity_id: Option<String>,
    /// The pool.
    pub pool_id: Option<String>,
    /// How the user signed in to the pool: `authenticated` or `unauthenticated`, and the providers.
    pub methods: Vec<String>,
}

impl Caller {
    /// The sender of every request to an API without an authorizer.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// An authenticated caller of that name, without claims, scopes and groups.
    pub fn named(principal: impl Into<String>) -> Self {
        Self { is_authenticated: true, principal: Some(principal.into()), ..Self::default() }
    }

    /// The caller as a member of this group, too.
    #[must_use]
    pub fn in_group(mut self, group: impl Into<String>) -> Self {
        self.groups.push(group.into());
        self
    }

    /// The system itself, with the principal `daybook`: the sender of the commands of [`Deadline`](crate::Deadline)s that are
    /// due.
    pub fn system() -> Self {
        Self { system: true, ..Self::named("daybook") }
    }

    /// Whether it is [`system`](Self::system). The sender of a request never is, whatever its principal.
    pub fn is_system(&self) -> bool {
        self.system
    }

    /// The name that events are recorded with. For a caller with IAM credentials it is the ARN, which also names the
    /// session of a role; for a user of an identity pool and for every other caller it is the principal.
    pub fn actor(&self) -> Option<&str> {
        let signed = self.iam.as_ref().filter(|iam| iam.pool_user.is_none());
        signed.and_then(|iam| iam.user_arn.as_deref()).or(self.principal.as_deref())
    }

    /// The value of a claim, if it is a text.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.get(name)?.as_str()
    }

    /// Whether the caller is a member of the group.
    pub fn is_in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// Whether the caller's token has the scope.
    pub fn has_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|known| known == scope)
    }
}
