//! The template agrees with the code: filters of records, variables and permissions of the functions.

mod access;
mod alarms;
mod dashboard;
mod deployment;
mod expression;
mod fan_out;
mod hook;
mod instances;
mod monitoring;
mod operations;
mod operator;
mod operators;
mod other_table;
mod parameters;
mod roles;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_event_source_mapping::template::{Function, Setting};
use daybook_event_source_mapping::{MappingSettings, RecordFilter, Template};
use daybook_event_store::StoreSettings;
use daybook_function_runtime::aws_config_at;
use daybook_function_runtime::traces::SpanExporter;
use daybook_local_aws::messaging::{Bus, Server};
use daybook_settings::{Environment, SettingError};
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::Relay;
use daybook_test_support::table::TestTable;
use serde_json::{Value, json};
use serde_yaml_ng::Value as Yaml;
use suite_tests::workspace;
use tokio::time::Instant;

use crate::fixtures;

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn text() -> String {
    read("template.yaml")
}

fn template() -> Template {
    Template::parse(&text()).unwrap()
}

/// A template in which `!Ref x`, `!GetAtt x` and `!Sub x` are replaced by the text x, as it is without read models, reactor and
/// key, and with a table of its own.
fn plain(text: &str) -> Value {
    Plain { parts: false, own_table: true }.of_text(text)
}

/// The same with read models, reactor and key.
fn plain_with_parts(text: &str) -> Value {
    Plain { parts: true, own_table: true }.of_text(text)
}

/// The same with all of them and another table, whose stream is not read.
fn plain_with_another_table(text: &str) -> Value {
    Plain { parts: true, own_table: false }.of_text(text)
}

struct Plain {
    parts: bool,
    own_table: bool,
}

impl Plain {
    fn of_text(&self, text: &str) -> Value {
        self.of(serde_yaml_ng::from_str(text).unwrap()).unwrap()
    }

    /// `None` for the branch `AWS::NoValue` of a condition that is known here.
    fn of(&self, yaml: Yaml) -> Option<Value> {
        match yaml {
            Yaml::Tagged(tagged) if tagged.tag == "If" => self.branch(tagged.value),
            Yaml::Tagged(tagged) if tagged.tag == "Join" => {
                let joined = self.of(tagged.value)?;
                let parts = joined[1].as_array().into_iter().flatten().map(Value::as_str);
                let parts: Option<Vec<_>> = parts.collect();
                Some(parts.map_or(joined.clone(), |parts| parts.join(joined[0].as_str().unwrap()).into()))
            }
            Yaml::Tagged(tagged) => self.of(tagged.value),
            Yaml::Sequence(elements) => Some(elements.into_iter().filter_map(|element| self.of(element)).collect()),
            Yaml::Mapping(mut members) => {
                if let Some(branches) = members.remove("Fn::If") {
                    return self.branch(branches);
                }
                let member =
                    |(name, value): (Yaml, Yaml)| Some((name.as_str().unwrap_or_default().to_owned(), self.of(value)?));
                Some(members.into_iter().filter_map(member).collect())
            }
            scalar => Some(serde_json::to_value(scalar).unwrap()),
        }
    }

    fn branch(&self, branches: Yaml) -> Option<Value> {
        match branches {
            Yaml::Sequence(mut branches) => {
                let condition = match branches[0].as_str() {
                    Some("HasKey" | "HasReadModels" | "HasReactor" | "SendsChanges") => self.parts,
                    Some("CreatesTable" | "MappingsRead") => self.own_table,
                    _ => return self.of(Yaml::Sequence(branches)),
                };
                let branch = branches.swap_remove(if condition { 1 } else { 2 });
                self.of(branch).filter(|value| value != "AWS::NoValue")
            }
            branches => self.of(branches),
        }
    }
}

/// The template's resources of a type, by their names.
fn resources(template: &Value, of_type: &str) -> BTreeMap<String, Value> {
    let all = template["Resources"].as_object().unwrap().iter();
    all.filter(|(_, resource)| resource["Type"] == of_type)
        .map(|(name, resource)| (name.clone(), resource.clone()))
        .collect()
}

/// The templates of the optional parts, each with its function.
const PARTS: [(&str, &str); 2] = [("deploy/read-models.yaml", "Projector"), ("deploy/reactor.yaml", "Reactor")];

/// A value of the parameter for a key.
const KEY: (&str, &str) = ("KmsKeyArn", "arn:aws:kms:eu-central-1:1:key/2");

/// The template with all parts, and those of its nested stacks.
fn template_with_parts() -> Template {
    let mut template =
        Template::with_parameters(&text(), &[("ReadModels", "true"), ("Reactor", "processes"), KEY]).unwrap();
    for (file, _) in PARTS {
        template.functions.extend(Template::parse(&read(file)).unwrap().functions);
    }
    template
}

/// The template that has this function.
fn template_of(id: &str) -> Value {
    let file = PARTS.iter().find(|(_, function)| *function == id).map_or("template.yaml", |(file, _)| *file);
    plain_with_parts(&read(file))
}

fn function(id: &str) -> Function {
    template().functions.remove(id).unwrap_or_else(|| panic!("the template has no function {id}"))
}

/// A function's only mapping.
fn mapping(id: &str) -> MappingSettings {
    let streams = function(id).streams;
    assert_eq!(streams.len(), 1, "{id}");
    streams.into_values().next().unwrap().settings
}

// Filters and mappings.

#[test]
fn mappings_have_the_settings_that_lose_no_record() {
    let common = MappingSettings {
        batch_size: 100,
        bisect_batch_on_function_error: true,
        maximum_retry_attempts: None,
        maximum_record_age: Some(Duration::from_secs(23 * 60 * 60)),
        report_batch_item_failures: true,
        ..MappingSettings::default()
    };
    let (relay, snapshotter) = (mapping("StreamRelay"), mapping("Snapshotter"));
    assert_eq!(relay, MappingSettings { filter: relay.filter.clone(), ..common.clone() });
    assert_eq!(
        snapshotter,
        MappingSettings {
            filter: snapshotter.filter.clone(),
            batching_window: Duration::from_secs(1),
            parallelization_factor: 2,
            ..common
        }
    );
    let template = plain(&text());
    for id in ["StreamRelay", "Snapshotter"] {
        for name in function(id).streams.keys() {
            let event = &template["Resources"][id]["Properties"]["Events"][name]["Properties"];
            assert_eq!(
                (&event["Stream"], &event["StartingPosition"]),
                (&json!("Table.StreamArn"), &json!("TRIM_HORIZON"))
            );
            assert_eq!(event["Enabled"], "MappingsEnabled");
            // A queue would receive only the position of the records.
            assert_eq!(event["DestinationConfig"]["OnFailure"]["Type"], "S3");
        }
    }
}

/// The records of all stream events, and similar records.
fn records() -> Vec<Value> {
    let mut records: Vec<_> = fixtures::records().into_iter().map(|(_, record)| record).collect();
    for (pointer, values) in [
        ("/eventName", vec![json!("INSERT"), json!("MODIFY"), json!("REMOVE")]),
        ("/dynamodb/NewImage/snapshotDue", vec![json!({"BOOL": true}), json!({"BOOL": false}), json!({"S": "true"})]),
    ] {
        let changed: Vec<_> = records
            .iter()
            .flat_map(|record| values.iter().map(move |value| (record.clone(), value.clone())))
            .filter_map(|(mut record, value)| {
                *record.pointer_mut(pointer)? = value;
                Some(record)
            })
            .collect();
        records.extend(changed);
    }
    records
}

/// Asserts that the filter passes exactly the records that the function processes, and that there are records of either kind.
fn assert_agree(filter: &RecordFilter, processed: &[(Value, bool)]) {
    for (record, is_processed) in processed {
        assert_eq!(filter.matches(record), *is_processed, "{record:#}");
    }
    for is_processed in [true, false] {
        assert!(
            processed.iter().any(|(_, one)| *one == is_processed),
            "there is no record for which `is_processed` is {is_processed}"
        );
    }
}

#[tokio::test]
async fn filter_of_the_relay_passes_exactly_the_records_that_it_processes() {
    let bus = Bus::with("daybook", "daybook-dlq");
    let server = Server::start(bus.router()).await.unwrap();
    let config = aws_config_at(server.url());
    let clients = (daybook_stream_relay::clients::eventbridge(&config), daybook_stream_relay::clients::sqs(&config));
    let settings = daybook_stream_relay::RelaySettings::read(&fixtures::environment("StreamRelay")).unwrap();
    let relay = Relay::new(clients.0, clients.1, settings);
    let mut processed = Vec::new();
    for (number, record) in records().into_iter().enumerate() {
        // The relay ignores a record that it has settled.
        let mut delivered = record.clone();
        delivered["eventID"] = number.to_string().into();
        let seen = || bus.put_events_calls().len() + bus.dead_letters().len();
        let before = seen();
        let batch = serde_json::from_value(json!({"Records": [delivered]})).unwrap();
        relay.handle(batch, Instant::now() + Duration::from_secs(30)).await.unwrap();
        processed.push((record, seen() > before));
    }
    assert_agree(&mapping("StreamRelay").filter, &processed);
}

#[tokio::test]
async fn filter_of_the_snapshotter_passes_exactly_the_records_that_it_processes() {
    let settings = StoreSettings::read(&fixtures::environment("Snapshotter")).unwrap();
    let table = TestTable::with(settings).await;
    let snapshotter = Snapshotter::new(aggregates::registry().unwrap(), table.store());
    let mut processed = Vec::new();
    for record in records() {
        table.proxy.take_calls();
        // The snapshotter would read nothing for a type that is not registered.
        let known = record.to_string().replace("AGGREGATE#invoice#", "AGGREGATE#account#");
        let batch = serde_json::from_str(&format!("{{\"Records\":[{known}]}}")).unwrap();
        snapshotter.handle(batch, Instant::now() + Duration::from_secs(30)).await.unwrap();
        processed.push((record, !table.proxy.take_calls().is_empty()));
    }
    assert_agree(&mapping("Snapshotter").filter, &processed);
}

// Settings of the functions.

/// The file that reads the variables of the store.
const STORE: &str = "event-store/src/store.rs";

/// The functions, the files that read their own variables, and the variables of the store that they use.
const FUNCTIONS: [(&str, &str, &[&str]); 5] = [
    (
        "CommandHandler",
        "command-handler/src/settings.rs",
        &["EPOCH", "EVENT_TYPE_SHARDS", "FEED_DELAY_MS", "OUTBOX_TTL_DAYS", "SNAPSHOT_EVERY", "TABLE_NAME"],
    ),
    ("Projector", "projector/src/function.rs", &[]),
    (
        "Reactor",
        "reactor/src/function.rs",
        &["EPOCH", "EVENT_TYPE_SHARDS", "OUTBOX_TTL_DAYS", "SNAPSHOT_EVERY", "TABLE_NAME"],
    ),
    ("Snapshotter", "snapshotter/src/function.rs", &["SNAPSHOT_EVERY", "TABLE_NAME"]),
    ("StreamRelay", "stream-relay/src/settings.rs", &[]),
];

/// The variables that the code of a file reads, each with whether it is required.
fn read_in(file: &str) -> BTreeMap<String, bool> {
    let code = std::fs::read_to_string(workspace().join("crates").join(file)).unwrap();
    let code: String = code.split_whitespace().collect();
    let mut variables = BTreeMap::new();
    for (getter, is_required) in
        [(".required(\"", true), (".optional(\"", false), (".number(\"", false), (".flag(\"", false)]
    {
        let names = code.split(getter).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        variables.extend(names.map(|name| (name, is_required)));
    }
    // Lambda sets these.
    variables.retain(|name, _| !name.starts_with("AWS_LAMBDA_"));
    variables
}

/// The variables that each function uses.
fn variables() -> [(&'static str, BTreeMap<String, bool>); 5] {
    let of_the_store = read_in(STORE);
    FUNCTIONS.map(|(id, file, used)| {
        let used = used.iter().map(|&name| (name.to_owned(), of_the_store[name]));
        (id, read_in(file).into_iter().chain(used).collect())
    })
}

/// The optional variables that may have any value.
const NAMES: [&str; 6] =
    ["CHANGES_QUEUE_URL", "KEYS_TABLE_NAME", "PERSONAL_DATA_KEY", "REACTIONS_QUEUE_URL", "REACTOR", "VIEWS_TABLE_NAME"];

/// The variables of logs, metrics, traces and the AWS SDK. `sam local` replaces only endpoints that are declared.
fn of_libraries(id: &str) -> Vec<&'static str> {
    let traces = [SpanExporter::ENDPOINT, SpanExporter::HEADERS];
    let services: &[_] = match id {
        "CommandHandler" | "Projector" | "Snapshotter" => &["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_KMS"],
        "Reactor" => &["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_KMS", "AWS_ENDPOINT_URL_SQS"],
        "StreamRelay" => &["AWS_ENDPOINT_URL_EVENTBRIDGE", "AWS_ENDPOINT_URL_SQS"],
        other => panic!("no function is called {other}"),
    };
    // The relay does not open personal data.
    let keys: &[_] = if id == "StreamRelay" { &[] } else { &["KEYS_TABLE_NAME", "PERSONAL_DATA_KEY"] };
    let traces: &[_] = if matches!(id, "CommandHandler" | "StreamRelay") { &traces } else { &[] };
    [services, keys, traces, &["METRICS_NAMESPACE", "RUST_LOG"]].concat()
}

/// Reads the settings that a function's `main` reads. Returns them as debug text.
fn read_settings(id: &str, environment: &Environment) -> Result<String, SettingError> {
    Ok(match id {
        "CommandHandler" => {
            let store = StoreSettings::read(environment)?;
            let views_table = daybook_command_handler::views_table(environment);
            format!("{store:?} {views_table:?} {:?}", daybook_command_handler::ApiSettings::read(environment)?)
        }
        "Projector" => {
            format!("{} {}", environment.required("TABLE_NAME")?, daybook_projector::views_table(environment)?)
        }
        "Reactor" => {
            format!("{:?} {}", StoreSettings::read(environment)?, daybook_reactor::reactions_queue(environment)?)
        }
        "Snapshotter" => format!("{:?}", StoreSettings::read(environment)?),
        "StreamRelay" => {
            let changes_queue = daybook_stream_relay::changes_queue(environment);
            let reactions_queue = daybook_stream_relay::reactions_queue(environment);
            let processes_queue = daybook_stream_relay::processes_queue(environment);
            let settings = daybook_stream_relay::RelaySettings::read(environment)?;
            format!("{settings:?} {changes_queue:?} {reactions_queue:?} {processes_queue:?}")
        }
        other => panic!("no function is called {other}"),
    })
}

#[test]
fn template_sets_the_variables_that_the_functions_read() {
    for (id, variables) in variables() {
        let set = template_with_parts().functions.remove(id).unwrap().environment;
        let expected: BTreeSet<&str> =
            variables.keys().map(String::as_str).chain(of_libraries(id).iter().copied()).collect();
        assert_eq!(set.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected, "{id}");

        // A value that only a deployment knows is replaced by a text, and one that the outer template passes on by a number.
        let value = |name: &String, setting: &Setting| match setting {
            Setting::Known(value) => value.clone(),
            Setting::Unresolved(_) if variables.get(name) == Some(&false) && id == "Reactor" => "2".to_owned(),
            Setting::Unresolved(_) => "deployed".to_owned(),
        };
        let all: BTreeMap<_, _> = set.iter().map(|(name, setting)| (name.clone(), value(name, setting))).collect();
        let with = |name: &str, value: Option<&str>| -> Environment {
            let others = all.iter().filter(|(other, _)| *other != name);
            others
                .map(|(name, value)| (name.clone(), value.clone()))
                .chain(value.map(|it| (name.into(), it.into())))
                .collect()
        };
        read_settings(id, &with("", None)).unwrap();
        for (name, is_required) in &variables {
            let without = read_settings(id, &with(name, None));
            if *is_required {
                assert_eq!(without.unwrap_err().to_string(), format!("environment variable {name} is missing"), "{id}");
                continue;
            }
            without.unwrap();
            if NAMES.contains(&name.as_str()) {
                read_settings(id, &with(name, Some("odd"))).unwrap();
                continue;
            }
            let error = read_settings(id, &with(name, Some("odd"))).unwrap_err();
            assert!(error.to_string().starts_with(&format!("environment variable {name} is \"odd\"")), "{error}");
        }
    }
}

#[test]
fn traces_are_off_by_default() {
    for id in ["CommandHandler", "StreamRelay"] {
        let variables = fixtures::environment(id);
        assert!(SpanExporter::read(&variables, id).unwrap().is_none(), "{id}");
    }
    // X-Ray too.
    for (file, set) in [("template.yaml", 2), ("deploy/read-models.yaml", 1), ("deploy/reactor.yaml", 1)] {
        let lines = read(file).lines().filter(|line| line.contains("Tracing")).map(str::to_owned).collect::<Vec<_>>();
        assert!(lines.len() == set && lines.iter().all(|line| line.contains("PassThrough")), "{file}: {lines:?}");
    }
}

#[test]
fn local_environment_sets_the_variables_that_only_a_deployment_knows() {
    let local: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(&fixtures::read("env.json")).unwrap();
    let mut functions = template().functions;
    functions.extend(PARTS.map(|(_, id)| template_with_parts().functions.remove_entry(id).unwrap()));
    assert_eq!(local.keys().collect::<Vec<_>>(), functions.keys().collect::<Vec<_>>());
    for (id, function) in functions {
        let unresolved = function.environment.iter().filter(|(_, setting)| matches!(setting, Setting::Unresolved(_)));
        for (name, _) in unresolved {
            assert!(local[&id].contains_key(name), "{id}: {name} is missing");
        }
        for (name, value) in &local[&id] {
            let of_aws = ["AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_SECRET_ACCESS_KEY"].contains(&name.as_str());
            assert!(of_aws || function.environment.contains_key(name), "{id}: SAM would not pass {name}");
            assert!(!value.contains("://") || value.starts_with("http://host.docker.internal:800"), "{id}: {value}");
        }
        read_settings(&id, &fixtures::environment(&id)).unwrap();
    }
}

#[test]
fn each_variable_of_the_store_is_used_by_a_function() {
    let used: BTreeSet<_> = FUNCTIONS.iter().flat_map(|(.., used)| *used).map(|&name| name.to_owned()).collect();
    assert_eq!(read_in(STORE).into_keys().collect::<BTreeSet<_>>(), used);
}

#[test]
fn parameters_have_the_defaults_and_the_ranges_of_the_settings() {
    let parameters = &plain(&text())["Parameters"];
    for (id, variables) in variables() {
        let template = template_of(id);
        for (name, _) in
            variables.iter().filter(|(name, is_required)| !**is_required && !NAMES.contains(&name.as_str()))
        {
            let set = template["Resources"][id]["Properties"]["Environment"]["Variables"][name].as_str().unwrap();
            // A nested stack passes on the value of the parameter of that name.
            let parameter = &parameters[set];
            let required = ["TABLE_NAME", "EVENT_SOURCE", "EVENT_BUS_NAME", "DLQ_URL", "REACTIONS_QUEUE_URL"];
            let required = required.map(|name| (name, "deployed"));
            let read = |value: &str| {
                let variables = required.into_iter().chain([(name.as_str(), value)]);
                read_settings(id, &variables.collect())
            };
            let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // An empty variable counts as missing.
            let default = parameter.get("Default").map_or(set.to_owned(), value);
            assert_eq!(read(&default), read(""), "{id}: the default of {name}");
            if parameter["Type"] == "Number" {
                for (bound, outwards) in [("MinValue", -1), ("MaxValue", 1)] {
                    let limit = parameter[bound].as_i64().unwrap_or_else(|| panic!("{id}: {name} has no {bound}"));
                    read(&limit.to_string()).unwrap();
                    read(&(limit + outwards).to_string()).unwrap_err();
                }
            }
            for allowed in parameter["AllowedValues"].as_array().into_iter().flatten() {
                read(&value(allowed)).unwrap();
            }
        }
    }
}

#[test]
fn each_function_is_a_binary_of_the_workspace() {
    let binaries: BTreeSet<String> = std::fs::read_dir(workspace().join("app/functions/src/bin"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut named = BTreeSet::new();
    for (id, function) in template_with_parts().functions {
        let workspace = if PARTS.iter().any(|(_, nested)| id == *nested) { ".." } else { "." };
        let template = template_of(&id);
        let resource = &template["Resources"][&id];
        assert_eq!(resource["Metadata"]["BuildMethod"], "rust-cargolambda", "{id}");
        // cargo-lambda gives every binary the same name, which the runtime starts.
        for (name, value) in [("Handler", "bootstrap"), ("CodeUri", workspace), ("Runtime", "provided.al2023")] {
            let of_all = &template["Globals"]["Function"][name];
            let set: Vec<_> =
                [of_all, &resource["Properties"][name]].into_iter().filter(|set| !set.is_null()).collect();
            assert_eq!(set, [value], "{id}");
        }
        let Some(Setting::Known(binary)) = function.binary else { panic!("{id} names no binary") };
        assert!(named.insert(binary.clone()), "two functions have the binary {binary}");
    }
    assert_eq!(named, binaries);
}
