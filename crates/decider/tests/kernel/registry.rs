//! The checks when an aggregate is registered.

use std::borrow::Cow;
use std::marker::PhantomData;

use daybook_decider::given::given;
use daybook_decider::registry::RESERVED_TYPES;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, RegistrationError, Registry};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::counter::Counter;

/// The names of a [`Shell`], an aggregate without behaviour.
trait Names: Send + Sync + 'static {
    const TYPE: &'static str = "shell";
    const EVENTS: &'static [EventType] = &[EventType::new("Happened", 1), EventType::new("Ended", 1)];
    const RETIRED: &'static [EventType] = &[];
    const COMMANDS: Commands = Commands { create: "Begin", update: Some("Go"), delete: Some("End") };
}

struct Shell<N, E = Event, S = (), C = Command>(PhantomData<(N, E, S, C)>);

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Begin {},
    Go {},
    End {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Happened {},
    Ended {},
}

impl<N, E, S, C> Aggregate for Shell<N, E, S, C>
where
    N: Names,
    E: Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
    S: Default + Clone + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
    C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
{
    const TYPE: &'static str = N::TYPE;
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = N::COMMANDS;
    const EVENTS: &'static [EventType] = N::EVENTS;
    const RETIRED: &'static [EventType] = N::RETIRED;

    type State = S;
    type Command = C;
    type Event = E;

    fn decide(_: &S, _: C, _: &Context<'_, E>) -> Decision<E> {
        Ok(vec![])
    }

    fn evolve(state: S, _: &E) -> S {
        state
    }
}

struct Good;
impl Names for Good {}

fn registration_error_beside<A: Aggregate>(others: Registry) -> RegistrationError {
    others.with::<A>().err().expect("this cannot be registered")
}

fn registration_error<A: Aggregate>() -> RegistrationError {
    registration_error_beside::<A>(Registry::new())
}

#[test]
fn registered_aggregate_is_found_by_its_type_and_by_its_events() {
    let registry = Registry::new().with::<Shell<Good>>().unwrap().with::<Counter>().unwrap();
    let types: Vec<_> = registry.iter().map(daybook_decider::Model::type_name).collect();
    assert_eq!(types, ["counter", "shell"]);
    assert_eq!(registry.get("counter").unwrap().state_version(), 3);
    assert_eq!(registry.get("counter").unwrap().commands(), Counter::COMMANDS);
    assert_eq!(registry.get("counter").unwrap().events(), Counter::EVENTS);
    assert!(!registry.get("counter").unwrap().full_history());
    assert_eq!(registry.with_event("CounterClosed").unwrap().type_name(), "counter");
    assert_eq!(registry.with_event("Ended").unwrap().type_name(), "shell");
    assert!(registry.get("Counter").is_none());
    assert!(registry.with_event("counter").is_none());
}

/// 129 characters.
const LONG: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

const BAD_TYPES: [&str; 11] =
    ["", "-", "Shell", "she_ll", "she--ll", "-shell", "shell-", "she/ll", "shéll", "she ll", LONG];

struct BadType<const N: usize>;
impl<const N: usize> Names for BadType<N> {
    const TYPE: &'static str = BAD_TYPES[N];
}

struct Reserved;
impl Names for Reserved {
    const TYPE: &'static str = RESERVED_TYPES[0];
}

#[test]
fn a_type_that_is_not_lower_kebab_cannot_be_registered() {
    assert_eq!(LONG.len(), 129);
    let errors = [
        registration_error::<Shell<BadType<0>>>(),
        registration_error::<Shell<BadType<1>>>(),
        registration_error::<Shell<BadType<2>>>(),
        registration_error::<Shell<BadType<3>>>(),
        registration_error::<Shell<BadType<4>>>(),
        registration_error::<Shell<BadType<5>>>(),
        registration_error::<Shell<BadType<6>>>(),
        registration_error::<Shell<BadType<7>>>(),
        registration_error::<Shell<BadType<8>>>(),
        registration_error::<Shell<BadType<9>>>(),
        registration_error::<Shell<BadType<10>>>(),
    ];
    for (error, type_name) in errors.iter().zip(BAD_TYPES) {
        assert_eq!(error.type_name, type_name);
        assert!(
            error.reason.starts_with("TYPE must be lower-kebab such as purchase-order, at most 128 long"),
            "{error}"
        );
    }
}

#[test]
fn a_type_that_is_a_route_of_its_own_cannot_be_registered() {
    let error = registration_error::<Shell<Reserved>>();
    assert_eq!(error.type_name, RESERVED_TYPES[0]);
    assert!(error.reason.ends_with(&format!("none of {}", RESERVED_TYPES.join(", "))), "{error}");
}

struct OfTheSuite;
impl Names for OfTheSuite {
    const TYPE: &'static str = "__shell";
}

struct OddOfTheSuite;
impl Names for OddOfTheSuite {
    const TYPE: &'static str = "__she_ll";
}

#[test]
fn reserved_type_is_registered_alone_and_never_with_other_types() {
    let registry = Registry::reserved::<Shell<OfTheSuite>>().unwrap();
    assert_eq!(registry.iter().map(daybook_decider::Model::type_name).collect::<Vec<_>>(), ["__shell"]);
    assert!(registry.get("__shell").is_some() && registry.get("shell").is_none());
    let error = registration_error::<Shell<OfTheSuite>>();
    assert!(error.reason.starts_with("TYPE must be lower-kebab"), "{error}");
    for error in [Registry::reserved::<Shell<Good>>(), Registry::reserved::<Shell<OddOfTheSuite>>()] {
        assert!(error.err().unwrap().reason.starts_with("TYPE "));
    }
}

struct Kebab;
impl Names for Kebab {
    const TYPE: &'static str = "a1-2b-c";
}

#[test]
fn words_of_letters_and_digits_are_lower_kebab() {
    assert!(Registry::new().with::<Shell<Kebab>>().unwrap().get("a1-2b-c").is_some());
}

#[test]
fn a_type_is_registered_once() {
    let error = registration_error_beside::<Shell<Good>>(Registry::new().with::<Shell<Good>>().unwrap());
    assert_eq!(error.to_string(), r#"aggregate "shell": TYPE is registered already"#);
}

struct NoEvents;
impl Names for NoEvents {
    const EVENTS: &'static [EventType] = &[];
}

struct OneTooFew;
impl Names for OneTooFew {
    const EVENTS: &'static [EventType] = &[EventType::new("Happened", 1)];
}

struct OneTooMany;
impl Names for OneTooMany {
    const EVENTS: &'static [EventType] =
        &[EventType::new("Happened", 1), EventType::new("Ended", 1), EventType::new("Other", 1)];
}

struct Twice;
impl Names for Twice {
    const EVENTS: &'static [EventType] =
        &[EventType::new("Happened", 1), EventType::new("Happened", 2), EventType::new("Ended", 1)];
}

struct Misspelt;
impl Names for Misspelt {
    const EVENTS: &'static [EventType] = &[EventType::new("happened", 1), EventType::new("Ended", 1)];
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Nothing {}

#[test]
fn events_that_are_not_the_variants_cannot_be_registered() {
    for error in [
        registration_error::<Shell<NoEvents>>(),
        registration_error::<Shell<OneTooFew>>(),
        registration_error::<Shell<OneTooMany>>(),
        registration_error::<Shell<Twice>>(),
        registration_error::<Shell<Misspelt>>(),
        registration_error::<Shell<NoEvents, Nothing>>(),
    ] {
        assert!(error.reason.starts_with("EVENTS must name each variant of Event once"), "{error}");
    }
    assert_eq!(
        registration_error::<Shell<OneTooFew>>().reason,
        r#"EVENTS must name each variant of Event once: it names ["Happened"], the variants are ["Ended", "Happened"]; add EventType::new("Ended", 1)"#
    );
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Spaced {
    #[serde(rename = "It happened")]
    Happened {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Hashed {
    #[serde(rename = "Happened#1")]
    Happened {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Nameless {
    #[serde(rename = "")]
    Happened {},
}

struct OfSpaced;
impl Names for OfSpaced {
    const EVENTS: &'static [EventType] = &[EventType::new("It happened", 1)];
}

struct OfHashed;
impl Names for OfHashed {
    const EVENTS: &'static [EventType] = &[EventType::new("Happened#1", 1)];
}

struct OfNameless;
impl Names for OfNameless {
    const EVENTS: &'static [EventType] = &[EventType::new("", 1)];
}

#[test]
fn an_event_name_that_is_not_letters_and_digits_cannot_be_registered() {
    for (error, name) in [
        (registration_error::<Shell<OfSpaced, Spaced>>(), "It happened"),
        (registration_error::<Shell<OfHashed, Hashed>>(), "Happened#1"),
        (registration_error::<Shell<OfNameless, Nameless>>(), ""),
    ] {
        assert_eq!(error.reason, format!("event name {name:?} must be 1 to 128 ASCII letters and digits"));
    }
}

struct Unversioned;
impl Names for Unversioned {
    const EVENTS: &'static [EventType] = &[EventType::new("Happened", 1), EventType::new("Ended", 0)];
}

#[test]
fn an_event_version_of_zero_cannot_be_registered() {
    assert_eq!(registration_error::<Shell<Unversioned>>().reason, r#"the versions of "Ended" count from 1"#);
}

struct Unread;
impl Names for Unread {
    const EVENTS: &'static [EventType] = &[EventType::new("Happened", 3).reads(2), EventType::new("Ended", 1)];
}

#[test]
fn event_whose_written_version_is_not_readable_cannot_be_registered() {
    assert_eq!(registration_error::<Shell<Unread>>().reason, r#""Happened" is written at version 3 and reads only 2"#);
}

/// An aggregate with renamed and retired events.
struct Old;
impl Names for Old {
    const TYPE: &'static str = "old";
    const EVENTS: &'static [EventType] = &[
        EventType::new("Happened", 2).reads(3).also_stored_as(&[("Occurred", 2), ("Befell", 1)]),
        EventType::new("Ended", 1).also_stored_as(&[("Stopped", 4)]),
    ];
    const RETIRED: &'static [EventType] = &[EventType::new("Paused", 5)];
}

#[test]
fn registry_finds_former_and_retired_event_names() {
    let registry = Registry::new().with::<Shell<Old>>().unwrap();
    let model = registry.get("old").unwrap();
    assert_eq!(
        model.stored_events(),
        [("Happened", 3), ("Occurred", 2), ("Befell", 1), ("Ended", 1), ("Stopped", 4), ("Paused", 5)]
    );
    assert_eq!(model.opening_events(), ["Happened", "Occurred", "Befell"]);
    for (name, _) in model.stored_events() {
        assert_eq!(registry.with_event(name).unwrap().type_name(), "old");
    }
    assert!(registry.with_event("Began").is_none());
}

struct Renamed;
impl Names for Renamed {
    const EVENTS: &'static [EventType] =
        &[EventType::new("Happened", 1), EventType::new("Ended", 1).also_stored_as(&[("Happened", 1)])];
}

struct Revived;
impl Names for Revived {
    const RETIRED: &'static [EventType] = &[EventType::new("Ended", 1)];
}

struct Unnumbered;
impl Names for Unnumbered {
    const RETIRED: &'static [EventType] = &[EventType::new("Paused", 0)];
}

struct Unspelled;
impl Names for Unspelled {
    const RETIRED: &'static [EventType] = &[EventType::new("Pau sed", 1)];
}

#[test]
fn former_event_names_are_checked_like_current_ones() {
    assert_eq!(registration_error::<Shell<Renamed>>().reason, r#"event name "Happened" is declared twice"#);
    assert_eq!(registration_error::<Shell<Revived>>().reason, r#"event name "Ended" is declared twice"#);
    assert_eq!(registration_error::<Shell<Unnumbered>>().reason, r#"the versions of "Paused" count from 1"#);
    let error = registration_error::<Shell<Unspelled>>();
    assert_eq!(error.reason, r#"event name "Pau sed" must be 1 to 128 ASCII letters and digits"#);
}

struct Follower;
impl Names for Follower {
    const TYPE: &'static str = "follower";
    const EVENTS: &'static [EventType] =
        &[EventType::new("Happened", 1), EventType::new("Ended", 1).also_stored_as(&[("Paused", 1)])];
}

#[test]
fn an_event_name_belongs_to_one_aggregate() {
    let error = registration_error_beside::<Shell<Follower>>(Registry::new().with::<Shell<Old>>().unwrap());
    assert_eq!(error.to_string(), r#"aggregate "follower": event name "Ended" belongs to "old""#);
    let error = registration_error_beside::<Shell<Kebab>>(Registry::new().with::<Shell<Good>>().unwrap());
    assert_eq!(error.to_string(), r#"aggregate "a1-2b-c": event name "Ended" belongs to "shell""#);
}

struct BadCreate;
impl Names for BadCreate {
    const COMMANDS: Commands = Commands { create: "Start", update: None, delete: None };
}

struct BadUpdate;
impl Names for BadUpdate {
    const COMMANDS: Commands = Commands { create: "Begin", update: Some("go"), delete: None };
}

struct BadDelete;
impl Names for BadDelete {
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: Some("") };
}

#[test]
fn aggregate_whose_commands_name_no_command_cannot_be_registered() {
    for (error, name) in [
        (registration_error::<Shell<BadCreate>>(), "Start"),
        (registration_error::<Shell<BadUpdate>>(), "go"),
        (registration_error::<Shell<BadDelete>>(), ""),
    ] {
        assert_eq!(error.reason, format!(r#"COMMANDS names {name:?}, which is not one of ["Begin", "Go", "End"]"#));
    }
}

/// Commands or events without the attributes of serde.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
enum Untagged {
    Begin {},
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data")]
enum Tolerant {
    Begin {},
    Go {},
    End {},
}

#[test]
fn types_without_their_attributes_cannot_be_registered() {
    let event = registration_error::<Shell<Good, Untagged>>().reason;
    let next_step = r#"; Event needs #[daybook::events], or #[serde(tag = "type", content = "data")]"#;
    assert!(event.ends_with(next_step), "{event}");
    assert_eq!(
        registration_error::<Shell<Good, Event, (), Untagged>>().reason,
        r#"Command needs #[daybook::commands], or #[serde(tag = "command", content = "data", deny_unknown_fields)], so that it has "Begin""#
    );
    assert_eq!(
        registration_error::<Shell<Good, Event, (), Tolerant>>().reason,
        r#"Command needs #[serde(deny_unknown_fields)]: "Begin" ignores what it does not know"#
    );
}

#[derive(Deserialize, JsonSchema)]
struct Content {}

/// `C` is the data of the command that updates.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum With<C> {
    Begin,
    Go(C),
    End {},
}

#[test]
fn data_of_a_command_with_a_route_of_its_own_is_an_object_or_absent() {
    fn registered<C: DeserializeOwned + JsonSchema + Send + Sync + 'static>() -> Result<Registry, RegistrationError> {
        Registry::new().with::<Shell<Good, Event, (), With<C>>>()
    }
    for error in [registered::<String>(), registered::<Vec<Content>>(), registered::<Option<u8>>()] {
        assert_eq!(
            error.err().unwrap().reason,
            r#"the data of "Go" must be an object, because COMMANDS names it: give it named fields, such as Go { … }"#
        );
    }
    for valid in [registered::<Content>(), registered::<Option<Content>>(), registered::<serde_json::Value>()] {
        valid.unwrap();
    }
}

#[test]
#[should_panic(expected = r#"aggregate "shell": COMMANDS names "Start""#)]
fn aggregate_that_cannot_be_registered_fails_its_test() {
    given::<Shell<BadCreate>>([]);
}

/// A state whose `Default` or whose schema panics.
#[derive(Clone, Serialize, Deserialize)]
struct Fragile<const SCHEMA: bool>;

impl<const SCHEMA: bool> Default for Fragile<SCHEMA> {
    fn default() -> Self {
        assert!(SCHEMA, "there is no first state");
        Self
    }
}

impl<const SCHEMA: bool> JsonSchema for Fragile<SCHEMA> {
    fn schema_name() -> Cow<'static, str> {
        "Fragile".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        assert!(!SCHEMA, "there is no schema");
        Schema::default()
    }
}

#[test]
fn aggregate_whose_default_or_schema_panics_cannot_be_registered() {
    for (error, reason) in [
        (registration_error::<Shell<Good, Event, Fragile<false>>>(), "Default of shell panicked at "),
        (registration_error::<Shell<Good, Event, Fragile<true>>>(), "JsonSchema of shell panicked at "),
    ] {
        assert!(error.reason.starts_with(reason), "{error}");
        assert!(error.reason.contains("registry.rs:") && error.reason.contains(": there is no "), "{error}");
    }
}
