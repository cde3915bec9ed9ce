//! The registry of projections, filled by hand with one line for each.

use std::collections::BTreeMap;

use crate::erased::ProjectionModelOf;
use crate::model::ProjectionModel;
use crate::projection::Projection;

/// Maximum characters of a name.
const MAX_NAME: usize = 64;

/// Maximum parts of a row: a read asks for all of them.
const MAX_SHARDS: u32 = 64;

/// The projections that the suite serves.
#[derive(Default)]
pub struct Projections {
    models: BTreeMap<&'static str, Box<dyn ProjectionModel>>,
}

impl Projections {
    /// No projections yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the projection `P`.
    ///
    /// # Errors
    ///
    /// When its name is not valid in keys and URLs or belongs to another projection, or it follows no aggregate type
    /// or one of them twice.
    pub fn with<P: Projection>(mut self) -> Result<Self, ProjectionRegistrationError> {
        let model = ProjectionModelOf::<P>::new(P::sources());
        self.check(&model).map_err(|reason| ProjectionRegistrationError { name: P::NAME, reason })?;
        self.models.insert(P::NAME, Box::new(model));
        Ok(self)
    }

    /// The projection of that name.
    pub fn get(&self, name: &str) -> Option<&dyn ProjectionModel> {
        self.models.get(name).map(AsRef::as_ref)
    }

    /// All projections, by name.
    pub fn iter(&self) -> impl Iterator<Item = &dyn ProjectionModel> {
        self.models.values().map(AsRef::as_ref)
    }

    /// The projections that follow aggregates of a type.
    pub fn following(&self, aggregate_type: &str) -> impl Iterator<Item = &dyn ProjectionModel> {
        self.iter().filter(move |model| model.follows().contains(&aggregate_type))
    }

    fn check(&self, model: &dyn ProjectionModel) -> Result<(), String> {
        let is_kebab = model.name().split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
        if !is_kebab || model.name().len() > MAX_NAME {
            return Err(format!("NAME must be lower-kebab, and at most {MAX_NAME} long"));
        }
        if self.models.contains_key(model.name()) {
            return Err("NAME is registered already".to_owned());
        }
        if model.version() == 0 {
            return Err("VERSION counts from 1".to_owned());
        }
        if !(1..=MAX_SHARDS).contains(&model.shards()) {
            return Err(format!("SHARDS has {} parts, expected 1 to {MAX_SHARDS}", model.shards()));
        }
        let mut follows = model.follows().to_vec();
        follows.sort_unstable();
        if let Some([twice, _]) = follows.array_windows().find(|[one, next]| one == next) {
            return Err(format!("sources() contains {twice:?} twice"));
        }
        if follows.is_empty() {
            return Err("sources() is empty, so the view would stay empty".to_owned());
        }
        Ok(())
    }
}

/// A projection that cannot be registered as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("projection {name:?}: {reason}")]
pub struct ProjectionRegistrationError {
    /// Its name.
    pub name: &'static str,
    /// What to change.
    pub reason: String,
}
