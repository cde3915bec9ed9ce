//! What the endpoints share: the aggregates and the read models.

use std::sync::{Arc, OnceLock};

use daybook_decider::{Caller, Json, Model, Registry};
use daybook_event_store::EventStore;
use daybook_projection::{ProjectionModel, Projections, ViewAccess};
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use daybook_view_store::{View, ViewStore};
use tracing::Span;

use crate::problem::{self, Problem};
use crate::request::AGGREGATE_TYPE;
use crate::settings::ApiSettings;
use crate::signals;

#[derive(Clone)]
pub struct Api {
    pub(crate) registry: Arc<Registry>,
    pub(crate) store: Arc<EventStore>,
    pub(crate) settings: ApiSettings,
    pub(crate) views: Option<Arc<Views>>,
    /// Whether a read needs a permission of the aggregate type. Only an operator, who can read the table, needs none.
    pub(crate) asks_for_permission: bool,
    /// The text of the OpenAPI document. The first request for it writes it, so that it does not slow down cold starts.
    pub(crate) document: Arc<OnceLock<String>>,
}

impl Api {
    pub fn new(registry: Registry, store: EventStore, settings: ApiSettings) -> Self {
        signals::describe();
        Self {
            registry: Arc::new(registry),
            store: Arc::new(store),
            settings,
            views: None,
            asks_for_permission: true,
            document: Arc::default(),
        }
    }

    pub fn with_views(self, projections: Projections, store: ViewStore) -> Self {
        let store = store.with_sealing(self.store.sealing());
        Self { views: Some(Arc::new(Views { projections, store })), ..self }
    }

    pub(crate) fn model(&self, type_name: &str) -> Result<&dyn Model, Problem> {
        let model = self.registry.get(type_name).ok_or_else(|| problem::unknown_type(type_name, &self.registry))?;
        Span::current().record(AGGREGATE_TYPE, model.type_name());
        Ok(model)
    }

    /// The view of that name. With several versions, its pointer decides which one is read. Each request reads the
    /// pointer anew, so that no response is older than one before it.
    pub(crate) async fn view(&self, name: &str) -> Result<NamedView<'_>, Problem> {
        let Views { projections, store } = self.views(name)?;
        let pointer = match projections.versions(name).len() {
            0 | 1 => None,
            _ => store.pointer(name).await?.map(|pointer| pointer.version),
        };
        let model = projections.read_version(name, pointer);
        let model = model.ok_or_else(|| problem::unknown_view(name, projections))?;
        if pointer.is_some_and(|pointer| pointer != model.version()) {
            tracing::warn!(view = name, pointer, read = model.version(), "the pointer names another version");
        }
        Ok(NamedView { model, store })
    }

    pub(crate) fn require_view(&self, name: &str) -> Result<(), Problem> {
        let Views { projections, .. } = self.views(name)?;
        let is_known = !projections.versions(name).is_empty();
        if is_known { Ok(()) } else { Err(problem::unknown_view(name, projections)) }
    }

    fn views(&self, name: &str) -> Result<&Views, Problem> {
        self.views.as_deref().ok_or_else(|| problem::unknown_route(&format!("/views/{name}")))
    }

    pub(crate) fn aggregate(&self, type_name: &str, id: &str) -> Result<(&dyn Model, AggregateKey), Problem> {
        let model = self.model(type_name)?;
        if !is_id(id) {
            return Err(problem::bad_id(id));
        }
        Ok((model, AggregateKey::new(model.type_name(), id)))
    }
}

pub(crate) struct Views {
    pub(crate) projections: Projections,
    pub(crate) store: ViewStore,
}

#[derive(Clone, Copy)]
pub(crate) struct NamedView<'a> {
    pub(crate) model: &'a dyn ProjectionModel,
    pub(crate) store: &'a ViewStore,
}

impl NamedView<'_> {
    pub(crate) fn rows(self) -> View {
        View::new(self.model.name(), self.model.version())
    }

    /// Returns `forbidden` if the caller may not do it.
    pub(crate) fn require(self, caller: &Caller, access: ViewAccess<'_>, row: Option<&Json>) -> Result<(), Problem> {
        let authorization = self.model.authorize(caller, access, row).map_err(problem::internal)?;
        if authorization.is_whole() { Ok(()) } else { Err(problem::forbidden(format_args!("{access:?}"))) }
    }

    /// The row that its parts show together.
    pub(crate) fn merge(self, parts: &[Json]) -> Result<Option<Json>, Problem> {
        self.model.merge(parts).map_err(problem::internal)
    }
}
