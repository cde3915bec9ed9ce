//! Every file in `events/` is an event as AWS sends it, or the expected result of one, and the functions return these results.
//!
//! The functions receive the same events in several ways: in this process as Lambda calls them, over HTTP, and (by
//! `.ci/local-invoke`) in containers. `RECORD=1` records the result of a new event; review the recorded file.
//!
//! In reading order: the tests, then `files` (the files of the folder) and `functions` (the ways to call a function).

mod files;
mod functions;

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_cli::fixtures::{Extent, difference, generalized};
use serde_json::{Value, json};
use suite_tests::{PATIENCE, Suite, workspace};

use self::files::{API, Event, FUNCTIONS, Function};
pub(crate) use self::files::{read, records};
use self::functions::{Endpoints, Functions};
pub(crate) use self::functions::{call_api, environment};

/// The events in the order of `events/README.md`, in which they must be sent.
fn in_order(function: &Function) -> Vec<Event<'_>> {
    let readme = read("README.md");
    let section = readme.split("\n## ").find(|section| section.starts_with(function.folder)).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| Event::new(function, name.strip_suffix(".json").unwrap())).collect()
}

#[test]
fn each_file_is_documented_and_used() {
    let mut used: BTreeSet<String> = ["README.md", "env.json"].map(str::to_owned).into();
    for function in &FUNCTIONS {
        for event in in_order(function) {
            let files = [event.path("json"), event.path("answer.json")].into_iter();
            for file in files.chain(function.effects.iter().map(|effect| event.path(effect))) {
                assert!(used.insert(file.clone()), "{file} is documented twice");
            }
        }
    }
    assert_eq!(used, files::all());
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_return_the_recorded_responses() {
    let suite = Suite::start().await;
    let endpoints = Endpoints::of(&suite);
    let functions = Functions::in_process(&endpoints);
    for function in &FUNCTIONS {
        for event in in_order(function) {
            check(&event, &functions, &endpoints).await;
        }
    }
}

/// Without environment variables, the events go over HTTP to the API of a local stack. `.ci/local-invoke` sets
/// variables for functions in containers.
#[tokio::test(flavor = "multi_thread")]
async fn functions_outside_of_this_process_return_the_recorded_responses() {
    let suite = Suite::start().await;
    let (endpoints, functions) = functions::elsewhere().unwrap_or_else(|| {
        let endpoints = Endpoints::of(&suite);
        let functions = Functions::Http { url: endpoints.api.clone() };
        (endpoints, functions)
    });
    for function in if matches!(functions, Functions::Http { .. }) { &[API][..] } else { &FUNCTIONS[..] } {
        for event in in_order(function) {
            let began = std::time::Instant::now();
            check(&event, &functions, &endpoints).await;
            println!("{} ({:.1} s)", event.path("json"), began.elapsed().as_secs_f64());
        }
    }
}

/// With this file, `sam local` needs no flags.
#[test]
fn samconfig_sets_the_endpoints_of_the_local_stack() {
    let samconfig = std::fs::read_to_string(workspace().join("samconfig.toml")).unwrap();
    for command in ["local_invoke", "local_start_api"] {
        let section = samconfig.split(&format!("[default.{command}.parameters]\n")).nth(1).unwrap();
        let section = section.split("\n[").next().unwrap();
        let setting = |name: &str| {
            let line = section.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = ")).unwrap();
            line.trim_matches(['[', ']']).trim_matches('"').to_owned()
        };
        let functions: Value =
            serde_json::from_str(&read(setting("env_vars").strip_prefix("events/").unwrap())).unwrap();
        let host = setting("add_host").split(':').next().unwrap().to_owned();
        let variables = functions.as_object().unwrap().values().flat_map(|of| of.as_object().unwrap());
        for (name, url) in variables.filter(|(name, _)| name.ends_with("_URL") || name.contains("ENDPOINT")) {
            assert!(url.as_str().unwrap().starts_with(&format!("http://{host}:")), "{name} is {url}");
        }
    }
}

/// Sends the API's events to a router, and ignores the responses.
pub(crate) async fn run_api(api: &axum::Router) {
    for event in in_order(&API) {
        functions::call_api(api, &event.text()).await;
    }
}

/// Sends one of the API's events to a router, and ignores the response.
pub(crate) async fn run_api_event(api: &axum::Router, name: &str) {
    functions::call_api(api, &Event::new(&API, name).text()).await;
}

/// Calls a function with an event, and compares its response and its effects with the recorded ones.
async fn check(event: &Event<'_>, functions: &Functions, endpoints: &Endpoints) {
    if !event.function.effects.is_empty() {
        endpoints.until_sent().await;
    }
    let mut before = Vec::new();
    for effect in event.function.effects {
        before.push(endpoints.effect(effect).await.len());
    }
    let response = functions.call(event).await;
    let extent = if matches!(functions, Functions::Http { .. }) { Extent::OverHttp } else { Extent::Whole };
    expect(event, "answer.json", &response, extent);
    for (&effect, before) in event.function.effects.iter().zip(before) {
        // A snapshot or a row replaces the one before, so all of them are compared. Messages are only added.
        let mut new = endpoints.effect(effect).await;
        if ["bus.json", "dlq.json"].contains(&effect) {
            new.drain(..before);
        }
        // Messages of different aggregates arrive on the bus in any order.
        new.sort_by_key(|effect| effect["resources"].to_string());
        expect(event, effect, &json!(new), Extent::Whole);
    }
}

fn expect(event: &Event<'_>, part: &str, actual: &Value, extent: Extent) {
    let path = event.path(part);
    if extent == Extent::Whole && std::env::var_os("RECORD").is_some() && !files::all().contains(&path) {
        let recorded = serde_json::to_string_pretty(&generalized(actual, &event.text())).unwrap();
        std::fs::write(workspace().join("events").join(&path), recorded + "\n").unwrap();
    }
    let written: Value = serde_json::from_str(&read(&path)).unwrap();
    if let Some(difference) = difference(&written, actual, extent) {
        panic!("{path}: {difference}\nin {:.2000}", format!("{actual:#}"));
    }
}

#[test]
fn images_of_stream_records_equal_the_items_of_the_table() {
    for (path, record) in records() {
        let Some(image) = record["dynamodb"].get("NewImage") else { continue };
        let sk = image["sk"]["S"].as_str().unwrap();
        let poison = path == "stream-relay/poison.json" && sk == "OUTBOX#000000000002#0";
        let image: serde_dynamo::Item = serde_json::from_value(image.clone()).unwrap();
        let read = match sk.split_once('#').unwrap().0 {
            "OUTBOX" => same_item::<daybook_table::OutboxItem>(&image),
            "EVENT" => same_item::<daybook_table::EventItem>(&image),
            "SNAPSHOT" => same_item::<daybook_table::SnapshotItem>(&image),
            "IDEMPOTENCY" => same_item::<daybook_table::IdempotencyItem>(&image),
            "" if sk == "#SNAPSHOT" => same_item::<daybook_table::SnapshotItem>(&image),
            "" => serde_dynamo::from_item::<_, daybook_table::Metadata>(image.clone()).is_ok(),
            other => panic!("{path}: no item is called {other}"),
        };
        assert_eq!(read, !poison, "{path}: {sk}");
    }
}

/// Whether the image equals the item that the table would store, attribute by attribute.
fn same_item<T: serde::Serialize + serde::de::DeserializeOwned>(image: &serde_dynamo::Item) -> bool {
    let item: Result<T, _> = serde_dynamo::from_item(image.clone());
    item.is_ok_and(|item| serde_dynamo::to_item::<_, serde_dynamo::Item>(item).unwrap() == *image)
}

#[test]
fn stream_records_have_the_form_that_lambda_delivers() {
    let mut numbers = BTreeSet::new();
    for (path, record) in records() {
        let stream = record["eventSourceARN"].as_str().unwrap().to_owned();
        assert!(stream.starts_with("arn:aws:dynamodb:") && stream.contains("/stream/"), "{path}: {stream}");
        // The additions of Lambda are already present, so nothing changes.
        let delivered = daybook_event_source_mapping::Record::from_stream(record.clone(), &stream).unwrap();
        assert_eq!(delivered.json(), &record, "{path}");
        for key in ["pk", "sk"] {
            let image = &record["dynamodb"]["NewImage"][key];
            assert!(image.is_null() || *image == record["dynamodb"]["Keys"][key], "{path}");
        }
        assert_eq!(record["eventName"] == "REMOVE", record["dynamodb"].get("NewImage").is_none(), "{path}");
        assert!(numbers.insert(delivered.sequence_number().clone()), "{path}: {}", delivered.sequence_number());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_the_api_commands_arrive_on_the_bus() {
    let suite = Suite::start().await;
    let endpoints = Endpoints::of(&suite);
    let functions = Functions::in_process(&endpoints);
    for event in in_order(&API) {
        functions.call(&event).await;
    }
    let types = [
        "accountOverdrawn",
        "transactionFailed",
        "OrderPlaced",
        "PaymentProcessed",
        "TodoCreated",
        "TodoDeleted",
        "CourseCreated",
        "CourseSeatTaken",
        "StudentEnrolled",
        "StudentJoinedCourse",
        "StudentSubscribed",
        // Of the process that the order begins.
        "FulfilmentBegun",
        "PaymentRequested",
    ];
    let arrived = async || -> Vec<String> {
        let bus = endpoints.effect("bus.json").await;
        bus.iter().map(|entry| entry["detailType"].as_str().unwrap().to_owned()).collect()
    };
    let all_arrived = async {
        while arrived().await.len() < types.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, all_arrived).await;
    let mut arrived = arrived().await;
    arrived.sort();
    let mut types = types;
    types.sort();
    assert_eq!(arrived, types);
}
