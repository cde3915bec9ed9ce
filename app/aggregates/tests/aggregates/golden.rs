//! The golden files of the aggregates, by the checks of `daybook::golden`.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use daybook::golden::GoldenFiles;
use daybook::{Aggregate, Commands, Context, Decision, EventType, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

fn check(check: impl FnOnce(&GoldenFiles)) {
    check(&GoldenFiles::new(aggregates::registry().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/golden")));
}

#[test]
fn golden_events_of_every_version_can_be_read() {
    check(GoldenFiles::golden_events_of_every_version_can_be_read);
}

#[test]
fn golden_event_is_read_as_its_entry_lists() {
    check(GoldenFiles::golden_event_is_read_as_its_entry_lists);
}

#[test]
fn shape_of_a_written_version_equals_its_golden_shape() {
    check(GoldenFiles::shape_of_a_written_version_equals_its_golden_shape);
}

#[test]
fn declared_forms_and_golden_entries_are_the_same() {
    check(GoldenFiles::declared_forms_and_golden_entries_are_the_same);
}

#[test]
fn golden_example_fits_its_shape() {
    check(GoldenFiles::golden_example_fits_its_shape);
}

#[test]
fn golden_entries_of_one_form_have_one_shape() {
    check(GoldenFiles::golden_entries_of_one_form_have_one_shape);
}

#[test]
fn data_of_another_form_is_unreadable() {
    check(GoldenFiles::data_of_another_form_is_unreadable);
}

#[test]
fn golden_file_belongs_to_a_registered_type() {
    check(GoldenFiles::golden_file_belongs_to_a_registered_type);
}

#[test]
fn states_of_the_golden_events_are_those_of_their_state_version() {
    check(GoldenFiles::states_of_the_golden_events_are_those_of_their_state_version);
}

/// What a check says about the golden file of the to-dos with a replaced text.
fn report(check: impl FnOnce(&GoldenFiles), part: &str, replaced: (&str, &str)) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(part);
    fs::create_dir_all(&folder).unwrap();
    let file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/todo.json")).unwrap();
    assert!(file.contains(replaced.0), "{}", replaced.0);
    fs::write(folder.join("todo.json"), file.replace(replaced.0, replaced.1)).unwrap();
    let files = GoldenFiles::new(aggregates::registry().unwrap(), &folder);
    let panic = catch_unwind(AssertUnwindSafe(|| check(&files))).unwrap_err();
    let report = *panic.downcast::<String>().unwrap();
    assert!(report.contains(&folder.join("todo.json").display().to_string()), "{report}");
    report
}

#[test]
fn changed_data_of_an_event_is_reported_with_the_next_step() {
    let check = GoldenFiles::golden_event_is_read_as_its_entry_lists;
    let file = r#"TodoUpdated {"message":"Make 2 coffees","shop":null,"title":"TODO"}"#;
    let code = r#"TodoUpdated {"message":"Make 2 coffees","title":"TODO"}"#;
    let report = report(check, "changed-data", (r#""Make 2 coffees""#, r#""Make 2 coffees", "shop": null"#));
    assert!(report.ends_with(&format!("todo.json: {file}\n  this code: {code}")), "{report}");
    for step in ["give the event a new version", "change its entry in the file", "skip_serializing_if"] {
        assert!(report.contains(step), "{report}");
    }
}

#[test]
fn changed_shape_of_an_event_is_reported_with_the_next_step() {
    let check = GoldenFiles::shape_of_a_written_version_equals_its_golden_shape;
    let both = r#""shape": {"title": "string", "message": "string"}"#;
    let report = report(check, "changed-shape", (both, r#""shape": {"title": "string"}"#));
    let code = r#"this code: {"message":"string","title":"string"}"#;
    assert!(report.ends_with(&format!("todo.json: {{\"title\":\"string\"}}\n  {code}")), "{report}");
    for step in ["give the event a new version", "change its entry in the file", "with `?` after its name"] {
        assert!(report.contains(step), "{report}");
    }
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
        fs::write(folder.join("steps.json"), json!([entry("Stepped"), entry(event)]).to_string()).unwrap();
        let files = GoldenFiles::new(Registry::new().with::<Steps>().unwrap(), &folder);
        let check = || files.states_of_the_golden_events_are_those_of_their_state_version();
        let panic = catch_unwind(AssertUnwindSafe(check)).unwrap_err();
        let report = *panic.downcast::<String>().unwrap();
        for part in parts {
            assert!(report.contains(part), "{part} is not in {report}");
        }
    }
}
