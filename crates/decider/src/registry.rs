//! The registry of aggregate types, filled by hand with one line for each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::aggregate::{Aggregate, Commands, EventType};
use crate::erased::ModelOf;
use crate::json::Json;
use crate::model::{Model, StateError};
use crate::process::Source;
use crate::record::MAX_NAME;
use crate::variant_names::{is_object, is_strict, names_in_schema};

/// Path segments that are routes of their own and so cannot name an aggregate type.
pub const RESERVED_TYPES: &[&str] = &["commands", "events", "views", "openapi.json"];

pub use crate::aggregate_key::RESERVED_PREFIX;

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
    /// A build with debug assertions, such as that of tests and of `daybook dev`, makes its schemas too: they have to contain
    /// the same names. A function makes no schema, so it does not find out that a declared name is only an alias. It does not
    /// write the `Default` of the state as JSON and read it again either.
    ///
    /// # Errors
    ///
    /// When its names are not valid in keys and URLs, do not match its own types, or belong to another aggregate, when a
    /// source of it is not registered before, or when the `Default` of its state panics or, with debug assertions, its schemas.
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

    /// Checks what the aggregate `A` declares about itself.
    pub(crate) fn check_alone<A: Aggregate>() -> Result<(), RegistrationError> {
        let name = A::TYPE.strip_prefix(RESERVED_PREFIX).unwrap_or(A::TYPE);
        Self::new().checked::<A>(name, |_| Ok(())).map(drop)
    }

    /// Adds the aggregate `A`, of whose type this part of the name must be lower-kebab.
    fn with_named<A: Aggregate>(mut self, name: &str) -> Result<Self, RegistrationError> {
        let model = self.checked::<A>(name, |model| self.check_sources(model))?;
        self.models.insert(A::TYPE, Arc::new(model));
        Ok(self)
    }

    fn checked<A: Aggregate>(
        &self,
        name: &str,
        check_others: impl FnOnce(&dyn Model) -> Result<(), String>,
    ) -> Result<ModelOf<A>, RegistrationError> {
        let invalid = |reason| RegistrationError { type_name: A::TYPE, reason };
        let model = ModelOf::<A>::new().map_err(|panic| invalid(panic.to_string()))?;
        let check = || {
            self.check_type_name(name)?;
            self.check(&model, cfg!(debug_assertions))?;
            check_others(&model)
        };
        check().map_err(invalid)?;
        Ok(model)
    }

    /// Checks the names that an aggregate declares against those that serde reads and, `in_schemas`, against those in its
    /// schemas. The schemas also decide if serde reports other names: it reports aliases too, and nothing for a type with a
    /// `Deserialize` that is written by hand.
    fn check<A: Aggregate>(&self, model: &ModelOf<A>, in_schemas: bool) -> Result<(), String> {
        let (commands, events) = model.names();
        if !in_schemas && self.check_names(model, commands, events).is_ok() {
            return Ok(());
        }
        let schemas = model.try_schemas().map_err(|panic| panic.to_string())?;
        let (commands, events) =
            (names_in_schema(&schemas.command, "command"), names_in_schema(&schemas.event, "type"));
        self.check_names(model, &commands, &events)?;
        if let Some(tolerant) = commands.iter().find(|command| !is_strict(&schemas.command, command)) {
            return Err(format!(
                "Command needs #[serde(deny_unknown_fields)]: {tolerant:?} ignores what it does not know"
            ));
        }
        let Commands { create, update, delete } = A::COMMANDS;
        let mut named = [Some(create), update, delete].into_iter().flatten();
        if let Some(command) = named.find(|command| !is_object(&schemas.command, command)) {
            return Err(format!(
                "the data of {command:?} must be an object, because COMMANDS names it: give it named fields, such as {command} {{ … }}"
            ));
        }
        check_default(model)
    }

    fn check_names(&self, model: &dyn Model, commands: &[String], events: &[String]) -> Result<(), String> {
        self.check_events(model, events)?;
        check_commands(model.commands(), model.forget(), commands)
    }

    fn check_type_name(&self, type_name: &str) -> Result<(), String> {
        let is_kebab = type_name.split('-').all(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        });
        if !is_kebab || type_name.len() > MAX_NAME || RESERVED_TYPES.contains(&type_name) {
            let reserved = RESERVED_TYPES.join(", ");
            return Err(format!(
                "TYPE must be lower-kebab such as purchase-order, at most {MAX_NAME} long, and none of {reserved}"
            ));
        }
        if self.models.contains_key(type_name) {
            return Err("TYPE is registered already".to_owned());
        }
        Ok(())
    }

    fn check_sources(&self, model: &dyn Model) -> Result<(), String> {
        let sources = model.sources();
        for (index, Source { aggregate_type, rust_type, .. }) in sources.iter().enumerate() {
            if sources[..index].iter().any(|other| other.aggregate_type == *aggregate_type) {
                return Err(format!("sources() contains {aggregate_type:?} twice"));
            }
            if self.get(aggregate_type).is_none() {
                return Err(format!(
                    "its source {aggregate_type:?} is not registered: add .with::<{rust_type}>() before this type"
                ));
            }
        }
        Ok(())
    }

    fn check_events(&self, model: &dyn Model, variants: &[String]) -> Result<(), String> {
        let mut declared: Vec<_> = model.events().iter().map(|event| event.name).collect();
        let mut variants: Vec<_> = variants.iter().map(String::as_str).collect();
        declared.sort_unstable();
        variants.sort_unstable();
        if declared.is_empty() || declared != variants {
            let lacks = variants.iter().find(|variant| !declared.contains(variant));
            let next_step = match lacks {
                Some(name) => format!("add EventType::new({name:?}, 1)"),
                None if variants.is_empty() => {
                    r#"Event needs #[daybook::events], or #[serde(tag = "type", content = "data")]"#.to_owned()
                }
                None => "remove a name that was never stored, and move one that was to RETIRED".to_owned(),
            };
            return Err(format!(
                "EVENTS must name each variant of Event once: it names {declared:?}, the variants are {variants:?}; {next_step}"
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

/// Checks that the `Default` of the state, the only state that is known here, is the same after a snapshot.
fn check_default(model: &dyn Model) -> Result<(), String> {
    let invalid = |error: StateError| format!("the Default of its state cannot be stored as JSON: {error}");
    let json = model.state(&model.before_first_event()).map_err(invalid)?;
    if model.full_history() {
        return Ok(());
    }
    let restored = model.restore(0, 0, &json).and_then(|restored| model.state(&restored)).map_err(invalid)?;
    // As values: the members of a map can have any order.
    let [same, other] = [&json, &restored].map(Json::read::<serde_json::Value>);
    if same.ok() == other.ok() {
        Ok(())
    } else {
        Err(format!("the Default of its state, {json:?}, is read as {restored:?}"))
    }
}

fn check_commands(declared: Commands, forget: Option<&str>, variants: &[String]) -> Result<(), String> {
    let named = [Some(declared.create), declared.update, declared.delete].map(|command| ("COMMANDS", command));
    for (place, command) in named.into_iter().chain([("FORGET", forget)]) {
        if let Some(command) = command.filter(|command| !variants.iter().any(|variant| variant == command)) {
            if variants.is_empty() {
                let by_hand = r#"#[serde(tag = "command", content = "data", deny_unknown_fields)]"#;
                return Err(format!("Command needs #[daybook::commands], or {by_hand}, so that it has {command:?}"));
            }
            return Err(format!("{place} names {command:?}, which is not one of {variants:?}"));
        }
    }
    Ok(())
}

/// An aggregate that cannot be registered as it is.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("aggregate {type_name:?}: {reason}")]
pub struct RegistrationError {
    /// Its type.
    pub type_name: &'static str,
    /// What to change.
    pub reason: String,
}

impl fmt::Debug for RegistrationError {
    /// As for people: a test that unwraps it shows what to change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::marker::PhantomData;

    use schemars::{JsonSchema, Schema, SchemaGenerator};
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::aggregate::{Context, Decision};

    struct Shell<S, const IS_RIGHT: bool>(PhantomData<S>);

    /// A state whose schema cannot be made.
    #[derive(Clone, Default, Serialize, Deserialize)]
    struct NoSchema;

    impl JsonSchema for NoSchema {
        fn schema_name() -> Cow<'static, str> {
            "NoSchema".into()
        }

        fn json_schema(_: &mut SchemaGenerator) -> Schema {
            panic!("there is no schema");
        }
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data", deny_unknown_fields)]
    enum Command {
        Begin {},
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "type", content = "data")]
    enum Event {
        Happened {},
    }

    impl<S, const IS_RIGHT: bool> Aggregate for Shell<S, IS_RIGHT>
    where
        S: Default + Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
    {
        const TYPE: &'static str = "shell";
        const STATE_VERSION: u32 = 1;
        const COMMANDS: Commands =
            Commands { create: if IS_RIGHT { "Begin" } else { "Start" }, update: None, delete: None };
        const EVENTS: &'static [EventType] = &[EventType::new("Happened", 1)];

        type State = S;
        type Command = Command;
        type Event = Event;

        fn decide(_: &S, _: Command, _: &Context<'_, Event>) -> Decision<Event> {
            Ok(vec![])
        }

        fn evolve(state: S, _: &Event) -> S {
            state
        }
    }

    /// A state with a number that JSON does not have.
    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    struct NotANumber(f64);

    impl Default for NotANumber {
        fn default() -> Self {
            Self(f64::NAN)
        }
    }

    #[test]
    fn state_whose_default_has_no_json_form_is_not_registered() {
        let error = Registry::new().with::<Shell<NotANumber, true>>().err().unwrap();
        let reason = "the Default of its state cannot be stored as JSON: invalid type: null, expected f64";
        assert!(error.reason.starts_with(reason), "{error}");
    }

    /// A state with a number that is written and not read.
    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    struct NotRead {
        #[serde(skip_deserializing)]
        number: u32,
    }

    impl Default for NotRead {
        fn default() -> Self {
            Self { number: 1 }
        }
    }

    #[test]
    fn state_whose_default_is_another_one_after_a_snapshot_is_not_registered() {
        let error = Registry::new().with::<Shell<NotRead, true>>().err().unwrap();
        assert_eq!(error.reason, r#"the Default of its state, {"number":1}, is read as {"number":0}"#);
    }

    #[test]
    fn function_checks_names_and_makes_no_schema() {
        let registry = Registry::new();
        let (without_schema, wrong) =
            (ModelOf::<Shell<NoSchema, true>>::new().unwrap(), ModelOf::<Shell<(), false>>::new().unwrap());
        assert_eq!(registry.check(&without_schema, false), Ok(()));
        assert!(registry.check(&without_schema, true).unwrap_err().starts_with("JsonSchema of shell panicked at "));
        for in_schemas in [false, true] {
            let error = registry.check(&wrong, in_schemas).unwrap_err();
            assert_eq!(error, r#"COMMANDS names "Start", which is not one of ["Begin"]"#);
        }
    }
}
