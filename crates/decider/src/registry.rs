//! Where aggregates are registered, by hand and in one line each.

use std::collections::BTreeMap;

use crate::aggregate::Aggregate;
use crate::erased::ModelOf;
use crate::model::Model;
use crate::reading::tags;

/// Path segments that are routes of their own and so cannot name an aggregate type.
pub const RESERVED_TYPES: [&str; 3] = ["events", "views", "openapi.json"];

/// EventBridge takes a `DetailType` of at most this many characters, and an event's name is one by default.
pub(crate) const MAX_NAME: usize = 128;

/// The aggregate types that the suite serves.
#[derive(Default)]
pub struct Registry {
    models: BTreeMap<&'static str, Box<dyn Model>>,
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
    /// When its names are not fit for keys and URLs, do not fit its own types, or are taken by another aggregate.
    pub fn with<A: Aggregate>(mut self) -> Result<Self, RegistrationError> {
        let model = ModelOf::<A>::new();
        self.check(&model)?;
        self.models.insert(A::TYPE, Box::new(model));
        Ok(self)
    }

    /// The type of that name.
    pub fn get(&self, type_name: &str) -> Option<&dyn Model> {
        self.models.get(type_name).map(AsRef::as_ref)
    }

    /// All types, by name.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Model> {
        self.models.values().map(AsRef::as_ref)
    }

    /// The type whose streams hold events of that name, be it a former one.
    pub fn with_event(&self, event_type: &str) -> Option<&dyn Model> {
        self.iter().find(|model| model.stored_events().iter().any(|(name, _)| *name == event_type))
    }

    fn check(&self, model: &dyn Model) -> Result<(), RegistrationError> {
        let type_name = model.type_name();
        let refuse = |reason: String| Err(RegistrationError { type_name, reason });

        let kebab = type_name.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
        if !kebab || type_name.len() > MAX_NAME || RESERVED_TYPES.contains(&type_name) {
            return refuse(format!(
                "TYPE must be lower-kebab, at most {MAX_NAME} long, and none of {}",
                RESERVED_TYPES.join(", ")
            ));
        }
        if self.models.contains_key(type_name) {
            return refuse("TYPE is registered already".to_owned());
        }

        let schemas = model.schemas();
        let mut declared: Vec<_> = model.events().iter().map(|event| event.name).collect();
        declared.sort_unstable();
        let mut written = tags(&schemas.event, "type");
        written.sort_unstable();
        if declared.is_empty() || declared != written {
            return refuse(format!(
                "EVENTS must name each variant of Event once: it names {declared:?}, the variants are {written:?}"
            ));
        }
        let mut stored: Vec<_> = model.stored_events().into_iter().map(|(name, _)| name).collect();
        stored.sort_unstable();
        if let Some(twice) = stored.windows(2).find(|pair| pair[0] == pair[1]) {
            return refuse(format!("event name {:?} is declared twice", twice[0]));
        }
        for name in stored {
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return refuse(format!("event name {name:?} must be 1 to {MAX_NAME} ASCII letters and digits"));
            }
            if let Some(other) = self.with_event(name) {
                return refuse(format!("event name {name:?} belongs to {:?}", other.type_name()));
            }
        }

        for event in model.events().iter().chain(model.retired()) {
            if event.version == 0 || event.forms().any(|(_, version)| version == 0) {
                return refuse(format!("the versions of {:?} count from 1", event.name));
            }
            if event.readable < event.version {
                let (version, readable) = (event.version, event.readable);
                return refuse(format!("{:?} is written at version {version} and reads only {readable}", event.name));
            }
        }

        let commands = tags(&schemas.command, "command");
        let verbs = model.commands();
        for verb in [Some(verbs.create), verbs.update, verbs.delete].into_iter().flatten() {
            if !commands.iter().any(|command| command == verb) {
                return refuse(format!("COMMANDS names {verb:?}, which is not one of {commands:?}"));
            }
        }
        Ok(())
    }
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
