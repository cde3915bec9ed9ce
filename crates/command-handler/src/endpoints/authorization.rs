//! Checks of what callers may read. Commands are checked where they are decided.
//!
//! Where a function takes no caller, the reader is an operator, who can read the table anyway.

use daybook_decider::{Access, Authorization, Caller, Folded, Model};
use daybook_event_store::EventStore;
use daybook_table::AggregateKey;

use crate::api::Api;
use crate::problem::{self, Problem};

/// The result of the check. An operator may do everything.
pub(super) fn authorization<'a>(
    model: &dyn Model,
    caller: impl Into<Option<&'a Caller>>,
    access: Access<'_>,
    id: Option<&str>,
    folded: Option<&Folded>,
) -> Result<Authorization, Problem> {
    let Some(caller) = caller.into() else { return Ok(Authorization::Unrestricted) };
    model.authorize(caller, access, id, folded).map_err(problem::internal)
}

/// Returns `forbidden` if the caller may not do it, and otherwise the result of the check.
pub(super) fn require<'a>(
    model: &dyn Model,
    caller: impl Into<Option<&'a Caller>>,
    access: Access<'_>,
    id: Option<&str>,
    folded: Option<&Folded>,
) -> Result<Authorization, Problem> {
    let authorization = authorization(model, caller, access, id, folded)?;
    if authorization.is_allowed() { Ok(authorization) } else { Err(problem::forbidden(format_args!("{access:?}"))) }
}

/// Whether the caller may read an aggregate, and see the `meta` of its events. Who gets a part of the state may not
/// read the events.
///
/// The state is read only for a type that has rules about it, so that the events of other types need no further call and
/// can be read even where the state cannot.
pub(super) async fn reading(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    caller: Option<&Caller>,
) -> Result<(Authorization, bool), Problem> {
    let id = Some(key.id.as_str());
    let check = |access, folded| authorization(model, caller, access, id, folded);
    if [check(Access::Read, None)?, check(Access::ReadMeta, None)?] == [const { Authorization::Unrestricted }; 2] {
        return Ok((Authorization::Unrestricted, true));
    }
    let loaded = store.load(model, key).await?;
    if loaded.version() == 0 {
        return Err(Problem::of(&problem::NOT_FOUND));
    }
    let state = Some(&loaded.folded);
    Ok((check(Access::Read, state)?, check(Access::ReadMeta, state)?.is_allowed()))
}

/// Whether the caller may read the whole state of an aggregate. It is read only for a type that has rules about it.
pub(super) async fn may_read(api: &Api, key: &AggregateKey, caller: Option<&Caller>) -> Result<bool, Problem> {
    let Some(model) = api.registry.get(&key.aggregate_type) else { return Ok(caller.is_none()) };
    if authorization(model, caller, Access::Read, Some(&key.id), None)? == Authorization::Unrestricted {
        return Ok(true);
    }
    let loaded = api.store.load(model, key).await?;
    let read = authorization(model, caller, Access::Read, Some(&key.id), Some(&loaded.folded))?;
    Ok(loaded.version() > 0 && read.is_whole())
}
