//! The events of a project's `events/` folder, and the responses that its API must return.
//!
//! A recorded response is compared member by member. `<id>` stands for a ULID, `<time>` for a time, and `…` at the end of a text
//! for any remainder. If a recorded value is JSON and the value in the response is text, the text is parsed as JSON.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_command_handler::openapi::samples;
use daybook_command_handler::{Api, ApiSettings, gateway, router};
use daybook_decider::Registry;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_local_aws::messaging::{Bus, Server};
use daybook_settings::Environment;
use daybook_table::attributes::PK;
use daybook_view_store::ViewStore;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::args::Project;

/// The time-out of an invocation, as in the template.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The end of the name of an event that creates an aggregate: no other response to it is recorded than that it does.
const CREATION: &str = "-create.json";

const CALLER_IS_NOBODY: &str = "its caller is nobody, whom `authorize` forbids it. Add a caller to its `requestContext`, such as \
     \"authorizer\": {\"jwt\": {\"claims\": {\"sub\": \"ann\", \"cognito:groups\": \"[staff]\"}}}";

const RULES_REJECT: &str = "give the fields of the command an `#[schemars(example = …)]` that your rules accept and delete the file, or \
     correct it. The events are sent in the order of their names: `1-NAME-create.json` comes before those that need it";

/// Sends the events in this folder to the API of the project, in the order of their names, over an empty table. The file
/// `NAME.json` is an event as AWS sends it, `NAME.answer.json` the response. The length of the response is not compared, because
/// the rest determines it. With `RECORD` in the environment, a response that has no file is recorded, and an aggregate type that no
/// event is sent to gets one that creates an aggregate.
pub fn check(project: Project, folder: &Path) -> Result<(), String> {
    let records = std::env::var_os("RECORD").is_some();
    let checked = Runtime::new().map_err(Into::into);
    let checked = checked.and_then(|runtime| runtime.block_on(check_all(project, folder, records)));
    checked.map_err(|error: Box<dyn Error>| error.to_string())
}

async fn check_all(project: Project, folder: &Path, records: bool) -> Result<(), Box<dyn Error>> {
    let database = LocalDynamoDb::in_memory().await?;
    let config = aws_config_at(database.url());
    let keys = [("KEYS_TABLE_NAME", "daybook-dev-keys"), ("PERSONAL_DATA_KEY", "local")];
    let environment = [("TABLE_NAME", "daybook-dev"), ("FEED_DELAY_MS", "0")].into_iter().chain(keys);
    let environment: Environment = environment.collect();
    let kms = Server::start(Bus::in_memory().router()).await?;
    database.create_table("daybook-dev-keys", PK)?;
    let store = EventStore::new(&config, StoreSettings::read(&environment)?);
    let store = store.with_keys(&environment, &aws_config_at(kms.url()))?;
    store.admin().create_table().await?;
    let views = ViewStore::new(&config, "daybook-dev-views".to_owned());
    views.create_table().await?;
    let api = Api::new((project.aggregates)()?, store, ApiSettings::read(&environment)?);
    let router = router(api.with_views((project.projections)()?, views));
    if records {
        add_creations(&(project.aggregates)()?, folder)?;
    }
    for path in events(folder)? {
        let event = read(&path)?;
        let mut response = gateway::respond(router.clone(), &event, TIMEOUT).await?;
        if let Some(headers) = response["headers"].as_object_mut() {
            headers.remove("content-length");
        }
        let creates = path.to_string_lossy().ends_with(CREATION) && !path.with_extension("answer.json").exists();
        if records && creates && response["statusCode"] != 201 {
            let has_caller = serde_json::from_str::<Value>(&event)?.pointer("/requestContext/authorizer").is_some();
            let what_to_do = match response["statusCode"] == 403 && !has_caller {
                true => CALLER_IS_NOBODY,
                false => RULES_REJECT,
            };
            return Err(format!(
                "{} creates nothing: {what_to_do}, and run the test with RECORD=1 again: {response:#}",
                path.display()
            )
            .into());
        }
        compare(&path, &event, &response, records)?;
    }
    Ok(())
}

/// Adds an event that creates an aggregate with example values, for each type that no event is sent to. A process is created by
/// the events of others.
fn add_creations(registry: &Registry, folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let mut sent = HashSet::new();
    for path in events(folder)? {
        let event: Value = serde_json::from_str(&read(&path)?)?;
        sent.extend(event["rawPath"].as_str().and_then(|path| path.split('/').nth(1)).map(str::to_owned));
    }
    for model in registry.iter().filter(|model| model.sources().is_empty() && !sent.contains(model.type_name())) {
        let (name, path) = (model.type_name(), format!("/{}", model.type_name()));
        let creation = samples(model).into_iter().find(|sample| sample["command"] == model.commands().create);
        let file = folder.join(format!("{name}{CREATION}"));
        let body = creation.map(|mut creation| creation["data"].take());
        let Some(mut body) = body.filter(|body| body.is_object() && !file.exists()) else {
            continue;
        };
        body["id"] = format!("{name}-1").into();
        let event = json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
            "headers": {"content-type": "application/json"},
            "requestContext": {"http": {"method": "POST", "path": path, "protocol": "HTTP/1.1"}, "stage": "$default"},
            "body": body.to_string(), "isBase64Encoded": false,
        });
        fs::write(&file, format!("{event:#}\n"))?;
    }
    Ok(())
}

fn events(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    let is_event =
        |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(".json") && !path.ends_with(".answer.json"));
    let mut events: Vec<_> = paths.into_iter().filter(is_event).collect();
    events.sort();
    Ok(events)
}

fn compare(path: &Path, event: &str, response: &Value, records: bool) -> Result<(), Box<dyn Error>> {
    let recorded = path.with_extension("answer.json");
    if records && !recorded.exists() {
        fs::write(&recorded, format!("{:#}\n", generalized(response, event)))?;
    }
    let file = recorded.display();
    if !recorded.exists() {
        return Err(format!("{file} does not exist; with RECORD=1, the test records the response").into());
    }
    let written: Value = serde_json::from_str(&read(&recorded)?)?;
    let (before, now) = (&written["statusCode"], &response["statusCode"]);
    let difference = match difference(&written, response, Extent::Whole) {
        None => return Ok(()),
        Some(_) if before != now => format!("the status was {before} and is {now}"),
        Some(difference) => difference,
    };
    Err(format!(
        "{file}: {difference}\nin {response:#}\nIf the response is right, delete the file, and run the test with RECORD=1. If a \
         command has changed, change the request first: {}",
        path.display()
    )
    .into())
}

fn read(path: &Path) -> Result<String, Box<dyn Error>> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    Whole,
    /// Over HTTP without an authorizer, there is no caller, and servers add further headers.
    OverHttp,
}

pub fn difference(written: &Value, actual: &Value, extent: Extent) -> Option<String> {
    differ("", written, actual, extent)
}

fn differ(at: &str, written: &Value, actual: &Value, extent: Extent) -> Option<String> {
    let differs =
        || Some(format!("at {at}: written is {:.300}, there is {:.300}", written.to_string(), actual.to_string()));
    match (written, actual) {
        (Value::String(id), Value::String(actual)) if id == "<id>" && is_id(actual) => None,
        (Value::String(time), Value::String(actual)) if time == "<time>" && is_time(actual) => None,
        (Value::String(beginning), Value::String(actual))
            if beginning.strip_suffix('…').is_some_and(|beginning| actual.starts_with(beginning)) =>
        {
            None
        }
        (Value::Array(written), Value::Array(actual)) if written.len() == actual.len() => written
            .iter()
            .zip(actual)
            .enumerate()
            .find_map(|(index, (written, actual))| differ(&format!("{at}/{index}"), written, actual, extent)),
        (Value::Object(written), Value::Object(actual)) => {
            let names = written.keys().chain(actual.keys().filter(|name| !written.contains_key(*name)));
            let compared = |name: &&String| match (extent, at) {
                (Extent::Whole, _) => true,
                (Extent::OverHttp, "/headers") => written.contains_key(*name) && *name != "content-length",
                (Extent::OverHttp, _) => !matches!(name.as_str(), "actor" | "owner"),
            };
            names.filter(compared).find_map(|name| match (written.get(name), actual.get(name)) {
                (Some(written), Some(actual)) => differ(&format!("{at}/{name}"), written, actual, extent),
                (Some(_), None) => Some(format!("at {at}: {name} is missing")),
                (None, _) => Some(format!("at {at}: {name} is unexpected")),
            })
        }
        (Value::Object(_) | Value::Array(_), Value::String(text)) => match serde_json::from_str(text) {
            Ok(actual @ (Value::Object(_) | Value::Array(_))) => differ(at, written, &actual, extent),
            Ok(_) | Err(_) => differs(),
        },
        (written, actual) if written == actual => None,
        _ => differs(),
    }
}

fn is_id(text: &str) -> bool {
    ulid::Ulid::from_string(text).is_ok()
}

fn is_time(text: &str) -> bool {
    let digits = |range| text.get(range).is_some_and(|part: &str| part.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() >= 20 && digits(0..4) && text.as_bytes()[10] == b'T' && digits(17..19) && text.ends_with('Z')
}

/// The value to record: ids and times that do not come from the event are replaced by placeholders, and JSON text by JSON.
pub fn generalized(actual: &Value, event: &str) -> Value {
    match actual {
        Value::String(text) if !event.contains(text) && is_id(text) => "<id>".into(),
        Value::String(text) if !event.contains(text) && is_time(text) => "<time>".into(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(json @ (Value::Object(_) | Value::Array(_))) => generalized(&json, event),
            Ok(_) | Err(_) => actual.clone(),
        },
        Value::Array(elements) => elements.iter().map(|element| generalized(element, event)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), generalized(member, event))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => actual.clone(),
    }
}

#[cfg(test)]
mod tests {
    use daybook_projection::Projections;

    use super::*;

    #[test]
    fn other_response_is_reported_with_its_status_and_how_to_record_it() {
        let folder = tempfile::tempdir().unwrap();
        let (event, answer) = (folder.path().join("a.json"), folder.path().join("a.answer.json"));
        let check = || {
            let project = Project::new(|| Ok(Registry::new()), || Ok(Projections::new()));
            check(project, folder.path()).unwrap_err()
        };
        fs::write(&event, include_str!("../../scaffold/template/event.json").replace("{{aggregate}}", "item")).unwrap();
        assert!(check().contains("a.answer.json does not exist; with RECORD=1, the test records the response"));
        fs::write(&answer, r#"{"statusCode": 201, "body": {"id": "item-1"}}"#).unwrap();
        let error = check();
        assert!(error.contains("a.answer.json: the status was 201 and is 404\nin {"), "{error}");
        assert!(error.contains("delete the file, and run the test with RECORD=1. If a command has changed"), "{error}");
        assert!(error.ends_with(&event.display().to_string()), "{error}");
    }

    #[test]
    fn types_without_an_event_get_one_that_creates_an_aggregate() {
        let folder = tempfile::tempdir().unwrap();
        let registry = aggregates::registry().unwrap();
        fs::write(folder.path().join("get.json"), r#"{"rawPath": "/todo/1"}"#).unwrap();
        add_creations(&registry, folder.path()).unwrap();
        let names = |end: &str| -> Vec<_> {
            let events = events(folder.path()).unwrap().into_iter();
            events.filter_map(|path| path.file_name()?.to_str()?.strip_suffix(end).map(str::to_owned)).collect()
        };
        let is_process = |name: &String| !registry.get(name).unwrap().sources().is_empty();
        let names = names("-create.json");
        assert!(!names.contains(&"todo".to_owned()) && !names.iter().any(is_process), "{names:?}");
        assert_eq!(names.len() + 1, registry.iter().filter(|model| model.sources().is_empty()).count());
        let order: Value = serde_json::from_str(&read(&folder.path().join("order-create.json")).unwrap()).unwrap();
        let body: Value = serde_json::from_str(order["body"].as_str().unwrap()).unwrap();
        assert_eq!((&order["rawPath"], &body["id"]), (&json!("/order"), &json!("order-1")));
        assert!(body["items"].is_array(), "{body}");
        fs::write(folder.path().join("order-create.json"), r#"{"rawPath": "/commands"}"#).unwrap();
        add_creations(&registry, folder.path()).unwrap();
        assert_eq!(read(&folder.path().join("order-create.json")).unwrap(), r#"{"rawPath": "/commands"}"#);
    }

    #[tokio::test]
    async fn response_that_creates_nothing_is_not_recorded_unseen() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::new(aggregates::registry, || Ok(Projections::new()));
        let creates_nothing = async |name: &str, what_to_do: &str| {
            let error = check_all(project, folder.path(), true).await.unwrap_err().to_string();
            assert!(error.contains(&format!("{name}-create.json creates nothing: {what_to_do}")), "{error}");
            assert!(!folder.path().join(format!("{name}-create.answer.json")).exists());
        };
        // A subscription needs a course and a student that exist. The second run finds the file that the first one wrote.
        creates_nothing("subscription", "give the fields").await;
        creates_nothing("subscription", "give the fields").await;
        // Nobody may send the commands of a process.
        let subscription = read(&folder.path().join("subscription-create.json")).unwrap();
        let mut event: Value = serde_json::from_str(&subscription.replace("/subscription", "/fulfilment")).unwrap();
        event["body"] = r#"{"id": "1", "total": 100}"#.into();
        let forbidden = folder.path().join("1-fulfilment-create.json");
        fs::write(&forbidden, event.to_string()).unwrap();
        creates_nothing("1-fulfilment", "its caller is nobody").await;
        event["requestContext"]["authorizer"]["jwt"]["claims"] = json!({"sub": "ann"});
        fs::write(&forbidden, event.to_string()).unwrap();
        creates_nothing("1-fulfilment", "give the fields").await;
    }

    #[test]
    fn comparison_ignores_ids_and_times_and_nothing_else() {
        let written = json!({"id": "<id>", "at": "<time>", "text": "six…", "detail": {"n": [1, "a"]}});
        let id = "01M7XZT6Q0G6DHYB4P1612VGXF";
        let came = json!({"id": id, "at": "2026-11-21T02:43:51.1Z", "text": "sixteen", "detail": "{\"n\":[1,\"a\"]}"});
        assert_eq!(difference(&written, &came, Extent::Whole), None);
        for name in ["id", "at", "detail"] {
            assert_eq!(generalized(&came, "")[name], written[name]);
        }
        assert_eq!(generalized(&came, id)["id"], id);
        for (pointer, value, expected) in [
            ("/id", json!("7"), "at /id: written is \"<id>\", there is \"7\""),
            ("/at", json!("today"), "at /at: written is \"<time>\", there is \"today\""),
            ("/text", json!("seven"), "at /text: written is \"six…\", there is \"seven\""),
            ("/detail", json!("{\"n\":[1]}"), "at /detail/n: written is [1,\"a\"], there is [1]"),
            ("/detail", json!({"n": [1, "b"]}), "at /detail/n/1: written is \"a\", there is \"b\""),
            ("/detail", json!({"n": [1, "a"], "m": 1}), "at /detail: m is unexpected"),
            ("/detail", json!({}), "at /detail: n is missing"),
        ] {
            let mut other = came.clone();
            *other.pointer_mut(pointer).unwrap() = value;
            assert_eq!(difference(&written, &other, Extent::Whole).as_deref(), Some(expected));
        }
        let (caller, nobody) = (json!({"meta": {"actor": "a"}, "owner": "a"}), json!({"meta": {}}));
        assert_eq!(difference(&caller, &nobody, Extent::OverHttp), None);
        assert!(difference(&caller, &nobody, Extent::Whole).is_some());
    }
}
