//! The read models of the API.

use daybook_decider::{Caller, Json};
use daybook_projection::{ProjectionModel, Projections, ViewAccess};
use daybook_view_store::{View, ViewStore};

use crate::problem::{self, Problem};

/// The projections, and the store of their rows.
pub(crate) struct Views {
    pub(crate) projections: Projections,
    pub(crate) store: ViewStore,
}

/// The view that a path names.
#[derive(Clone, Copy)]
pub(crate) struct NamedView<'a> {
    pub(crate) model: &'a dyn ProjectionModel,
    pub(crate) store: &'a ViewStore,
}

impl Views {
    /// The view of that name.
    pub(crate) fn find(&self, name: &str) -> Result<NamedView<'_>, Problem> {
        let model = self.projections.get(name).ok_or_else(|| problem::unknown_view(name, &self.projections))?;
        Ok(NamedView { model, store: &self.store })
    }
}

impl NamedView<'_> {
    /// The rows that readers get.
    pub(crate) fn rows(self) -> View {
        View::new(self.model.name(), self.model.version())
    }

    /// Returns `forbidden` if the caller may not do it.
    pub(crate) fn require(self, caller: &Caller, access: ViewAccess<'_>, row: Option<&Json>) -> Result<(), Problem> {
        let authorization = self.model.authorize(caller, access, row).map_err(problem::internal)?;
        if authorization.is_allowed() { Ok(()) } else { Err(problem::forbidden()) }
    }

    /// The row that its parts show together.
    pub(crate) fn merge(self, parts: &[Json]) -> Result<Option<Json>, Problem> {
        self.model.merge(parts).map_err(problem::internal)
    }
}
