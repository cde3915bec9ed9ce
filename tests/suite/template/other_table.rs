//! A stack that uses another table than its own, such as a restored one, and does not read its stream yet.

use serde_json::{Value, json};

use super::{plain, plain_with_another_table, read, resources, text};

/// The table's name and ARN, in the form of [`plain_with_another_table`].
fn name() -> Value {
    json!([1, ["/", "${TableStreamArn}//"]])
}

fn arn() -> Value {
    json!([0, ["/stream/", "TableStreamArn"]])
}

/// The paths of all texts that name the stack's own table.
fn own_table(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let names = ["Table", "Table.Arn", "Table.StreamArn"].contains(&text.as_str());
            if names || text.contains("${Table}") || text.contains("${Table.") {
                found.push(path.to_owned());
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| own_table(element, path, found)),
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| own_table(value, &format!("{path}/{name}"), found));
        }
        _ => {}
    }
}

#[test]
fn stack_with_another_table_refers_nowhere_to_its_own() {
    let template = plain_with_another_table(&text());
    assert_eq!(template["Resources"]["Table"]["Condition"], "CreatesTable");
    let mut found = Vec::new();
    for part in ["Resources", "Outputs"] {
        own_table(&template[part], part, &mut found);
    }
    assert_eq!(found, [""; 0]);
    // With its own table, it does.
    own_table(&plain(&text())["Resources"], "", &mut found);
    assert!(found.len() > 8, "{found:?}");
}

#[test]
fn stack_with_another_table_uses_the_table_of_the_given_stream() {
    let template = plain_with_another_table(&text());
    let all = &template["Resources"];
    for id in ["CommandHandler", "Snapshotter"] {
        assert_eq!(all[id]["Properties"]["Environment"]["Variables"]["TABLE_NAME"], name(), "{id}");
    }
    for function in ["StreamRelay", "Snapshotter"] {
        for (event, properties) in all[function]["Properties"]["Events"].as_object().unwrap() {
            assert_eq!(properties["Properties"]["Stream"], "TableStreamArn", "{function}: {event}");
        }
    }
    assert_eq!(all["Monitoring"]["Properties"]["Parameters"]["Table"], name());
    for stack in ["ReadModelsStack", "ReactorStack"] {
        let passed = &all[stack]["Properties"]["Parameters"];
        assert_eq!((&passed["Table"], &passed["TableArn"]), (&name(), &arn()));
    }
    assert_eq!(template["Outputs"]["TableName"]["Value"], name());
    assert_eq!(template["Outputs"]["OperatorEnvironment"]["Value"][1]["UsedTable"], name());

    // The roles have the same actions on it as on a table of the stack.
    let (mut on_table, mut on_index, mut on_stream) = (0, 0, 0);
    let policies = resources(&template, "AWS::IAM::Role").into_values();
    let inline = policies.filter_map(|role| role["Properties"]["Policies"].as_array().cloned()).flatten();
    let managed =
        resources(&template, "AWS::IAM::ManagedPolicy").into_values().map(|policy| policy["Properties"].clone());
    for policy in inline.chain(managed) {
        for statement in policy["PolicyDocument"]["Statement"].as_array().unwrap() {
            let resource = &statement["Resource"];
            on_table += usize::from(*resource == arn());
            on_index += usize::from(*resource == json!([arn(), ["${TableArn}/index/gsi1", {"TableArn": arn()}]]));
            on_stream += usize::from(resource == "TableStreamArn");
        }
    }
    assert_eq!((on_table, on_index, on_stream), (4, 1, 1));
}

/// Enabling the mappings leaves the alarms on OK until a mapping is silent for as long as usual: only then they ring.
#[test]
fn alarms_on_silence_do_not_ring_while_the_mappings_are_disabled_on_purpose() {
    let monitoring = read("deploy/monitoring.yaml");
    for (template, missing) in
        [(plain(&monitoring), "breaching"), (plain_with_another_table(&monitoring), "notBreaching")]
    {
        assert_eq!(template["Conditions"]["MappingsRead"], json!(["MappingsEnabled", "true"]));
        for name in ["ReactionsLate", "StreamRelaySilent", "SnapshotterSilent"] {
            assert_eq!(template["Resources"][name]["Properties"]["TreatMissingData"], missing, "{name}");
        }
        // Messages that are appended and not sent ring in any case.
        let alarm = &template["Resources"]["MessagesMissing"]["Properties"];
        assert!(alarm["Metrics"][0]["Expression"].as_str().unwrap().contains("appended"), "{alarm}");
    }
}
