//! The routes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Uri};
use axum::routing::{get, post};
use decider::{Model, Registry};
use event_store::EventStore;
use startup::{Environment, SettingError};
use table::AggregateKey;
use table::keys::is_id;

use crate::problem::Problem;
use crate::{feeds, read, write};

/// A request's body at most: what the largest transaction holds, in bytes.
const MAX_BODY: usize = event_store::limits::MAX_TRANSACTION;

/// What every endpoint needs.
#[derive(Clone)]
pub struct Api(Arc<Parts>);

struct Parts {
    registry: Registry,
    store: EventStore,
    settings: Settings,
}

/// What an operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether a write to an existing aggregate must say which version it saw.
    pub require_if_match: bool,
    /// How long an answer is kept under its idempotency key.
    pub idempotency_ttl: Duration,
}

impl Settings {
    /// From `REQUIRE_IF_MATCH` (`true` or `false`; false) and `IDEMPOTENCY_TTL_HOURS` (1 to 8,760; 24).
    ///
    /// # Errors
    ///
    /// When one is something else.
    pub fn read(environment: &Environment) -> Result<Self, SettingError> {
        let hours: u32 = environment.number("IDEMPOTENCY_TTL_HOURS", 24, 1..=8_760)?;
        Ok(Self {
            require_if_match: environment.flag("REQUIRE_IF_MATCH")?,
            idempotency_ttl: Duration::from_secs(u64::from(hours) * 60 * 60),
        })
    }
}

impl Api {
    /// The API of these aggregates over that store.
    pub fn new(registry: Registry, store: EventStore, settings: Settings) -> Self {
        Self(Arc::new(Parts { registry, store, settings }))
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn store(&self) -> &EventStore {
        &self.0.store
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
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
        .route("/events", get(feeds::events_of_type))
        .route("/{type}", post(write::create).get(feeds::aggregates_of_type))
        .route("/{type}/{id}", post(write::update).delete(write::delete).get(read::state))
        .route("/{type}/{id}/commands", post(write::commands))
        .route("/{type}/{id}/events", get(feeds::events_of_aggregate))
        .fallback(async |uri: Uri| Problem::UnknownRoute { path: uri.path().to_owned() })
        .method_not_allowed_fallback(async |method: Method| Problem::MethodNotAllowed { method: method.to_string() })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(api)
}
