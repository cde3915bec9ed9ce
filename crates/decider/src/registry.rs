//! The registry of aggregate types, filled by hand with one line for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::aggregate::{Aggregate, Commands, EventType};
use crate::erased::ModelOf;
use crate::model::Model;
use crate::reading::tags;
use crate::record::MAX_NAME;

/// Path segments that are routes of their own and so cannot name an aggregate type.
pub const RESERVED_TYPES: [&str; 3] = ["events", "views", "openapi.json"];

/// The beginning of the names of types that the suite reserves for its own checks. The events of such a type are in no
/// feed and no list.
pub const RESERVED_PREFIX: &str = "__";

/// The aggregate types that the suite serves. A clone shares them.
#[derive(Clone, Default)]
pub struct Registry {
    models: BTreeMap<&'static str, Arc<dyn Model>>,
}

impl Registry {
    /// No types yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the aggregate `A`.
    ///
    /// # Errors
    ///
    /// When its names are not valid in keys and URLs, do not match its own types, or belong to another aggregate, or
    /// when its schemas or the `Default` of its state panic.
    pub fn with<A: Aggregate>(self) -> Result<Self, RegistrationError> {
        self.with_named::<A>(A::TYPE)
    }

    /// A registry of one type that is reserved for the suite: its name begins with [`RESERVED_PREFIX`]. It is never
    /// together with other types, so a request for one of those cannot reach it.
    ///
    /// # Errors
    ///
    /// When the name does not begin so, and for the reasons of [`with`](Self::with).
    pub fn reserved<A: Aggregate>() -> Result<Self, RegistrationError> {
        match A::TYPE.strip_prefix(RESERVED_PREFIX) {
            Some(name) => Self::new().with_named::<A>(name),
            None => {
                let reason = format!("TYPE of a reserved aggregate must begin with {RESERVED_PREFIX}");
                Err(RegistrationError { type_name: A::TYPE, reason })
            }
        }
    }

    /// The type of that name.
    pub fn get(&self, type_name: &str) -> Option<&dyn Model> {
        self.models.get(type_name).map(AsRef::as_ref)
    }

    /// All types, by name.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Model> {
        self.models.values().map(AsRef::as_ref)
    }

    /// The type that stores events under that name, current or former.
    pub fn with_event(&self, event_type: &str) -> Option<&dyn Model> {
        self.iter().find(|model| model.stored_events().iter().any(|(name, _)| *name == event_type))
    }

    /// Adds the aggregate `A`, of whose type this part of the name must be lower-kebab.
    fn with_named<A: Aggregate>(mut self, name: &str) -> Result<Self, RegistrationError> {
        let invalid = |reason| RegistrationError { type_name: A::TYPE, reason };
        let model = ModelOf::<A>::new().map_err(|panic| invalid(panic.to_string()))?;
        self.check_type_name(name).and_then(|()| self.check(&model)).map_err(invalid)?;
        self.models.insert(A::TYPE, Arc::new(model));
        Ok(self)
    }

    fn check(&self, model: &dyn Model) -> Result<(), String> {
        let schemas = model.schemas();
        self.check_events(model, tags(&schemas.event, "type"))?;
        check_commands(model.commands(), &tags(&schemas.command, "command"))
    }

    fn check_type_name(&self, type_name: &str) -> Result<(), String> {
        let is_kebab = type_name.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
        if !is_kebab || type_name.len() > MAX_NAME || RESERVED_TYPES.contains(&type_name) {
            let reserved = RESERVED_TYPES.join(", ");
            return Err(format!("TYPE must be lower-kebab, at most {MAX_NAME} long, and none of {reserved}"));
        }
        if self.models.contains_key(type_name) {
            return Err("TYPE is registered already".to_owned());
        }
        Ok(())
    }

    fn check_events(&self, model: &dyn Model, mut variants: Vec<String>) -> Result<(), String> {
        let mut declared: Vec<_> = model.events().iter().map(|event| event.name).collect();
        declared.sort_unstable();
        variants.sort_unstable();
        if declared.is_empty() || declared != variants {
            return Err(format!(
                "EVENTS must name each variant of Event once: it names {declared:?}, the variants are {variants:?}"
            ));
        }
        let mut names: Vec<_> = model.stored_events().into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[name, next]| name == next) {
            return Err(format!("event name {name:?} is declared twice"));
        }
        for name in names {
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Err(format!("event name {name:?} must be 1 to {MAX_NAME} ASCII letters and digits"));
            }
            if let Some(other) = self.with_event(name) {
                return Err(format!("event name {name:?} belongs to {:?}", other.type_name()));
            }
        }
        for event in model.events().iter().chain(model.retired()) {
            let EventType { name, version, readable, .. } = event;
            if *version == 0 || event.forms().any(|(_, version)| version == 0) {
                return Err(format!("the versions of {name:?} count from 1"));
            }
            if readable < version {
                return Err(format!("{name:?} is written at version {version} and reads only {readable}"));
            }
        }
        Ok(())
    }
}

fn check_commands(declared: Commands, variants: &[String]) -> Result<(), String> {
    for command in [Some(declared.create), declared.update, declared.delete].into_iter().flatten() {
        if !variants.iter().any(|variant| variant == command) {
            return Err(format!("COMMANDS names {command:?}, which is not one of {variants:?}"));
        }
    }
    Ok(())
}

/// An aggregate that cannot be registered as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("aggregate {type_name:?}: {reason}")]
pub struct RegistrationError {
    /// Its type.
    pub type_name: &'static str,
    /// What to change.
    pub reason: String,
}
