//! The output OperatorEnvironment contains the functions' settings, and all settings that operator commands require.

use std::collections::BTreeMap;

use daybook_decider::Registry;
use daybook_operations::stack::{SETTINGS_TO_IMPORT_MESSAGES, SETTINGS_TO_REPUBLISH, SETTINGS_TO_TAKE_SNAPSHOTS};
use daybook_operations::{Interrupt, OperatorError, Stack};
use daybook_projection::Projections;
use daybook_settings::Environment;
use serde_json::Value;

use super::{plain, plain_with_parts, text};

/// The variables that no function has, with the resources that they name.
const OTHER_RESOURCES: [(&str, &str); 3] = [
    ("STREAM_RELAY_NAME", "StreamRelay"),
    ("STREAM_RELAY_LOGS", "StreamRelayLogs"),
    ("DISCARDED_RECORDS_BUCKET", "DiscardedRecords"),
];

/// The assignments of the output, by name; their values contain names of the template.
fn assignments(template: &Value) -> BTreeMap<String, String> {
    let [value, variables] = &template["Outputs"]["OperatorEnvironment"]["Value"].as_array().unwrap()[..] else {
        panic!("the output has no variables")
    };
    // Those of the optional parts are there only with these parts.
    let [of_all, of_read_models, of_reactor, of_key] =
        [value, &variables["OfReadModels"], &variables["OfReactor"], &variables["OfKey"]]
            .map(|value| value.as_str().unwrap());
    let of_all = of_all.strip_suffix("${OfReadModels}${OfReactor}${OfKey}").unwrap();
    let value = format!("{of_all}{of_read_models}{of_reactor}{of_key}");
    let assignment = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        let value = value.strip_prefix("${").and_then(|value| value.strip_suffix('}')).unwrap_or(value);
        (name.to_owned(), variables[value].as_str().unwrap_or(value).to_owned())
    };
    value.split_whitespace().map(assignment).collect()
}

#[test]
fn operator_environment_has_the_settings_of_the_functions() {
    let template = plain_with_parts(&text());
    let functions = ["CommandHandler", "Snapshotter", "StreamRelay"];
    for (name, value) in assignments(&template) {
        if name == "AWS_REGION" {
            assert_eq!(value, "AWS::Region");
            continue;
        }
        if let Some((_, resource)) = OTHER_RESOURCES.iter().find(|(variable, _)| *variable == name) {
            assert_eq!(value, *resource);
            assert!(template["Resources"][&value].is_object(), "{name}: {value}");
            continue;
        }
        let variables = functions.map(|id| &template["Resources"][id]["Properties"]["Environment"]["Variables"][&name]);
        let set: Vec<_> = variables.into_iter().filter_map(Value::as_str).collect();
        assert!(!set.is_empty() && set.iter().all(|&set| set == value), "{name}: {value} and {set:?}");
    }
}

/// Reads all settings that operator commands read.
fn read(environment: &Environment) -> Result<(), OperatorError> {
    let interrupt = Interrupt::new();
    let stack = Stack::new(environment.clone(), Registry::new(), || Ok(Projections::new()), interrupt);
    for required in [SETTINGS_TO_TAKE_SNAPSHOTS, SETTINGS_TO_REPUBLISH, SETTINGS_TO_IMPORT_MESSAGES] {
        stack.store_settings(required)?;
    }
    stack.bus_settings()?;
    stack.required("DLQ_URL")?;
    stack.required("DISCARDED_RECORDS_BUCKET")?;
    stack.required("VIEWS_TABLE_NAME")?;
    stack.required("CHANGES_QUEUE_URL")?;
    stack.required("REACTIONS_QUEUE_URL")?;
    stack.required("REACTOR")?;
    stack.required("KEYS_TABLE_NAME")?;
    stack.required("PERSONAL_DATA_KEY")?;
    stack.required("STREAM_RELAY_NAME")?;
    stack.required("STREAM_RELAY_LOGS").map(drop)
}

#[test]
fn operator_environment_without_the_optional_parts_names_nothing_of_them() {
    let variables = &plain(&text())["Outputs"]["OperatorEnvironment"]["Value"][1];
    assert_eq!([&variables["OfReadModels"], &variables["OfReactor"], &variables["OfKey"]], ["", "", ""]);
    let with = assignments(&plain_with_parts(&text()));
    let names =
        ["VIEWS_TABLE_NAME", "CHANGES_QUEUE_URL", "REACTIONS_QUEUE_URL", "KEYS_TABLE_NAME", "PERSONAL_DATA_KEY"];
    assert!(names.iter().all(|name| with.contains_key(*name)));
}

#[test]
fn operator_commands_require_every_variable_of_the_output() {
    let template = plain_with_parts(&text());
    let assignments = assignments(&template);
    let with_all_but = |missing: &str| -> Environment {
        let others = assignments.iter().filter(|(name, _)| *name != missing);
        // A value that only a deployment knows is replaced by a text.
        let value = |value: &str| {
            let default = &template["Parameters"][value]["Default"];
            if (default.is_null() && value.parse::<u32>().is_err()) || default == "" {
                "deployed".to_owned()
            } else if default.is_null() {
                value.to_owned()
            } else {
                default.as_str().map_or(default.to_string(), str::to_owned)
            }
        };
        others.map(|(name, of)| (name.clone(), value(of))).collect()
    };
    read(&with_all_but("")).unwrap();
    for name in assignments.keys().filter(|name| *name != "AWS_REGION") {
        let error = read(&with_all_but(name)).unwrap_err().to_string();
        let expected = format!("environment variable {name} is missing; the stack's output OperatorEnvironment has it");
        assert!(error.starts_with(&expected), "{error}");
    }
}
