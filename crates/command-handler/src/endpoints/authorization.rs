//! Checks of what callers may read. Commands are checked where they are decided.

use daybook_decider::{Access, Authorization, Caller, Folded, Model};
use daybook_event_store::EventStore;
use daybook_table::AggregateKey;

use crate::problem::{self, Problem};

/// Refuses what the caller may not do.
pub(super) fn require(
    model: &dyn Model,
    caller: &Caller,
    access: Access<'_>,
    folded: Option<&Folded>,
) -> Result<(), Problem> {
    if model.authorize(caller, access, folded).is_allowed() { Ok(()) } else { Err(problem::forbidden()) }
}

/// Refuses the events of an aggregate if the caller may not read them. Returns whether the caller may see their `meta`.
///
/// The state is read only for a type that has rules about it, so that the events of other types need no further call and
/// can be read even where the state cannot.
pub(super) async fn require_events(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    caller: &Caller,
) -> Result<bool, Problem> {
    let is_unrestricted = |access| model.authorize(caller, access, None) == Authorization::Unrestricted;
    if is_unrestricted(Access::Read) && is_unrestricted(Access::ReadMeta) {
        return Ok(true);
    }
    let loaded = store.load(model, key).await?;
    if loaded.version() == 0 {
        return Err(problem::not_found());
    }
    let state = Some(&loaded.folded);
    require(model, caller, Access::Read, state)?;
    Ok(model.authorize(caller, Access::ReadMeta, state).is_allowed())
}
