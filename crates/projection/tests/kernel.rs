//! A projection through the interface that the other crates use, without the types behind it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::marker::PhantomData;
use std::panic::catch_unwind;

use daybook_decider::record::FIRST_EPOCH;
use daybook_decider::{
    Aggregate, Authorization, Caller, Commands, Context, Decision, EventType, Json, Meta, RecordedEvent,
};
use daybook_projection::given::given;
use daybook_projection::{
    ErasedChange, FollowedEvent, Follows, MAX_KEY, MAX_KEY_BYTES, Parts, Projection, ProjectionModel, Projections,
    Source, Stopped, ViewAccess,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ulid::Ulid;

/// An aggregate whose events name rows.
struct Note;

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Write { key: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Written { key: String },
}

impl Aggregate for Note {
    const TYPE: &'static str = "note";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Write", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Written", 1)];

    type State = ();
    type Command = Command;
    type Event = Event;

    fn decide((): &(), Command::Write { key }: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Written { key }])
    }

    fn evolve((): (), _: &Event) {}
}

/// What is registered.
trait Declared: Send + Sync + 'static {
    const NAME: &'static str = "keys-2";
    const VERSION: u32 = 1;
    const PARTS: u32 = 2;
    const SOURCES: usize = 1;
}

/// A row for each key, with the numbers of the events that named it. A state is the number of events before.
struct Keys<D>(PhantomData<D>);

impl<D: Declared> Projection for Keys<D> {
    const NAME: &'static str = D::NAME;
    const VERSION: u32 = D::VERSION;
    const PARTS: Parts<Vec<u64>> = Parts::merged(D::PARTS, |one, other| [one, other].concat());

    type Row = Vec<u64>;
    type Change = u64;

    fn sources() -> Vec<Source<Self>> {
        (0..D::SOURCES).map(|_| Source::of::<Note>()).collect()
    }

    fn apply(row: Option<Vec<u64>>, number: &u64) -> Option<Vec<u64>> {
        assert_ne!(*number, 13, "an unlucky number");
        let row = [row.unwrap_or_default(), vec![*number]].concat();
        (row.len() < 4).then_some(row)
    }

    fn authorize(caller: &Caller, access: ViewAccess<'_>, row: Option<&Vec<u64>>) -> Authorization {
        assert_ne!(access, ViewAccess::Read("panic"));
        (caller.principal.is_some() && row.is_none_or(|row| row.len() == 1)).into()
    }
}

impl<D: Declared> Follows<Note> for Keys<D> {
    type State = u64;

    fn advance(before: u64, _: &FollowedEvent<'_, Event>) -> u64 {
        before + 1
    }

    fn changes(before: &u64, event: &FollowedEvent<'_, Event>, after: &u64) -> Vec<(String, u64)> {
        let Event::Written { key } = event.event;
        assert_ne!(key, "panic");
        assert_eq!((event.aggregate_id, *before + 1, *after), ("a", event.seq_num, event.seq_num));
        let key = if key == "time" { event.occurred_at.to_string() } else { key.clone() };
        vec![(key, *after)]
    }
}

struct Usual;
impl Declared for Usual {}

fn usual() -> Projections {
    Projections::new().with::<Keys<Usual>>().unwrap()
}

fn json_of(value: &Value) -> Json {
    Json::of(value).unwrap()
}

fn stored(seq_num: u64, data: &Value) -> RecordedEvent {
    RecordedEvent {
        seq_num,
        event_id: Ulid::from_parts(seq_num, 1),
        event_type: "Written".to_owned(),
        event_version: 1,
        data: json_of(data),
        meta: Meta::default(),
        occurred_at: Timestamp::UNIX_EPOCH,
        message_seq: 0,
        message_epoch: FIRST_EPOCH,
        together: Vec::new(),
    }
}

/// The numbers of events, each with the keys of its changes.
type Steps = Vec<(u64, Vec<String>)>;

/// Follows events with these keys, from the number after the state on. Returns the changes, the state and why it stopped.
fn follow(before: Option<u64>, keys: &[&str]) -> (Steps, Option<String>, Option<String>) {
    let numbers = before.unwrap_or_default() + 1..;
    let events: Vec<_> = numbers.zip(keys).map(|(number, key)| stored(number, &json!({ "key": key }))).collect();
    let projections = usual();
    let state = before.map(|state| json_of(&state.into()));
    let advanced = projections.get("keys-2", 1).unwrap().advance("note", "a", state.as_ref(), &events);
    let steps = advanced.steps.into_iter().map(|step| {
        let keys = step.changes.into_iter().map(|(key, _)| key);
        (step.seq_num, keys.collect())
    });
    (steps.collect(), advanced.state.map(|state| state.text().to_owned()), advanced.stopped.map(|why| why.to_string()))
}

#[test]
fn events_are_followed_after_the_state_before_them() {
    let step = |number: u64, key: &str| (number, vec![key.to_owned()]);
    assert_eq!(follow(None, &["x", "y"]), (vec![step(1, "x"), step(2, "y")], Some("2".to_owned()), None));
    assert_eq!(follow(Some(6), &["x"]), (vec![step(7, "x")], Some("7".to_owned()), None));
    // Of an aggregate that the projection does not follow, nothing changes.
    let (projections, state) = (usual(), json_of(&json!(3)));
    let other = projections.get("keys-2", 1).unwrap().advance("other", "a", Some(&state), &[stored(4, &json!({}))]);
    assert!(other.steps.is_empty() && other.stopped.is_none());
    assert_eq!(other.state.unwrap().text(), "3");
}

#[test]
fn following_stops_before_an_event_that_cannot_be_followed() {
    let fits = ["k".repeat(MAX_KEY), "€".repeat(MAX_KEY_BYTES / 3)];
    assert_eq!(follow(None, &fits.each_ref().map(String::as_str)).2, None);
    let (long, wide) = ("k".repeat(MAX_KEY + 1), "€".repeat(MAX_KEY_BYTES / 3 + 1));
    for (key, why) in [
        ("", "a key has 0 characters in 0 bytes, expected 1 to 512 characters in up to 1020 bytes"),
        (long.as_str(), "a key has 513 characters in 513 bytes"),
        (wide.as_str(), "a key has 341 characters in 1023 bytes"),
        ("panic", "changes"),
    ] {
        let (steps, state, stopped) = follow(None, &["x", key, "y"]);
        assert_eq!((steps.len(), state.as_deref()), (1, Some("1")), "{why}");
        assert!(stopped.as_ref().is_some_and(|stopped| stopped.contains(why)), "{why}: {stopped:?}");
    }
}

#[test]
fn unreadable_events_and_states_stop_it() {
    let projections = usual();
    let model = projections.get("keys-2", 1).unwrap();
    let newer = RecordedEvent { event_version: 2, ..stored(1, &json!({"key": "x"})) };
    for (event, is_newer) in [(stored(1, &json!({})), false), (newer, true)] {
        let stopped = model.advance("note", "a", None, &[event]).stopped.unwrap();
        assert!(matches!(stopped, Stopped::Unreadable(_)), "{stopped}");
        assert_eq!(stopped.is_newer(), is_newer, "{stopped}");
    }
    let advanced = model.advance("note", "a", Some(&json_of(&json!("x"))), &[stored(1, &json!({"key": "x"}))]);
    assert!(advanced.steps.is_empty() && advanced.state.is_none());
    let stopped = advanced.stopped.unwrap();
    assert!(matches!(stopped, Stopped::State(_)) && !stopped.is_newer(), "{stopped}");
}

/// The changes of events with these numbers.
fn changes(model: &dyn ProjectionModel, numbers: &[u64]) -> Vec<ErasedChange> {
    let change = |&number: &u64| {
        let state = json_of(&(number - 1).into());
        let advanced = model.advance("note", "a", Some(&state), &[stored(number, &json!({"key": "x"}))]);
        advanced.steps.into_iter().next().unwrap().changes.into_iter().next().unwrap().1
    };
    numbers.iter().map(change).collect()
}

#[test]
fn changes_are_applied_in_order_and_an_error_names_the_one_that_fails() {
    let projections = usual();
    let model = projections.get("keys-2", 1).unwrap();
    let apply = |row: Option<Value>, numbers: &[u64]| {
        let changes = changes(model, numbers);
        let row = row.map(|row| json_of(&row));
        model.apply(row.as_ref(), &changes.iter().collect::<Vec<_>>()).map(|row| row.map(|row| row.text().to_owned()))
    };
    assert_eq!(apply(None, &[1, 2]), Ok(Some("[1,2]".to_owned())));
    assert_eq!(apply(Some(json!([5])), &[6]), Ok(Some("[5,6]".to_owned())));
    assert_eq!(apply(Some(json!([1, 2, 3])), &[4]), Ok(None));
    assert_eq!(apply(None, &[]), Ok(None));
    let unlucky = apply(None, &[1, 2, 13, 4]).unwrap_err();
    assert!(unlucky.index == 2 && unlucky.to_string().contains("an unlucky number"), "{unlucky}");
    let other = apply(Some(json!("x")), &[1]).unwrap_err();
    assert!(other.index == 0 && other.to_string().contains("was it changed without a new VERSION?"), "{other}");
}

#[test]
fn parts_are_merged_in_order() {
    let projections = usual();
    let model = projections.get("keys-2", 1).unwrap();
    let merge = |parts: &[Value]| {
        let parts: Vec<_> = parts.iter().map(json_of).collect();
        model.merge(&parts).map(|row| row.map(|row| row.text().to_owned()))
    };
    assert_eq!(merge(&[]), Ok(None));
    assert_eq!(merge(&[json!([1])]), Ok(Some("[1]".to_owned())));
    assert!(merge(&[json!("x")]).is_err(), "a single part is read too");
    assert_eq!(merge(&[json!([1]), json!([2]), json!([3])]), Ok(Some("[1,2,3]".to_owned())));
    assert!(merge(&[json!([1]), json!("x")]).is_err());
}

#[test]
fn caller_is_checked_with_the_row() {
    let projections = usual();
    let model = projections.get("keys-2", 1).unwrap();
    let ann = Caller { principal: Some("ann".to_owned()), ..Caller::default() };
    let authorize = |caller: &Caller, key: &str, row: Option<Value>| {
        let row = row.map(|row| json_of(&row));
        model.authorize(caller, ViewAccess::Read(key), row.as_ref())
    };
    assert_eq!(authorize(&ann, "x", Some(json!([1]))), Ok(Authorization::Allowed));
    assert_eq!(authorize(&ann, "x", Some(json!([1, 2]))), Ok(Authorization::Denied));
    assert_eq!(authorize(&Caller::default(), "x", None), Ok(Authorization::Denied));
    assert!(authorize(&ann, "x", Some(json!("x"))).is_err());
    assert!(authorize(&ann, "panic", None).unwrap_err().to_string().contains("authorize"));
}

#[test]
fn rows_of_given_events_are_compared() {
    let written = |key: &str| Event::Written { key: key.to_owned() };
    let view = || given::<Keys<Usual>>().aggregate::<Note>("a", ["x", "y", "x", "z", "z", "z", "z"].map(written));
    view().shows("x", vec![1, 3]).shows("y", vec![2]).shows_nothing_at("z").shows_nothing_at("other");
    assert!(catch_unwind(|| view().shows("x", vec![1])).is_err());
    assert!(catch_unwind(|| view().shows("z", vec![4])).is_err());
    assert!(catch_unwind(|| view().shows_nothing_at("x")).is_err());
    let by_ann = || view().by(Caller::named("ann"));
    by_ann().allows(ViewAccess::Read("y")).forbids(ViewAccess::Read("x"));
    assert!(catch_unwind(|| by_ann().allows(ViewAccess::Read("x"))).is_err());
    assert!(catch_unwind(|| by_ann().forbids(ViewAccess::Read("y"))).is_err());
    assert!(catch_unwind(|| given::<Keys<Usual>>().aggregate::<Note>("a b", [])).is_err());
    let later = given::<Keys<Usual>>().at("1970-01-01T00:01:00Z");
    later.aggregate::<Note>("a", [written("time")]).shows("1970-01-01T00:01:00Z", vec![1]);
}

#[test]
fn registered_projection_is_found_by_its_name_and_by_what_it_follows() {
    let projections = usual();
    let model = projections.get("keys-2", 1).unwrap();
    assert_eq!((model.name(), model.version(), model.part_count(), model.follows()), ("keys-2", 1, 2, &["note"][..]));
    assert_eq!(model.row_schema().get("type"), Some(&json!("array")));
    assert_eq!(projections.following("note").count(), 1);
    assert_eq!(projections.following("other").count(), 0);
}

macro_rules! declared {
    ($name:ident { $($constant:ident: $kind:ty = $value:expr),* }) => {
        struct $name;
        impl Declared for $name { $(const $constant: $kind = $value;)* }
    };
}

declared!(Empty { NAME: &'static str = "keys-" });
declared!(Upper { NAME: &'static str = "Keys" });
declared!(Long { NAME: &'static str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk" });
declared!(Longest { NAME: &'static str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk" });
declared!(Zero { VERSION: u32 = 0 });
declared!(NoPart { PARTS: u32 = 0 });
declared!(TooManyParts { PARTS: u32 = 65 });
declared!(MostParts { PARTS: u32 = 64 });
declared!(NoSource { SOURCES: usize = 0 });
declared!(Twice { SOURCES: usize = 2 });

/// Why it cannot be registered beside these; empty if it can.
fn registration_error<D: Declared>(projections: Projections) -> String {
    projections.with::<Keys<D>>().err().map(|error| error.reason).unwrap_or_default()
}

#[test]
fn projection_that_cannot_be_registered_is_an_error_that_says_why() {
    let name = "NAME must be lower-kebab, and at most 64 long";
    for (error, expected) in [
        (registration_error::<Empty>(usual()), name),
        (registration_error::<Upper>(usual()), name),
        (registration_error::<Long>(usual()), name),
        (registration_error::<Longest>(usual()), ""),
        (registration_error::<Usual>(usual()), "NAME is registered already with VERSION 1"),
        (registration_error::<Zero>(usual()), "VERSION counts from 1"),
        (registration_error::<NoPart>(Projections::new()), "PARTS has 0 parts, expected 1 to 64"),
        (registration_error::<TooManyParts>(Projections::new()), "PARTS has 65 parts, expected 1 to 64"),
        (registration_error::<MostParts>(Projections::new()), ""),
        (registration_error::<Twice>(Projections::new()), "sources() contains \"note\" twice"),
        (registration_error::<NoSource>(Projections::new()), "sources() is empty, so the view would stay empty"),
    ] {
        assert_eq!(error, expected);
    }
}
