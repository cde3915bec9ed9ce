//! The events of a project's `events/` folder, and the responses that its API must return.
//!
//! A recorded response is compared member by member. `<id>` stands for a ULID, `<time>` for a time, and `…` at the end of a text
//! for any remainder. If a recorded value is JSON and the value in the response is text, the text is parsed as JSON.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use daybook_admin::AdminCalls;
use daybook_command_handler::{Api, ApiSettings, gateway, router};
use daybook_decider::{Caller, CommandError, CommandRequest, DecisionInput, Json, Meta, Registry, samples};
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

/// The types of the problems of a request whose aggregate type or command has changed.
const OUTDATED: [&str; 4] = ["unknown-type", "unknown-command", "invalid-command", "bad-body"];

const LEFT_OUT: &str = "no request was written, because `authorize` denies the creation to anonymous callers, and to those without \
     groups. If others may create one, copy a request of this folder, or of Daybook's repository, and add a caller to its \
     `requestContext`, such as \"authorizer\": {\"jwt\": {\"claims\": {\"sub\": \"ann\", \"cognito:groups\": \"[staff]\"}}}";

const CREATES_NOTHING: &str = "For each of them, give the fields of the command an `#[schemars(example = …)]` that your rules accept \
     and delete the file, or correct it: at a 403, the caller in its `requestContext`. Then run the test with RECORD=1 again. \
     The events are sent in the order of their names: `1-NAME-create.json` comes before those that need it";

/// Sends the events in this folder to the API of the project, in the order of their names, over an empty table. The file
/// `NAME.json` is an event as AWS sends it, `NAME.answer.json` the response. The length of the response is not compared, because
/// the rest determines it. With `RECORD` in the environment, a response that has no file is recorded, and an aggregate type that no
/// event is sent to gets one that creates an aggregate, if a caller without groups may. With `RECORD=replace`, each response that
/// differs is recorded, and an event that creates is deleted if its type, or the command in this form, does not exist any more.
pub fn check(project: Project, folder: &Path) -> Result<(), String> {
    let records = match std::env::var_os("RECORD") {
        None => Records::Nothing,
        Some(value) if value == "replace" => Records::Changed,
        Some(_) => Records::Missing,
    };
    let checked = Runtime::new().map_err(Into::into);
    let checked = checked.and_then(|runtime| runtime.block_on(check_all(project, folder, records)));
    checked.map_err(|error: Box<dyn Error>| error.to_string())
}

#[derive(Clone, Copy, PartialEq)]
enum Records {
    Nothing,
    Missing,
    Changed,
}

/// The API of a project over empty tables.
struct Sender {
    router: Router,
    _servers: (LocalDynamoDb, Server),
}

impl Sender {
    async fn start(project: &Project) -> Result<Self, Box<dyn Error>> {
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
        Ok(Self { router, _servers: (database, kms) })
    }

    async fn send(&self, event: &str) -> Result<Value, Box<dyn Error>> {
        let mut response = gateway::respond(self.router.clone(), event, TIMEOUT).await?;
        if let Some(headers) = response["headers"].as_object_mut() {
            headers.remove("content-length");
        }
        Ok(response)
    }
}

async fn check_all(project: Project, folder: &Path, records: Records) -> Result<(), Box<dyn Error>> {
    if records != Records::Nothing {
        fs::create_dir_all(folder)?;
    }
    if records == Records::Changed {
        delete_creations(&Sender::start(&project).await?, folder).await?;
    }
    let sender = Sender::start(&project).await?;
    if records != Records::Nothing {
        let left_out = add_creations(&(project.aggregates)()?, folder)?;
        if !left_out.is_empty() {
            // Not by a macro, because the output of those is shown only for a test that fails.
            writeln!(std::io::stderr(), "{}: {LEFT_OUT}", left_out.join(", "))?;
        }
    }
    let mut refused = String::new();
    for path in events(folder)? {
        let event = read(&path)?;
        let response = sender.send(&event).await?;
        let creates = path.to_string_lossy().ends_with(CREATION) && !path.with_extension("answer.json").exists();
        if records != Records::Nothing && creates && response["statusCode"] != 201 {
            refused += &format!("{} creates nothing: {response:#}\n", path.display());
        } else if refused.is_empty() || creates {
            // Other requests may need what was not created.
            compare(&path, &event, &response, records)?;
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(format!("{refused}{CREATES_NOTHING}").into()) }
}

/// Deletes each event that once created an aggregate of a type, or by a command of a form, that does not exist any more.
async fn delete_creations(sender: &Sender, folder: &Path) -> Result<(), Box<dyn Error>> {
    for path in events(folder)? {
        let response = sender.send(&read(&path)?).await?;
        let answer = path.with_extension("answer.json");
        let body = response["body"].as_str().unwrap_or_default();
        let is_outdated = OUTDATED.iter().any(|problem| body.contains(&format!("urn:daybook:problem:{problem}\"")));
        if is_outdated && path.to_string_lossy().ends_with(CREATION) && answer.exists() {
            fs::remove_file(&path)?;
            fs::remove_file(answer)?;
        }
    }
    Ok(())
}

/// Adds an event that creates an aggregate with example values, for each type that no event is sent to. A process is created by
/// the events of others. Returns the types that it leaves out, because `authorize` denies their creation.
fn add_creations(registry: &Registry, folder: &Path) -> Result<Vec<&'static str>, Box<dyn Error>> {
    let mut left_out = Vec::new();
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
        let id = format!("{name}-1");
        let create = [CommandRequest { command: model.commands().create.to_owned(), data: Json::of(&body)? }];
        let may_create = |caller| {
            let input = DecisionInput::new(Default::default(), Default::default(), Meta::default(), caller, 1);
            let decided = model.decide(&model.before_first_event(), &id, &create, &input);
            !matches!(decided, Err(CommandError::Forbidden { .. }))
        };
        let is_open = may_create(Caller::anonymous());
        if !is_open && !may_create(Caller::named("ann")) {
            left_out.push(name);
            continue;
        }
        body["id"] = id.into();
        let mut event = json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "",
            "headers": {"content-type": "application/json"},
            "requestContext": {"http": {"method": "POST", "path": path, "protocol": "HTTP/1.1"}, "stage": "$default"},
            "body": body.to_string(), "isBase64Encoded": false,
        });
        if !is_open {
            event["requestContext"]["authorizer"] = json!({"jwt": {"claims": {"sub": "ann"}}});
        }
        fs::write(&file, format!("{event:#}\n"))?;
    }
    Ok(left_out)
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

fn compare(path: &Path, event: &str, response: &Value, records: Records) -> Result<(), Box<dyn Error>> {
    let recorded = path.with_extension("answer.json");
    let record = || fs::write(&recorded, format!("{:#}\n", generalized(response, event)));
    if records != Records::Nothing && !recorded.exists() {
        record()?;
    }
    let file = recorded.display();
    if !recorded.exists() {
        return Err(format!("{file} does not exist; with RECORD=1, the test records the response").into());
    }
    let written: Value = serde_json::from_str(&read(&recorded)?)?;
    let (before, now) = (&written["statusCode"], &response["statusCode"]);
    let difference = match difference(&written, response, Extent::Whole) {
        None => return Ok(()),
        Some(_) if records == Records::Changed => return Ok(record()?),
        Some(_) if before != now => format!("the status was {before} and is {now}"),
        Some(difference) => difference,
    };
    Err(format!(
        "{file}: {difference}\nin {response:#}\nIf the response is right, run the test with RECORD=replace. If a command has \
         changed, change the request first: {}",
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
    use daybook_decider::{Access, Aggregate, Authorization, Commands, Context, Decision, EventType};
    use daybook_projection::Projections;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

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
        assert!(error.contains("run the test with RECORD=replace. If a command has changed"), "{error}");
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
    async fn responses_that_create_nothing_are_reported_together_and_not_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::new(aggregates::registry, || Ok(Projections::new()));
        let file = |name: &str| folder.path().join(name);
        // Nobody may send the commands of a process.
        let forbidden = include_str!("../../scaffold/template/event.json").replace("{{aggregate}}", "fulfilment");
        fs::write(file("1-fulfilment-create.json"), &forbidden).unwrap();
        // Depends on the creations, so it is not recorded before these are correct.
        fs::write(file("2.json"), &forbidden).unwrap();
        // The second run finds the files that the first one wrote.
        for _ in 0..2 {
            let error = check_all(project, folder.path(), Records::Missing).await.unwrap_err().to_string();
            // A subscription needs a course and a student that exist.
            for name in ["1-fulfilment", "subscription"] {
                assert!(error.contains(&format!("{name}-create.json creates nothing: {{")), "{error}");
                assert!(!file(&format!("{name}-create.answer.json")).exists());
            }
            assert!(error.contains("}\nFor each of them, give the fields"), "{error}");
            assert!(file("order-create.answer.json").exists() && !file("2.answer.json").exists());
        }
    }

    /// A purse, which callers with a name may open, or only the system.
    struct Purse<const BY_CALLERS: bool>;

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data", deny_unknown_fields)]
    enum Command {
        Open {},
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "type", content = "data")]
    enum Event {
        Opened {},
    }

    impl<const BY_CALLERS: bool> Aggregate for Purse<BY_CALLERS> {
        const TYPE: &'static str = "purse";
        const STATE_VERSION: u32 = 1;
        const COMMANDS: Commands = Commands { create: "Open", update: None, delete: None };
        const EVENTS: &'static [EventType] = &[EventType::new("Opened", 1)];

        type State = ();
        type Command = Command;
        type Event = Event;

        fn decide((): &(), Command::Open {}: Command, _: &Context<'_, Event>) -> Decision<Event> {
            Ok(vec![Event::Opened {}])
        }

        fn evolve((): (), Event::Opened {}: &Event) {}

        fn authorize(caller: &Caller, _: Access<'_, Command>, _: Option<&str>, _: Option<&()>) -> Authorization {
            (caller.is_system() || (BY_CALLERS && caller.principal.is_some())).into()
        }
    }

    #[tokio::test]
    async fn creation_gets_a_caller_who_may_send_it_or_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let creation = folder.path().join("purse-create.json");
        let by_system = || Registry::new().with::<Purse<false>>();
        assert_eq!(add_creations(&by_system().unwrap(), folder.path()).unwrap(), ["purse"]);
        check_all(Project::new(by_system, || Ok(Projections::new())), folder.path(), Records::Missing).await.unwrap();
        assert!(!creation.exists());
        let by_callers = || Registry::new().with::<Purse<true>>();
        check_all(Project::new(by_callers, || Ok(Projections::new())), folder.path(), Records::Missing).await.unwrap();
        let recorded: Value = serde_json::from_str(&read(&creation.with_extension("answer.json")).unwrap()).unwrap();
        assert_eq!(recorded["statusCode"], 201);
    }

    #[tokio::test]
    async fn outdated_creations_and_changed_responses_are_replaced_by_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        // A type that does not exist any more, a command that has other fields now, and a request of the user.
        for (name, aggregate) in [("item-create", "item"), ("purse-create", "purse"), ("get", "item")] {
            let event = include_str!("../../scaffold/template/event.json").replace("{{aggregate}}", aggregate);
            fs::write(file(&format!("{name}.json")), event).unwrap();
            fs::write(file(&format!("{name}.answer.json")), r#"{"statusCode": 201}"#).unwrap();
        }
        let project = Project::new(|| Registry::new().with::<Purse<true>>(), || Ok(Projections::new()));
        check_all(project, folder.path(), Records::Missing).await.unwrap_err();
        assert!(file("item-create.json").exists());
        check_all(project, folder.path(), Records::Changed).await.unwrap();
        assert!(!file("item-create.json").exists() && !file("item-create.answer.json").exists());
        let status = |name| serde_json::from_str::<Value>(&read(&file(name)).unwrap()).unwrap()["statusCode"].take();
        assert_eq!((status("purse-create.answer.json"), status("get.answer.json")), (json!(201), json!(404)));
        check_all(project, folder.path(), Records::Nothing).await.unwrap();
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
