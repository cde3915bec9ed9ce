//! The golden files of the aggregates, by the checks of `daybook::golden`.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use aggregates::{Order, Todo};
use daybook::golden::GoldenFiles;
use daybook::{Aggregate, Commands, Context, Decision, EventType, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[test]
fn stored_events_and_states_are_those_of_the_golden_files() {
    GoldenFiles::new(aggregates::registry().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).check();
}

/// An empty folder of this name.
fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// What the check says.
fn report(files: &GoldenFiles) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| files.check())).unwrap_err();
    *panic.downcast::<String>().unwrap()
}

/// What the check says about the golden file of the to-dos with these texts replaced.
fn report_of(name: &str, replaced: &[(&str, &str)]) -> String {
    let folder = empty_folder(name);
    let mut file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/todo.json")).unwrap();
    for (text, other) in replaced {
        assert!(file.contains(text), "{text}");
        file = file.replace(text, other);
    }
    fs::write(folder.join("todo.json"), file).unwrap();
    let report = report(&GoldenFiles::new(Registry::new().with::<Todo>().unwrap(), &folder));
    assert!(report.contains(&folder.join("todo.json").display().to_string()), "{report}");
    report
}

#[test]
fn changed_data_of_an_event_is_reported_with_the_next_step() {
    let report = report_of("changed-data", &[(r#""Make 2 coffees""#, r#""Make 2 coffees", "shop": null"#)]);
    let file = r#"TodoUpdated {"message":"Make 2 coffees","shop":null,"title":"TODO"}"#;
    let code = r#"TodoUpdated {"message":"Make 2 coffees","title":"TODO"}"#;
    assert!(report.ends_with(&format!("the file: {file}\n  this code: {code}")), "{report}");
    assert!(
        report.contains("has an example that does not fit its shape, so correct one of them: shop is unknown"),
        "{report}"
    );
    for step in ["give the event a new version", "delete its entry", "skip_serializing_if"] {
        assert!(report.contains(step), "{report}");
    }
}

#[test]
fn all_differences_of_events_are_reported_with_the_next_step() {
    let both = r#""shape": {"title": "string", "message": "string"}"#;
    let changed = [(both, r#""shape": {"title": "string"}"#), ("TodoDeleted", "TodoRemoved"), (r#""id": "123", "#, "")];
    let report = report_of("changed-shape", &changed);
    for difference in [
        "the file: {\"title\":\"string\"}\n  this code: {\"message\":\"string\",\"title\":\"string\"}",
        "give the event a new version",
        "with `?` after its name",
        "an entry of TodoDeleted version 1 is missing: run `GOLDEN=write",
        "EVENTS of todo does not declare TodoRemoved version 1. If no release has ever stored it, delete its entry",
        "TodoCreated version 1 cannot be read: data: missing field `id`",
    ] {
        assert!(report.contains(difference), "{difference} is not in {report}");
    }
    // An entry that cannot be read at all has no member with a default.
    assert!(!report.contains("can be read without"), "{report}");
}

#[test]
fn first_entries_and_states_are_written_by_one_command_and_protect_from_then_on() {
    let folder = empty_folder("first-entries");
    let files = || GoldenFiles::new(Registry::new().with::<Todo>().unwrap(), &folder);
    assert!(
        report(&files()).contains("todo.json is missing: without it, nothing protects the stored events. Run `GOLDEN=")
    );
    files().writing().check();
    files().check();
    // An entry that a user has written, and one that is missing.
    let file = folder.join("todo.json");
    let mut entries: Vec<Value> = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(entries.len(), 3);
    let last = entries.pop().unwrap();
    fs::write(&file, serde_json::to_string_pretty(&entries).unwrap()).unwrap();
    assert!(report(&files()).contains(&format!("an entry of {} version 1 is missing", last["name"].as_str().unwrap())));
    files().writing().check();
    assert_eq!(serde_json::from_str::<Vec<Value>>(&fs::read_to_string(&file).unwrap()).unwrap()[2], last);
    fs::remove_file(folder.join("todo/state-2.json")).unwrap();
    assert!(report(&files()).contains("state-2.json is missing: run `GOLDEN=write"));
}

#[test]
fn files_of_a_renamed_type_are_replaced_until_a_release_has_stored_it() {
    let folder = empty_folder("renamed-type");
    let of = |text: &str| fs::read_to_string(folder.join(text)).unwrap();
    let gift = || GoldenFiles::new(Registry::new().with::<gift::Gift>().unwrap(), &folder);
    let steps = GoldenFiles::new(Registry::new().with::<Steps>().unwrap(), &folder);
    // The type that the registry had before, and another form of an event and of the state.
    let _ = catch_unwind(AssertUnwindSafe(|| steps.writing().check()));
    assert!(report(&gift()).contains("steps.json belongs to no registered type"));
    gift().replacing().check();
    assert!(!folder.join("steps.json").exists() && !folder.join("steps").exists());
    let (event, state) = (of("gift.json"), of("gift/state-1.json"));
    let changed = |event: &str, state: &str| {
        fs::write(folder.join("gift.json"), event).unwrap();
        fs::write(folder.join("gift/state-1.json"), state).unwrap();
    };
    let (other_event, other_state) = (event.replace("weight", "mass"), state.replace("GiftGiven", "GiftTaken"));
    changed(&other_event, &other_state);
    assert!(report(&gift().writing()).contains("has another shape than it was once stored in"));
    assert_eq!(of("gift.json"), other_event);
    gift().replacing().check();
    assert_eq!((of("gift.json"), of("gift/state-1.json")), (event.clone(), state.clone()));
    changed(&event, &other_state);
    gift().replacing().check();
    assert_eq!(of("gift/state-1.json"), state);
    // What shows that a release has stored it.
    let later = other_event.replace("\"version\": 1", "\"version\": 2");
    let reads = other_event.replace("\"data\"", "\"reads\": [], \"data\"");
    fs::write(folder.join("gift/state-2.json"), &state).unwrap();
    for released in [&other_event, &later, &reads] {
        fs::write(folder.join("gift.json"), released).unwrap();
        report(&gift().replacing());
        assert!(of("gift.json").contains("mass"), "{}", of("gift.json"));
        let _ = fs::remove_file(folder.join("gift/state-2.json"));
    }
}

mod gift {
    use daybook::{Aggregate, Context, Decision};

    pub(super) struct Gift;

    #[daybook::state]
    pub(super) struct State {}

    #[daybook::commands(create = Give)]
    pub(super) enum Command {
        Give {},
    }

    #[daybook::events]
    pub(super) enum Event {
        #[event("GiftGiven")]
        Given { from: Option<String>, weight: f64 },
    }

    #[daybook::aggregate("gift")]
    impl Aggregate for Gift {
        fn decide(_: &State, Command::Give {}: Command, _: &Context<'_, Event>) -> Decision<Event> {
            Ok(vec![Event::Given { from: None, weight: 1.0 }])
        }

        fn evolve(state: State, Event::Given { .. }: &Event) -> State {
            state
        }
    }
}

#[test]
fn example_of_an_event_is_written_as_the_code_stores_it() {
    let folder = empty_folder("optional-field");
    GoldenFiles::new(Registry::new().with::<gift::Gift>().unwrap(), &folder).writing().check();
    let file = fs::read_to_string(folder.join("gift.json")).unwrap();
    assert!(file.contains(r#""data": {"from":null,"weight":1.0}"#), "{file}");
}

#[test]
fn aggregate_that_is_not_registered_is_reported() {
    let folder = empty_folder("unregistered");
    fs::create_dir_all(folder.join("src/kinds")).unwrap();
    let source = |names: [&str; 2]| names.map(|name| format!("#[daybook::aggregate(\"{name}\")]\nimpl …\n")).concat();
    fs::write(folder.join("src/todo.rs"), source(["todo", "note"])).unwrap();
    fs::write(folder.join("src/kinds/other.rs"), source(["other", "todo"])).unwrap();
    fs::write(folder.join("src/README.md"), source(["text", "text"])).unwrap();
    let report = report(&GoldenFiles::new(Registry::new().with::<Todo>().unwrap(), folder.join("golden")).writing());
    let mut lines: Vec<_> = report.split("\n\n").collect();
    lines.sort_unstable();
    let found = ["kinds/other.rs: other", "todo.rs: note"].map(|name| {
        format!("{}/src/{name} is not registered: add `.with::<…>()?` beside the other types", folder.display())
    });
    assert_eq!(lines, found);
}

#[test]
fn entry_of_an_earlier_form_gets_what_it_is_read_as_and_stays_as_it_is() {
    let folder = empty_folder("earlier-form");
    let files = || GoldenFiles::new(Registry::new().with::<Order>().unwrap(), &folder);
    let entry = r#"{"name": "OrderPlaced",   "version": 1, "shape": {"id": "string", "customerId": "string", "productId": "string",
        "quantity": "integer uint32", "total": "integer int64"},
        "data": {"id": "1", "customerId": "alice", "productId": "coffee", "quantity": 2, "total": 4500}}"#;
    let golden = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/order.json")).unwrap();
    let entries: Vec<Value> = serde_json::from_str(&golden).unwrap();
    let others: Vec<_> = entries[1..].iter().map(Value::to_string).collect();
    let file = folder.join("order.json");
    fs::write(&file, format!("[{entry}, {}]", others.join(", "))).unwrap();
    assert!(report(&files()).contains("OrderPlaced version 1 is not written any more, and lacks `reads`"));
    files().writing().check();
    let written = fs::read_to_string(&file).unwrap();
    assert!(written.contains(entry.strip_suffix('}').unwrap()), "{written}");
    let written: Vec<Value> = serde_json::from_str(&written).unwrap();
    let data =
        json!({"id": "1", "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 4500});
    assert_eq!(written[0]["reads"], json!([{"type": "OrderPlaced", "data": data}]));
    assert_eq!(written[1..], entries[1..]);
}

/// An aggregate whose state loses something as JSON: a skipped field, a number that is NaN, or keys that are numbers.
struct Steps;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    sum: u64,
    #[serde(skip)]
    steps: u64,
    ratio: f64,
    #[serde(flatten)]
    counts: BTreeMap<u64, u64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Step {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Stepped {},
    Divided {},
    Counted {},
}

impl Aggregate for Steps {
    const TYPE: &'static str = "steps";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Step", update: None, delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("Stepped", 1), EventType::new("Divided", 1), EventType::new("Counted", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, Command::Step {}: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Stepped {}])
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event {
            Event::Stepped {} => (state.sum, state.steps) = (state.sum + state.steps, state.steps + 1),
            Event::Divided {} => state.ratio = f64::NAN,
            Event::Counted {} => state.counts.extend([(1, 1)]),
        }
        state
    }
}

#[test]
fn state_that_loses_something_in_a_snapshot_is_reported() {
    for (event, parts) in [
        (
            "Stepped",
            ["steps: Stepped has another effect after a snapshot", r#""sum": Number(1)"#, r#""sum": Number(0)"#],
        ),
        (
            "Divided",
            ["steps: no snapshot of the state can be read: invalid type: null, expected f64", "Its JSON is", "null"],
        ),
        (
            "Counted",
            ["steps: no snapshot of the state can be read: invalid type: string \"1\"", "Its JSON is", r#""1":1"#],
        ),
    ] {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lossy-state").join(event);
        fs::create_dir_all(&folder).unwrap();
        let entry = |name| json!({"name": name, "version": 1, "shape": {}, "data": {}});
        let events = ["Stepped", event, "Divided", "Counted"].map(entry);
        fs::write(folder.join("steps.json"), json!(events).to_string()).unwrap();
        let files = GoldenFiles::new(Registry::new().with::<Steps>().unwrap(), &folder);
        let report = report(&files);
        for part in parts {
            assert!(report.contains(part), "{part} is not in {report}");
        }
    }
}

#[test]
fn type_that_cannot_be_compared_does_not_hide_the_differences_of_others() {
    let folder = empty_folder("not-comparable");
    let entry = |name| json!({"name": name, "version": 1, "shape": {}, "data": {}});
    let events = ["Stepped", "Divided", "Counted"].map(entry);
    fs::write(folder.join("steps.json"), json!(events).to_string()).unwrap();
    fs::write(folder.join("order.json"), "[").unwrap();
    let registry = Registry::new().with::<Order>().unwrap().with::<Steps>().unwrap().with::<Todo>().unwrap();
    let report = report(&GoldenFiles::new(registry, &folder));
    for part in ["order.json: EOF while parsing", "steps: no snapshot of the state", "todo.json is missing"] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
}
