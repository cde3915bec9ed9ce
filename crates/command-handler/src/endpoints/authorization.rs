//! Checks of what callers may read. Commands are checked where they are decided.
//!
//! Where a function takes no caller, the reader is an operator, who can read the table anyway.

use daybook_decider::{Access, Authorization, Caller, Folded, Model};
use daybook_event_store::EventStore;
use daybook_table::AggregateKey;

use crate::api::Api;
use crate::problem::{self, Problem};

/// Returns `forbidden` if the caller may not do it.
pub(super) fn require<'a>(
    model: &dyn Model,
    caller: impl Into<Option<&'a Caller>>,
    access: Access<'_>,
    folded: Option<&Folded>,
) -> Result<(), Problem> {
    if is_allowed(model, caller, access, folded)? { Ok(()) } else { Err(problem::forbidden()) }
}

pub(super) fn is_allowed<'a>(
    model: &dyn Model,
    caller: impl Into<Option<&'a Caller>>,
    access: Access<'_>,
    folded: Option<&Folded>,
) -> Result<bool, Problem> {
    let Some(caller) = caller.into() else { return Ok(true) };
    Ok(model.authorize(caller, access, folded).map_err(problem::internal)?.is_allowed())
}

/// Returns `forbidden` if the caller may not read the events of an aggregate, and otherwise whether the caller may see
/// their `meta`.
///
/// The state is read only for a type that has rules about it, so that the events of other types need no further call and
/// can be read even where the state cannot.
pub(super) async fn require_events(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    caller: Option<&Caller>,
) -> Result<bool, Problem> {
    let Some(caller) = caller else { return Ok(true) };
    let without_state = |access| model.authorize(caller, access, None).map_err(problem::internal);
    if [without_state(Access::Read)?, without_state(Access::ReadMeta)?] == [Authorization::Unrestricted; 2] {
        return Ok(true);
    }
    let loaded = store.load(model, key).await?;
    if loaded.version() == 0 {
        return Err(problem::not_found());
    }
    let state = Some(&loaded.folded);
    require(model, caller, Access::Read, state)?;
    is_allowed(model, caller, Access::ReadMeta, state)
}

/// Whether the caller may read an aggregate. Its state is read only for a type that has rules about it.
pub(super) async fn may_read(api: &Api, key: &AggregateKey, caller: Option<&Caller>) -> Result<bool, Problem> {
    let Some(caller) = caller else { return Ok(true) };
    let Some(model) = api.registry.get(&key.aggregate_type) else { return Ok(false) };
    if model.authorize(caller, Access::Read, None).map_err(problem::internal)? == Authorization::Unrestricted {
        return Ok(true);
    }
    let loaded = api.store.load(model, key).await?;
    Ok(loaded.version() > 0 && is_allowed(model, caller, Access::Read, Some(&loaded.folded))?)
}
