//! The nested stack of alarms and dashboard: its parameters, its names, and its documentation for operators.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::operations::deployment_alarms;
use super::{PARTS, plain, plain_with_parts, read, resources, text};
use crate::links::page_sections;

const ALARM: &str = "AWS::CloudWatch::Alarm";

/// The template with the functions, and the template of the nested stack of alarms.
pub(super) fn templates() -> (Value, Value) {
    let outer = plain(&text());
    let nested = plain(&nested_text(&outer));
    (outer, nested)
}

/// All templates of the stack, with read models and reactor.
pub(super) fn all_templates() -> [Value; 4] {
    let outer = plain(&text());
    let nested = plain_with_parts(&nested_text(&outer));
    let [read_models, reactor] = PARTS.map(|(file, _)| plain(&read(file)));
    [outer, nested, read_models, reactor]
}

fn nested_text(outer: &Value) -> String {
    let stacks = resources(outer, "AWS::CloudFormation::Stack");
    assert_eq!(stacks.keys().collect::<Vec<_>>(), ["Monitoring", "ReactorStack", "ReadModelsStack"]);
    for (stack, condition, file) in [
        ("ReadModelsStack", "HasReadModels", "deploy/read-models.yaml"),
        ("ReactorStack", "HasReactor", "deploy/reactor.yaml"),
    ] {
        assert_eq!(stacks[stack]["Condition"], condition);
        assert_eq!(stacks[stack]["Properties"]["TemplateURL"], file);
    }
    read(stacks["Monitoring"]["Properties"]["TemplateURL"].as_str().unwrap())
}

/// The values of a nested stack's parameters.
fn passed<'a>(outer: &'a Value, stack: &str) -> BTreeMap<&'a str, &'a str> {
    let values = outer["Resources"][stack]["Properties"]["Parameters"].as_object().unwrap();
    values.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect()
}

// The stack.

#[test]
fn nested_stack_gets_each_parameter_that_it_declares() {
    let [outer, monitoring, read_models, reactor] = all_templates();
    for (stack, nested) in [("Monitoring", monitoring), ("ReadModelsStack", read_models), ("ReactorStack", reactor)] {
        let passed = passed(&outer, stack);
        let declared = nested["Parameters"].as_object().unwrap();
        assert_eq!(
            passed.keys().copied().collect::<BTreeSet<_>>(),
            declared.keys().map(String::as_str).collect::<BTreeSet<_>>()
        );
        for (name, parameter) in declared {
            // A default would hide a missing value.
            assert!(parameter.get("Default").is_none(), "{name} has a default");
        }
    }
    // The nested stack derives the names of the namespace and of log groups from that of the stack.
    for id in ["CommandHandler", "StreamRelay", "Snapshotter"] {
        let variables = &outer["Resources"][id]["Properties"]["Environment"]["Variables"];
        assert_eq!(variables["METRICS_NAMESPACE"], "Daybook/${AWS::StackName}");
        let group = &outer["Resources"][format!("{id}Logs")]["Properties"]["LogGroupName"];
        let name = group.as_str().unwrap().replace("${AWS::StackName}", "${MonitoredStack}");
        assert_eq!(all_templates()[1]["Resources"][format!("{id}ErrorLines")]["Properties"]["LogGroupName"], name);
    }
    for (name, value) in
        ["Monitoring", "ReadModelsStack", "ReactorStack"].iter().flat_map(|stack| passed(&outer, stack))
    {
        match name {
            "MainStack" | "MonitoredStack" => assert_eq!(value, "AWS::StackName"),
            "TableArn" => assert_eq!(value, "Table.Arn"),
            // Without the part, these are empty.
            "ChangesQueueName"
            | "ProjectorName"
            | "UnreadChangesName"
            | "ViewsTableName"
            | "ReactionsQueueName"
            | "ReactorName"
            | "UnreadReactionsName" => {
                assert_eq!(value, "");
                let with = plain_with_parts(&text());
                let value = &with["Resources"]["Monitoring"]["Properties"]["Parameters"][name];
                let stack = if name.contains("React") { "ReactorStack" } else { "ReadModelsStack" };
                assert_eq!(*value, format!("{stack}.Outputs.{name}"));
            }
            // Without a key, too.
            "SubjectKeys" | "UsePersonalData" => {
                assert_eq!(value, "");
                for stack in ["ReadModelsStack", "ReactorStack"] {
                    let with_key = plain_with_parts(&text());
                    assert_eq!(with_key["Resources"][stack]["Properties"]["Parameters"][name], name);
                }
            }
            // A parameter has the name of the resource that supplies its value.
            _ => assert_eq!(value.split('.').next(), Some(name)),
        }
    }
}

#[test]
fn nested_stack_contains_only_monitoring_resources() {
    // Therefore the tests of roles, logs and stored data cover all resources, although they read only the outer template.
    let (_, nested) = templates();
    let types = nested["Resources"].as_object().unwrap().values().map(|resource| resource["Type"].as_str().unwrap());
    let expected = [ALARM, "AWS::CloudWatch::Dashboard", "AWS::Logs::MetricFilter"];
    assert_eq!(types.collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    assert!(nested.get("Transform").is_none());
}

#[test]
fn each_environment_may_deploy_the_nested_stack() {
    let samconfig = read("samconfig.toml");
    for environment in ["default", "staging", "prod"] {
        let section = samconfig.split(&format!("[{environment}.deploy.parameters]\n")).nth(1).unwrap();
        let line = section.lines().find_map(|line| line.strip_prefix("capabilities = ")).unwrap();
        let granted: Vec<_> = line.trim_matches('"').split(' ').collect();
        assert_eq!(granted, ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"], "{environment}");
    }
    // CloudFormation uses its role for the nested stack too.
    let account = plain(&read(".github/aws.yaml"));
    let policy = &account["Resources"]["CloudFormationRolePassesItself"]["Properties"];
    assert_eq!(policy["RoleName"], "CloudFormationRole");
    let statement = &policy["PolicyDocument"]["Statement"][0];
    assert_eq!((&statement["Effect"], &statement["Action"]), (&json!("Allow"), &json!("iam:PassRole")));
    assert_eq!(statement["Resource"], "CloudFormationRole.Arn");
    assert_eq!(
        statement["Condition"],
        json!({"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}})
    );
}

#[test]
fn outer_template_contains_only_alarms_of_deployments() {
    let (outer, nested) = templates();
    let alarms = |template| resources(template, ALARM).into_keys().collect::<BTreeSet<_>>();
    let of_deployments = deployment_alarms(&outer);
    assert_eq!(of_deployments.len(), 6, "{of_deployments:?}");
    assert_eq!(alarms(&outer), of_deployments);
    assert!(alarms(&nested).is_disjoint(&of_deployments));
}

/// The ends of the names that alarms and dashboard had when they were in the outer template.
///
/// An update creates the nested stack before it deletes them, and no two resources of an account have one name.
const FORMER_NAMES: [&str; 17] = [
    "",
    "-api-latency",
    "-command-handler-errors",
    "-dead-letters",
    "-discarded-records",
    "-dropped-records",
    "-errors-logged",
    "-failed-invocations",
    "-function-throttles",
    "-index-throttles",
    "-relay-errors",
    "-relay-iterator-age",
    "-snapshot-too-large",
    "-snapshotter-errors",
    "-snapshotter-iterator-age",
    "-table-system-errors",
    "-table-throttles",
];

#[test]
fn alarms_moved_to_the_nested_stack_have_new_names() {
    let mut names = BTreeSet::new();
    let prefixes = ["${AWS::StackName}", "${MonitoredStack}", "${MainStack}", "${MainStack}"];
    for (template, prefix) in all_templates().iter().zip(prefixes) {
        for (id, resource) in template["Resources"].as_object().unwrap() {
            let Some(name) = ["AlarmName", "DashboardName"].into_iter().find_map(|it| resource["Properties"].get(it))
            else {
                continue;
            };
            let end = name.as_str().unwrap().strip_prefix(prefix).unwrap_or_else(|| panic!("{id} is named {name}"));
            assert!(!FORMER_NAMES.contains(&end), "{id} has the name of a resource that the update deletes: {name}");
            assert!(names.insert(end.to_owned()), "two resources are named {name}");
        }
    }
    assert!(names.len() > FORMER_NAMES.len(), "{names:?}");
}

// The alarms.

/// The entries of the runbook's tables of alarms, by the anchors that the alarms' descriptions link to. An entry has a
/// meaning with the risk, a check and a fix.
fn entries(runbook: &str) -> BTreeMap<&str, [&str; 3]> {
    let mut entries = BTreeMap::new();
    for row in runbook.lines().filter_map(|line| line.strip_prefix("| <a id=\"")) {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        let [name, meaning, check, fix] = cells[..] else { panic!("not four cells: {row}") };
        let (anchor, shown) = name.split_once("\"></a>").unwrap_or_else(|| panic!("no anchor: {row}"));
        assert_eq!(shown, format!("`{anchor}`"));
        assert!(entries.insert(anchor, [meaning, check, fix]).is_none(), "{anchor} has two entries");
    }
    entries
}

/// The missing parts of an alarm's entry in the runbook.
fn lacking(runbook: &str, [meaning, check, fix]: [&str; 3]) -> Option<&'static str> {
    let Some((meaning, risk)) = meaning.split_once(" **Risk:** ") else { return Some("**Risk:**") };
    if [meaning, risk, check, fix].iter().any(|cell| cell.len() < 10) {
        return Some("an empty cell");
    }
    let typed = ["aws ", "sam ", "daybook "];
    // The sections of the page that the fix links to.
    let sections = page_sections(runbook);
    let linked = fix.split("](#").skip(1).filter_map(|rest| sections.get(rest.split(')').next()?));
    let mut in_section =
        linked.flat_map(|section| section.lines()).filter_map(|line| line.trim_start().strip_prefix("$ "));
    let block = in_section.any(|line| typed.iter().any(|command| line.starts_with(command)));
    let inline = typed.iter().any(|command| fix.contains(&format!("`{command}")));
    let none = fix.contains("no command helps");
    (!block && !inline && !none).then_some("a command that fixes it, or \"no command helps\"")
}

#[test]
fn each_alarm_is_documented_shown_and_notifies() {
    let [outer, nested, read_models, reactor] = all_templates();
    let instances = plain(&read("deploy/instances.yaml"));
    let of_stack = |template, prefix| resources(template, ALARM).into_iter().map(move |alarm| (prefix, alarm));
    let alarms: Vec<_> = of_stack(&outer, "${AWS::StackName}-")
        .chain(of_stack(&nested, "${MonitoredStack}-"))
        .chain(of_stack(&read_models, "${MainStack}-"))
        .chain(of_stack(&reactor, "${MainStack}-"))
        .chain(of_stack(&instances, "${MainStack}-"))
        .collect();
    assert!(alarms.len() > 15, "{}", alarms.len());
    let runbook = read("docs/runbook.md");
    let entries = entries(&runbook);
    let dashboard = nested_text(&outer);
    let of_deployments: BTreeSet<_> =
        [&outer, &read_models, &reactor, &instances].into_iter().flat_map(deployment_alarms).collect();
    let (mut missing, mut documented) = (BTreeSet::new(), BTreeSet::new());
    for (prefix, (name, alarm)) in &alarms {
        let properties = &alarm["Properties"];
        let alarm_name = properties["AlarmName"].as_str().unwrap().strip_prefix(prefix).unwrap();
        let description = properties["AlarmDescription"].as_str().unwrap();
        let (advice, section) = description.trim().rsplit_once(" docs/runbook.md#").unwrap();
        assert!(advice.ends_with('.') && advice.len() > 60, "{name}: {advice}");
        let Some(entry) = entries.get(section) else { panic!("{name}: docs/runbook.md has no entry {section}") };
        missing.extend(lacking(&runbook, *entry).map(|lacking| format!("{section}: {lacking}")));
        documented.insert(section);
        // An API without requests has no data. A mapping that polls always has, and so has a reactor that is invoked.
        let polls = ["ReactionsLate", "StreamRelaySilent", "SnapshotterSilent"].contains(&name.as_str());
        let missing = if polls { "breaching" } else { "notBreaching" };
        assert_eq!(properties["TreatMissingData"], missing, "{name}");
        if properties.get("AlarmActions").is_some() {
            // A topic, or the parameter of that name.
            assert!([json!(["Notifications"]), json!(["Tickets"])].contains(&properties["AlarmActions"]), "{name}");
            assert_eq!(alarm_name, section, "{name}");
            let by_name = dashboard.contains(&format!(":alarm:${{MonitoredStack}}-{section}\""));
            let is_add_on = *prefix == "${MainStack}-";
            assert!(
                is_add_on || by_name || dashboard.contains(&format!("\"${{{name}.Arn}}\"")),
                "{name} is not on the dashboard"
            );
        } else {
            assert!(alarm_name.contains(&format!("-{section}-${{")), "{name}");
            assert!(of_deployments.contains(name), "{name} notifies nobody");
        }
    }
    assert!(missing.is_empty(), "docs/runbook.md lacks {missing:#?}");
    let without_alarm: Vec<_> = entries.keys().filter(|entry| !documented.contains(*entry)).collect();
    assert!(without_alarm.is_empty(), "docs/runbook.md has entries without an alarm: {without_alarm:?}");
}

// The metrics.

#[test]
fn each_monitored_metric_is_emitted() {
    let [outer, nested, read_models, reactor] = all_templates();
    // On the dashboard, "." stands for the namespace of the preceding metric. So each name follows a namespace, or is
    // in the list that begins with one.
    let text = nested_text(&outer);
    let lists = text.split("[\"Daybook/${MonitoredStack}\",").skip(1).map(|rest| rest.split("] }").next().unwrap());
    let shown = lists.flat_map(|list| list.split('"').filter(|name| name.starts_with(char::is_uppercase)));
    let alarms =
        [&outer, &nested, &read_models, &reactor].into_iter().flat_map(|it| resources(it, ALARM).into_values());
    let namespaces = ["Daybook/${AWS::StackName}", "Daybook/${MonitoredStack}", "Daybook/${MainStack}"];
    let metrics = alarms.flat_map(|alarm| {
        let of_math = alarm["Properties"]["Metrics"].as_array().into_iter().flatten();
        let of_math: Vec<_> = of_math.map(|metric| metric["MetricStat"]["Metric"].clone()).collect();
        of_math.into_iter().chain([alarm["Properties"].clone()])
    });
    let alarmed = metrics.filter(|metric| namespaces.iter().any(|namespace| metric["Namespace"] == *namespace));
    let watched: BTreeSet<String> = shown
        .map(str::to_owned)
        .chain(alarmed.map(|metric| metric["MetricName"].as_str().unwrap().to_owned()))
        .filter(|name| name != "Maximum")
        .collect();
    let emitting = [
        "command-handler/src/signals",
        "stream-relay/src/signals",
        "stream-relay/src/relay",
        "snapshotter/src/handler",
        "projector/src/versions",
        "projector/src/handler",
        "reactor/src/reactor",
        "reactor/src/fire",
    ];
    let code = emitting.map(|file| format!("{file}.rs")).map(|file| read(&format!("crates/{file}"))).concat();
    let filters = resources(&nested, "AWS::Logs::MetricFilter").into_values();
    let filtered: Vec<_> =
        filters.map(|filter| filter["Properties"]["MetricTransformations"][0]["MetricName"].clone()).collect();
    let counted = |name: &str| filtered.contains(&json!(name)) || code.contains(&format!("\"{name}\""));
    assert!(watched.len() > 15 && watched.iter().all(|name| counted(name)), "{watched:?}");
}
