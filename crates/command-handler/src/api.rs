//! The routes.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{DefaultBodyLimit, MatchedPath, RawPathParams, State};
use axum::http::{Method, Uri};
use axum::middleware::from_fn;
use axum::routing::{get, post};
use daybook_decider::{Model, Registry};
use daybook_event_store::EventStore;
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;

use crate::problem::Problem;
use crate::settings::ApiSettings;
use crate::{bounds, feeds, openapi, read, write};

/// A request's body at most: what the largest transaction holds, in bytes.
pub(crate) const MAX_BODY: usize = daybook_event_store::limits::MAX_TRANSACTION;

/// The route of an aggregate.
const AGGREGATE: &str = "/{type}/{id}";

/// What every endpoint needs.
#[derive(Clone)]
pub struct Api(Arc<Parts>);

struct Parts {
    registry: Registry,
    store: EventStore,
    settings: ApiSettings,
    /// Written when it is first asked for: a cold start has no time for it.
    document: OnceLock<String>,
}

impl Api {
    /// The API of these aggregates over that store.
    pub fn new(registry: Registry, store: EventStore, settings: ApiSettings) -> Self {
        Self(Arc::new(Parts { registry, store, settings, document: OnceLock::new() }))
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn store(&self) -> &EventStore {
        &self.0.store
    }

    pub(crate) fn settings(&self) -> &ApiSettings {
        &self.0.settings
    }

    /// The document of this API, as JSON.
    pub(crate) fn document(&self) -> &str {
        self.0.document.get_or_init(|| openapi::document(self.registry()).to_string())
    }

    /// The registered type of that name.
    pub(crate) fn model(&self, type_name: &str) -> Result<&dyn Model, Problem> {
        self.registry().get(type_name).ok_or_else(|| Problem::UnknownType {
            asked: type_name.to_owned(),
            known: self.registry().iter().map(Model::type_name).collect(),
        })
    }

    /// The type and key of an aggregate that a path names.
    pub(crate) fn aggregate(&self, type_name: &str, id: &str) -> Result<(&dyn Model, AggregateKey), Problem> {
        let model = self.model(type_name)?;
        if !is_id(id) {
            return Err(Problem::BadId { id: id.to_owned() });
        }
        Ok((model, AggregateKey::new(model.type_name(), id)))
    }
}

/// The service: the same in Lambda, on one machine and under test.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/openapi.json", get(openapi::endpoint))
        .route("/events", get(feeds::events_of_type))
        .route("/{type}", post(write::create).get(feeds::aggregates_of_type))
        .route(AGGREGATE, post(write::update).delete(write::delete).get(read::state))
        .route("/{type}/{id}/commands", post(write::commands))
        .route("/{type}/{id}/events", get(feeds::events_of_aggregate))
        .fallback(async |uri: Uri| Problem::UnknownRoute { path: uri.path().to_owned() })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn(bounds::within))
        .with_state(api)
}

/// What an aggregate of a type takes: reads, and what the type has commands for.
pub(crate) fn methods(model: &dyn Model) -> String {
    let commands = model.commands();
    let writes = [commands.update.map(|_| ",POST"), commands.delete.map(|_| ",DELETE")];
    writes.into_iter().flatten().fold("GET,HEAD".to_owned(), |all, method| all + method)
}

/// The router knows which methods a resource takes, but not which an aggregate of some type does.
async fn method_not_allowed(
    State(api): State<Api>,
    route: MatchedPath,
    names: Result<RawPathParams, RawPathParamsRejection>,
    method: Method,
) -> Problem {
    let names = names.ok().filter(|_| route.as_str() == AGGREGATE);
    let type_name = names.iter().flatten().find(|(name, _)| *name == "type").map(|(_, type_name)| type_name);
    let allow = type_name.and_then(|type_name| api.registry().get(type_name)).map(methods);
    Problem::MethodNotAllowed { method: method.to_string(), allow }
}
