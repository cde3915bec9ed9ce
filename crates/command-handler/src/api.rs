//! What the endpoints share.

use std::sync::{Arc, OnceLock};

use daybook_decider::{Model, Registry};
use daybook_event_store::EventStore;
use daybook_projection::Projections;
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use daybook_view_store::ViewStore;
use tracing::Span;

use crate::problem::{self, Problem};
use crate::request::AGGREGATE_TYPE;
use crate::settings::ApiSettings;
use crate::signals;
use crate::views::{NamedView, Views};

/// The aggregates of the API, the store that they are in, and the settings.
#[derive(Clone)]
pub struct Api {
    pub(crate) registry: Arc<Registry>,
    pub(crate) store: Arc<EventStore>,
    pub(crate) settings: ApiSettings,
    /// The read models, if there are any.
    pub(crate) views: Option<Arc<Views>>,
    /// Whether a read needs a permission of the aggregate type. Only an operator, who can read the table, needs none.
    pub(crate) asks_for_permission: bool,
    /// The text of the OpenAPI document. The first request for it writes it, so that it does not slow down cold starts.
    pub(crate) document: Arc<OnceLock<String>>,
}

impl Api {
    /// The API of these aggregates in this store.
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

    /// The same API with the views of these projections in this store.
    #[must_use]
    pub fn with_views(self, projections: Projections, store: ViewStore) -> Self {
        Self { views: Some(Arc::new(Views { projections, store })), ..self }
    }

    /// The registered type of that name.
    pub(crate) fn model(&self, type_name: &str) -> Result<&dyn Model, Problem> {
        let model = self.registry.get(type_name).ok_or_else(|| problem::unknown_type(type_name, &self.registry))?;
        Span::current().record(AGGREGATE_TYPE, model.type_name());
        Ok(model)
    }

    /// The view of that name, in the version that is read now.
    pub(crate) async fn view(&self, name: &str) -> Result<NamedView<'_>, Problem> {
        self.views(name)?.find(name).await
    }

    /// Returns a problem if there is no view of that name.
    pub(crate) fn require_view(&self, name: &str) -> Result<(), Problem> {
        self.views(name)?.require(name)
    }

    fn views(&self, name: &str) -> Result<&Views, Problem> {
        self.views.as_deref().ok_or_else(|| problem::unknown_route(&format!("/views/{name}")))
    }

    /// The type and the key of the aggregate that a path names.
    pub(crate) fn aggregate(&self, type_name: &str, id: &str) -> Result<(&dyn Model, AggregateKey), Problem> {
        let model = self.model(type_name)?;
        if !is_id(id) {
            return Err(problem::bad_id(id));
        }
        Ok((model, AggregateKey::new(model.type_name(), id)))
    }
}
