//! The add-on that runs the command handler on managed instances: the same function as the other command handler, with an
//! environment that handles several requests at a time.

use serde_json::{Map, Value, json};

use super::{plain, plain_with_parts, read, text};

fn add_on() -> Value {
    plain(&read("deploy/instances.yaml"))
}

/// The properties of a function with those of `Globals`, without those that may differ.
fn shared(template: &Value, id: &str) -> Map<String, Value> {
    let own = [
        "CapacityProviderConfig",
        "CodeUri",
        "DeploymentPreference",
        "Description",
        "Environment",
        "LoggingConfig",
        "MemorySize",
        "PublishToLatestPublished",
        "Role",
    ];
    let of_all = template["Globals"]["Function"].as_object().into_iter().flatten();
    let properties = of_all.chain(template["Resources"][id]["Properties"].as_object().unwrap());
    let properties = properties.filter(|(name, _)| !own.contains(&name.as_str()));
    properties.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[test]
fn function_on_instances_has_the_properties_of_the_other_and_one_vcpu() {
    let (outer, add_on) = (plain_with_parts(&text()), add_on());
    assert_eq!(shared(&outer, "CommandHandler"), shared(&add_on, "CommandHandlerOnInstances"));
    let own = &add_on["Resources"]["CommandHandlerOnInstances"]["Properties"];
    let provider = json!({
        "Arn": "Instances.Arn",
        "ExecutionEnvironmentMemoryGiBPerVCpu": 2,
        "PerExecutionEnvironmentMaxConcurrency": "Concurrency",
    });
    assert_eq!(own["CapacityProviderConfig"], provider);
    // More than one vCPU would be of no use: the process has one thread.
    assert_eq!(own["MemorySize"], 2 * 1024);
    let run = read("crates/command-handler/src/function.rs");
    assert!(run.contains("flavor = \"current_thread\"") && run.contains("run_concurrent("));
    // CloudFormation would publish a version that nobody invokes, with environments of its own.
    assert_eq!(own["PublishToLatestPublished"], false);
}

/// What a parameter of the add-on stands for in the stack of the API.
fn passed(outer: &Value) -> Map<String, Value> {
    let [text, variables] = &outer["Outputs"]["AddOnParameters"]["Value"].as_array().unwrap()[..] else { panic!() };
    let assignment = |text: &str| {
        let (name, value) = text.split_once('=').unwrap();
        let value = value.trim_matches('"').strip_prefix("${").unwrap().strip_suffix('}').unwrap();
        (name.to_owned(), variables.get(value).cloned().unwrap_or(value.into()))
    };
    text.as_str().unwrap().split_whitespace().map(assignment).collect()
}

#[test]
fn function_on_instances_gets_the_variables_of_the_other_from_the_output_of_its_stack() {
    let (outer, add_on) = (plain_with_parts(&text()), add_on());
    let passed = passed(&outer);
    let declared = add_on["Parameters"].as_object().unwrap();
    for (name, parameter) in declared {
        let is_own = ["Concurrency", "MaxVCpus", "Release", "SecurityGroups", "Subnets", "TrafficShift"]
            .contains(&name.as_str());
        assert_eq!(passed.contains_key(name), !is_own, "{name}");
        // Otherwise, a value that is not passed would be missed.
        assert!(is_own || parameter["Type"] == "String" || parameter["Type"] == "Number", "{name}");
    }
    assert!(passed.keys().all(|name| declared.contains_key(name)), "{passed:?}");
    let variables = |template: &Value, id: &str| {
        let variables = template["Resources"][id]["Properties"]["Environment"]["Variables"].clone();
        let mut variables = variables.as_object().unwrap().clone();
        variables.insert("RUST_LOG".to_owned(), "info".into());
        variables
    };
    let expected = variables(&outer, "CommandHandler");
    let on_instances = variables(&add_on, "CommandHandlerOnInstances");
    assert!(on_instances.keys().all(|name| expected.contains_key(name)), "{on_instances:?}");
    // Without a variable, the function has the same default as the other.
    for (name, value) in expected.iter().filter(|(name, _)| !on_instances.contains_key(*name)) {
        let is_constant = |text: &str| outer["Parameters"].get(text).is_none() && !text.contains("${");
        assert!(value.as_str().is_some_and(is_constant), "{name}");
    }
    for (name, value) in &on_instances {
        let value = value.as_str().unwrap();
        let value = passed.get(value).cloned().unwrap_or(value.replace("MainStack", "AWS::StackName").into());
        assert_eq!(value, expected[name], "{name}");
    }
}

#[test]
fn route_of_the_add_on_is_more_specific_and_has_the_authorizer_of_the_other() {
    let (outer, add_on) = (plain(&text()), add_on());
    let (usual, own) = (&outer["Resources"]["AnyRequest"]["Properties"], &add_on["Resources"]["AnyRequest"]);
    assert_eq!((&usual["RouteKey"], &own["Properties"]["RouteKey"]), (&json!("$default"), &json!("ANY /{proxy+}")));
    assert_eq!(own["Properties"]["AuthorizationType"], usual["AuthorizationType"]);
    assert_eq!(own["Properties"]["AuthorizerId"], json!(["UsesJwt", "AuthorizerId", "AWS::NoValue"]));
    // Before that, API Gateway may not invoke the function.
    assert_eq!(own["DependsOn"], "ApiMayInvokeCommandHandlerOnInstances");
    for name in ["IntegrationType", "PayloadFormatVersion", "TimeoutInMillis"] {
        let of = |template: &Value| template["Resources"]["CommandHandlerIntegration"]["Properties"][name].clone();
        assert_eq!(of(&add_on), of(&outer), "{name}");
    }
    // Nothing of the API's stack depends on the add-on.
    assert!(!text().contains("OnInstances"));
}
