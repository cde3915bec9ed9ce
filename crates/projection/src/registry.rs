//! The registry of projections, filled by hand with one line for each.

use std::collections::BTreeMap;
use std::fmt;

use crate::model::{ProjectionModel, ProjectionModelOf};
use crate::projection::Projection;

const MAX_NAME: usize = 64;

/// Maximum parts of a row. A read of a row reads all of its parts.
const MAX_PARTS: u32 = 64;

/// The projections that the functions serve. A name may be registered with several versions, so that the view of the
/// next version can be filled while readers get the previous one.
#[derive(Default)]
pub struct Projections {
    /// By name and version.
    models: BTreeMap<&'static str, BTreeMap<u32, Box<dyn ProjectionModel>>>,
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
    /// When its name is not valid in keys and URLs, another projection has its name and version, its version is 0, the
    /// number of parts of its rows is not 1 to 64, or it follows no aggregate type or one of them twice.
    pub fn with<P: Projection>(mut self) -> Result<Self, ProjectionRegistrationError> {
        let model = ProjectionModelOf::<P>::new(P::sources());
        self.check(&model).map_err(|reason| ProjectionRegistrationError { name: P::NAME, reason })?;
        self.models.entry(P::NAME).or_default().insert(P::VERSION, Box::new(model));
        Ok(self)
    }

    /// A version of the projection of that name.
    pub fn get(&self, name: &str, version: u32) -> Option<&dyn ProjectionModel> {
        self.models.get(name)?.get(&version).map(AsRef::as_ref)
    }

    /// All versions of all projections, by name and version.
    pub fn iter(&self) -> impl Iterator<Item = &dyn ProjectionModel> {
        self.models.values().flat_map(BTreeMap::values).map(AsRef::as_ref)
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.models.keys().copied()
    }

    /// The versions of the projection of that name, in ascending order; none if there is no such projection.
    pub fn versions(&self, name: &str) -> Vec<&dyn ProjectionModel> {
        self.models.get(name).into_iter().flat_map(BTreeMap::values).map(AsRef::as_ref).collect()
    }

    /// The version that readers get when the view's pointer names the version `pointer`. Without a pointer, it is the
    /// lowest version, so that a release that adds a version changes nothing for readers. During a deployment, an
    /// instance may not have the version of the pointer. Its readers get the highest version below that, or else its
    /// lowest.
    pub fn read_version(&self, name: &str, pointer: Option<u32>) -> Option<&dyn ProjectionModel> {
        let versions = self.models.get(name)?;
        let named = pointer.and_then(|pointer| versions.range(..=pointer).next_back());
        named.or_else(|| versions.first_key_value()).map(|(_, model)| model.as_ref())
    }

    /// All versions of the projections that follow aggregates of a type.
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
        if self.get(model.name(), model.version()).is_some() {
            return Err(format!("NAME is registered already with VERSION {}", model.version()));
        }
        if model.version() == 0 {
            return Err("VERSION counts from 1".to_owned());
        }
        if !(1..=MAX_PARTS).contains(&model.part_count()) {
            return Err(format!("PARTS has {} parts, expected 1 to {MAX_PARTS}", model.part_count()));
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
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("projection {name:?}: {reason}")]
pub struct ProjectionRegistrationError {
    /// The name of the projection.
    pub name: &'static str,
    /// What to change.
    pub reason: String,
}

impl fmt::Debug for ProjectionRegistrationError {
    /// As for people: a test that unwraps it shows what to change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
