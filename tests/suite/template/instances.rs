//! The command handler on managed instances: the same function as the other command handler, with an environment that handles
//! several requests at a time.

use std::collections::BTreeMap;

use daybook_event_source_mapping::Template;
use serde_json::{Map, Value, json};

use super::{plain, plain_with_instances, read, text};

const ON: [(&str, &str); 2] = [("InstanceSubnets", "subnet-1"), ("InstanceSecurityGroups", "sg-1")];

#[test]
fn function_on_instances_exists_only_with_subnets_and_equals_the_other() {
    let without = Template::parse(&text()).unwrap().functions;
    assert_eq!(without.keys().collect::<Vec<_>>(), ["CommandHandler", "Snapshotter", "StreamRelay"]);
    let mut with = Template::with_parameters(&text(), &ON).unwrap().functions;
    let on_instances = with.remove("CommandHandlerOnInstances").unwrap();
    assert_eq!(on_instances, with["CommandHandler"]);
    assert_eq!(with, without);
}

/// The properties of a function, without those that may differ.
fn shared(template: &Value, id: &str) -> Map<String, Value> {
    let own = [
        "CapacityProviderConfig",
        "DeploymentPreference",
        "Description",
        "MemorySize",
        "PublishToLatestPublished",
        "ReservedConcurrentExecutions",
    ];
    let properties = template["Resources"][id]["Properties"].as_object().unwrap().iter();
    let properties = properties.filter(|(name, _)| !own.contains(&name.as_str()));
    properties.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[test]
fn function_on_instances_has_the_properties_of_the_other_and_one_vcpu() {
    let template = plain_with_instances(&text());
    let both = ["CommandHandler", "CommandHandlerOnInstances"].map(|id| shared(&template, id));
    assert_eq!(both[0], both[1]);
    let own = &template["Resources"]["CommandHandlerOnInstances"]["Properties"];
    let provider = json!({
        "Arn": "Instances.Arn",
        "ExecutionEnvironmentMemoryGiBPerVCpu": 2,
        "PerExecutionEnvironmentMaxConcurrency": "InstanceConcurrency",
    });
    assert_eq!(own["CapacityProviderConfig"], provider);
    // More than one vCPU would be of no use: the process has one thread.
    assert_eq!(own["MemorySize"], 2 * 1024);
    let run = read("crates/command-handler/src/function.rs");
    assert!(run.contains("flavor = \"current_thread\"") && run.contains("run_concurrent("));
    // CloudFormation would publish a version that nobody invokes, with environments of its own.
    assert_eq!(own["PublishToLatestPublished"], false);
}

#[test]
fn stack_uses_the_function_on_instances_where_it_used_the_other() {
    let of = |template: &Value| {
        let all = &template["Resources"];
        let integration = all["CommandHandlerIntegration"]["Properties"]["IntegrationUri"].clone();
        let monitored = all["Monitoring"]["Properties"]["Parameters"]["CommandHandler"].clone();
        let invoked = all["DeploymentHookRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0].clone();
        let checked = all["DeploymentHook"]["Properties"]["Environment"]["Variables"].clone();
        (integration, monitored, invoked["Resource"].clone(), checked)
    };
    let uri = |alias: &str| {
        format!(
            "arn:${{AWS::Partition}}:apigateway:${{AWS::Region}}:lambda:path/2015-03-31/functions/{alias}/invocations"
        )
    };
    let permission = "ApiMayInvokeCommandHandlerOnInstances";
    assert_eq!(
        of(&plain(&text())),
        (
            json!(uri("${CommandHandler.Arn}:live")),
            json!("CommandHandler"),
            json!(["${CommandHandler.Arn}:*"]),
            json!({"NEW_VERSION": "CommandHandler.Version", "LIMIT_SECONDS": "70"}),
        )
    );
    assert_eq!(
        of(&plain_with_instances(&text())),
        (
            json!([uri("${Alias}"), {"Alias": [0, ["CommandHandlerOnInstances.Alias", permission]]}]),
            json!("CommandHandlerOnInstances"),
            json!(["${CommandHandler.Arn}:*", "${CommandHandlerOnInstances.Arn}:*"]),
            json!({
                "NEW_VERSION": "CommandHandler.Version",
                "NEW_VERSION_ON_INSTANCES": "CommandHandlerOnInstances.Version",
                "LIMIT_SECONDS": "70",
            }),
        )
    );
}

#[test]
fn function_on_instances_gets_requests_after_the_hook_and_the_deployment_of_the_other() {
    let template = plain_with_instances(&text());
    let all = &template["Resources"];
    let alarms = &all["CommandHandlerOnInstances"]["Properties"]["DeploymentPreference"]["Alarms"];
    let name = "CommandHandlerOnInstancesNewVersionErrors";
    assert_eq!(*alarms, json!(["ShiftsGradually", [name, "ApiServerErrors"], [name]]));
    // SAM names the alias after the function and `live`. Its deployment needs the alarm.
    assert_eq!(template["Globals"]["Function"]["AutoPublishAlias"], "live");
    assert_eq!(all[name]["DependsOn"], "CommandHandlerAliaslive");
    // The API needs the permission.
    assert_eq!(all["ApiMayInvokeCommandHandlerOnInstances"]["DependsOn"], "CommandHandlerAliaslive");
}

#[test]
fn resources_of_instances_exist_only_with_subnets() {
    let template = plain(&text());
    let all = template["Resources"].as_object().unwrap().iter();
    let of_instances: BTreeMap<_, _> =
        all.filter(|(name, _)| name.contains("Instance")).map(|(name, it)| (name.as_str(), &it["Condition"])).collect();
    assert_eq!(
        of_instances.keys().copied().collect::<Vec<_>>(),
        [
            "ApiMayInvokeCommandHandlerOnInstances",
            "CommandHandlerOnInstances",
            "CommandHandlerOnInstancesNewVersionErrors",
            "InstanceOperatorRole",
            "Instances",
        ]
    );
    assert!(of_instances.values().all(|condition| *condition == "HasInstances"), "{of_instances:?}");
    // What SAM makes of the function has its condition, except the deployment group, which needs to be told.
    let preference = &template["Resources"]["CommandHandlerOnInstances"]["Properties"]["DeploymentPreference"];
    assert_eq!(preference["PassthroughCondition"], true);
}
