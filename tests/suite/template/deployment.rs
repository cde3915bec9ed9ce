//! What a deployment may do: GitHub's roles cannot change themselves, the stack's roles stay within a boundary, and no update
//! replaces or deletes data.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use suite_tests::workspace;

use super::{plain, plain_with_parts, read, resources, text};

fn account() -> Value {
    plain(&read(".github/aws.yaml"))
}

/// A statement of a policy: its actions, resources and condition.
struct Statement {
    actions: Vec<String>,
    resources: Vec<String>,
    condition: Value,
}

fn statements(policy: &Value) -> impl Iterator<Item = Statement> {
    let texts = |value: &Value| match value {
        Value::Array(all) => all.iter().map(|one| one.as_str().unwrap().to_owned()).collect(),
        one => vec![one.as_str().unwrap().to_owned()],
    };
    policy["Statement"].as_array().unwrap().iter().map(move |statement| {
        assert_eq!(statement["Effect"], "Allow");
        let (actions, resources) = (texts(&statement["Action"]), texts(&statement["Resource"]));
        Statement { actions, resources, condition: statement["Condition"].clone() }
    })
}

/// The statements of the deployment roles.
fn of_deployment_roles() -> Vec<Statement> {
    let account = account();
    let roles = resources(&account, "AWS::IAM::Role");
    assert_eq!(roles.keys().collect::<Vec<_>>(), ["CloudFormationRole", "DeployRole"]);
    let inline = roles.values().flat_map(|role| role["Properties"]["Policies"].as_array().unwrap());
    let policies = inline.map(|policy| policy["PolicyDocument"].clone());
    let others = resources(&account, "AWS::IAM::RolePolicy").into_values();
    let others = others.map(|policy| policy["Properties"]["PolicyDocument"].clone());
    policies.chain(others).flat_map(|policy| statements(&policy).collect::<Vec<_>>()).collect()
}

/// An ARN or a pattern, with example values of parameters.
fn example(pattern: &str) -> String {
    [
        ("${AWS::Partition}", "aws"),
        ("${AWS::AccountId}", "123456789012"),
        ("${AWS::Region}", "eu-central-1"),
        ("${StackName}", "daybook-staging"),
    ]
    .into_iter()
    .fold(pattern.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Whether an ARN matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, arn: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == arn,
        Some((begin, rest)) => arn.strip_prefix(begin).is_some_and(|arn| {
            (0..=arn.len()).filter(|&at| arn.is_char_boundary(at)).any(|at| matches(rest, &arn[at..]))
        }),
    }
}

/// An ARN of a resource in `.github/aws.yaml`, as CloudFormation would name it.
fn arn(kind: &str, name: &str, properties: &Value) -> String {
    let path = properties["Path"].as_str().unwrap_or("/");
    format!("arn:aws:iam::123456789012:{kind}{path}daybook-staging-github-{name}-EXAMPLE")
}

#[test]
fn deployment_roles_cannot_change_themselves_nor_the_boundary() {
    let account = account();
    let role = |name: &str| arn("role", name, &account["Resources"][name]["Properties"]);
    let boundary = arn("policy", "Boundary", &account["Resources"]["Boundary"]["Properties"]);
    let own = [role("DeployRole"), role("CloudFormationRole"), boundary];
    let mut checked = 0;
    for statement in of_deployment_roles() {
        for action in statement.actions.iter().filter(|action| action.starts_with("iam:")) {
            if action == "iam:PassRole" && statement.resources == ["CloudFormationRole.Arn"] {
                // Only to CloudFormation, which then does what it may do anyway.
                let service = json!({"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}});
                assert_eq!(statement.condition, service);
                continue;
            }
            for resource in &statement.resources {
                assert!(resource.starts_with("arn:"), "{action} on {resource}");
                for arn in &own {
                    assert!(!matches(&example(resource), arn), "{action} on {resource} includes {arn}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 50, "{checked}");
    let of_stack = example("arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${StackName}-*");
    assert!(matches(&of_stack, "arn:aws:iam::123456789012:role/daybook-staging-StreamRelayRole-EXAMPLE"));
    // CloudFormation's managed policy contains no action of IAM.
    let managed = &account["Resources"]["CloudFormationRole"]["Properties"]["ManagedPolicyArns"];
    assert_eq!(managed, &json!(["arn:${AWS::Partition}:iam::aws:policy/PowerUserAccess"]));
    assert!(account["Resources"]["DeployRole"]["Properties"].get("ManagedPolicyArns").is_none());
}

#[test]
fn deployment_roles_give_permissions_only_within_the_boundary() {
    let gives = ["iam:AttachRolePolicy", "iam:CreateRole", "iam:PutRolePermissionsBoundary", "iam:PutRolePolicy"];
    let mut found = BTreeSet::new();
    for statement in of_deployment_roles() {
        for action in &statement.actions {
            assert!(!["iam:*", "*", "iam:DeleteRolePermissionsBoundary"].contains(&action.as_str()), "{action}");
            if gives.contains(&action.as_str()) {
                assert_eq!(statement.condition["StringEquals"]["iam:PermissionsBoundary"], "Boundary", "{action}");
                found.insert(action.clone());
            }
        }
    }
    assert_eq!(found, gives.map(str::to_owned).into());
}

#[test]
fn boundary_allows_the_actions_of_all_roles_of_the_stack() {
    let others =
        ["read-models", "reactor", "instances", "fan-out"].map(|name| plain(&read(&format!("deploy/{name}.yaml"))));
    let [read_models, reactor, instances, fan_out] = others;
    let carrier = plain(&read("app/carrier/template.yaml"));
    let templates = [plain_with_parts(&text()), read_models, reactor, instances, fan_out, carrier];
    let allowed: BTreeSet<_> = statements(&account()["Resources"]["Boundary"]["Properties"]["PolicyDocument"])
        .flat_map(|one| one.actions)
        .collect();
    let all = |of_type: &str| templates.each_ref().map(|template| resources(template, of_type)).into_iter().flatten();
    let policies = all("AWS::IAM::ManagedPolicy");
    let managed = policies.map(|(_, policy)| policy["Properties"]["PolicyDocument"].clone());
    let roles: BTreeMap<_, _> = all("AWS::IAM::Role").collect();
    let inline = roles.values().filter_map(|role| role["Properties"]["Policies"].as_array()).flatten();
    let inline = inline.map(|policy| policy["PolicyDocument"].clone());
    let granted: BTreeSet<_> = inline
        .chain(managed)
        .flat_map(|policy| statements(&policy).flat_map(|one| one.actions).collect::<Vec<_>>())
        // Of the AWS managed policy AWSCodeDeployRoleForLambda, what a deployment with a hook and without S3 needs.
        .chain(
            ["cloudwatch:DescribeAlarms", "lambda:GetAlias", "lambda:InvokeFunction", "lambda:UpdateAlias"]
                .map(str::to_owned),
        )
        // Of the AWS managed policy AWSLambdaManagedEC2ResourceOperator.
        .chain(
            [
                "AttachNetworkInterface",
                "CreateNetworkInterface",
                "CreateTags",
                "DescribeAvailabilityZones",
                "DescribeCapacityReservations",
                "DescribeInstanceStatus",
                "DescribeInstanceTypeOfferings",
                "DescribeInstanceTypes",
                "DescribeInstances",
                "DescribeSecurityGroups",
                "DescribeSubnets",
                "RunInstances",
            ]
            .map(|action| format!("ec2:{action}")),
        )
        .collect();
    let missing: Vec<_> = granted.difference(&allowed).collect();
    assert!(granted.len() > 15 && missing.is_empty(), "{missing:?}");
    // IAM's actions would allow a role to leave the boundary.
    assert!(allowed.iter().all(|action| !action.starts_with("iam:") && !action.starts_with("sts:")), "{allowed:?}");
}

#[test]
fn each_role_of_the_stack_and_of_its_add_ons_has_the_boundary() {
    let template = plain(&text());
    let boundary = json!(["HasBoundary", "PermissionsBoundary", "AWS::NoValue"]);
    let files = std::fs::read_dir(workspace().join("deploy")).unwrap().map(|file| file.unwrap().path());
    let others = files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    let consumers = ["order-mails", "carrier"].map(|name| workspace().join(format!("app/{name}/template.yaml")));
    let others: Vec<_> = others.chain(consumers).map(|file| plain(&std::fs::read_to_string(file).unwrap())).collect();
    assert!(others.len() > 9);
    let of_others = others.iter().flat_map(|template| resources(template, "AWS::IAM::Role"));
    for (name, role) in resources(&template, "AWS::IAM::Role").into_iter().chain(of_others) {
        assert_eq!(role["Properties"]["PermissionsBoundary"], boundary, "{name}");
    }
    // Without these, SAM would create roles without a boundary.
    assert_eq!(template["Globals"]["Function"]["DeploymentPreference"]["Role"], "DeploymentRole.Arn");
    for (name, function) in resources(&template, "AWS::Serverless::Function") {
        assert!(function["Properties"].get("Role").is_some(), "{name}");
        assert!(function["Properties"]["DeploymentPreference"].get("Role").is_none(), "{name}");
    }
    // The workflow passes the boundary, as it passes the commit.
    let (workflow, samconfig) = (read(".github/workflows/deploy-to.yml"), read("samconfig.toml"));
    assert!(workflow.contains("\"PermissionsBoundary=$PERMISSIONS_BOUNDARY\""));
    // It deploys each add-on of this region that is not for people.
    let names: Vec<_> = workflow.split("for name in ").nth(1).unwrap().split(';').next().unwrap().split(' ').collect();
    assert_eq!(names, ["domain", "fan-out", "instances"]);
    assert!(names.iter().all(|name| workspace().join(format!("deploy/{name}.yaml")).exists()));
    for environment in ["staging", "prod"] {
        let section = samconfig.split(&format!("[{environment}.deploy.parameters]\n")).nth(1).unwrap();
        let section = section.split("\n[").next().unwrap();
        for parameter in ["'Release=\"\"'", "'PermissionsBoundary=\"\"'"] {
            assert!(section.contains(parameter), "{environment}: {parameter}");
        }
    }
}

#[test]
fn deployments_and_roles_may_do_what_only_some_of_them_need() {
    let mut all = of_deployment_roles();
    all.extend(statements(&account()["Resources"]["Boundary"]["Properties"]["PolicyDocument"]));
    for (action, arn) in [
        // Before CloudFormation deletes a policy, it lists whom that is attached to.
        ("iam:ListEntitiesForPolicy", "arn:aws:iam::123456789012:policy/daybook-staging-UseTheKey"),
        // samconfig.toml sets tags.
        ("cloudformation:TagResource", "arn:aws:cloudformation:eu-central-1:123456789012:stack/daybook-staging/1"),
        // A consumer sends commands of any aggregate type.
        ("execute-api:Invoke", "arn:aws:execute-api:eu-central-1:123456789012:a1b2c3d4e5/$default/POST/todo"),
    ] {
        let of_action = all.iter().filter(|one| one.actions.iter().any(|it| it == action));
        assert!(of_action.flat_map(|one| &one.resources).any(|it| matches(&example(it), arn)), "{action}");
    }
}

#[test]
fn workflow_builds_without_a_cache_and_attests_the_package() {
    let workflow: Value = serde_yaml_ng::from_str(&read(".github/workflows/deploy.yml")).unwrap();
    assert_eq!(workflow["on"]["push"]["paths-ignore"], json!(["**.md"]));
    let steps = workflow["jobs"]["build"]["steps"].as_array().unwrap().iter();
    let uses: Vec<_> = steps.filter_map(|step| step["uses"].as_str()?.split('@').next()?.split('/').nth(1)).collect();
    // Jobs that run tests could write a cache.
    assert_eq!(uses, ["checkout", "attest-build-provenance", "upload-artifact", "upload-artifact"]);
    assert_eq!(workflow["jobs"]["build"]["permissions"]["attestations"], "write");
    // The checks of a project use the same versions.
    let pinned = "--no-deps --require-hashes --requirement deploy/requirements.txt";
    assert!(read(".github/workflows/deploy.yml").contains(pinned));
    assert!(read("crates/scaffold/template/ci.yml").contains(pinned));
}

/// The resources of a template that outlive the stack.
fn retained(template: &Value) -> BTreeMap<String, Value> {
    let all = template["Resources"].as_object().unwrap().iter();
    let retained = all.filter(|(_, resource)| resource.get("DeletionPolicy").is_some());
    retained.map(|(name, resource)| (name.clone(), without_condition(resource))).collect()
}

/// A resource without its condition: an import always imports all of them.
fn without_condition(resource: &Value) -> Value {
    let members = resource.as_object().unwrap().iter().filter(|(name, _)| *name != "Condition");
    members.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[test]
fn stack_policy_protects_each_resource_that_outlives_the_stack() {
    let policy: Value = serde_json::from_str(&read(".github/stack-policy.json")).unwrap();
    let [allowed, denied] = &policy["Statement"].as_array().unwrap()[..] else { panic!("{policy}") };
    assert_eq!(*allowed, json!({"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}));
    assert_eq!((&denied["Effect"], &denied["Principal"]), (&json!("Deny"), &json!("*")));
    assert_eq!(denied["Action"], json!(["Update:Replace", "Update:Delete"]));
    let names = retained(&plain(&text())).into_keys().map(|name| format!("LogicalResourceId/{name}"));
    assert_eq!(denied["Resource"], json!(names.collect::<Vec<_>>()));
    // The role that deploys can set only the policy of an operator, and cannot replace its file.
    let file = "stack-policy.json";
    for statement in of_deployment_roles() {
        if statement.actions.iter().any(|action| action == "cloudformation:SetStackPolicy") {
            let url = format!("https://${{Packages}}.s3.${{AWS::Region}}.amazonaws.com/{file}");
            assert_eq!(statement.condition, json!({"StringEquals": {"cloudformation:StackPolicyUrl": url}}));
        }
        if statement.actions.iter().any(|action| action == "s3:PutObject") {
            assert_eq!(statement.resources, ["${Packages.Arn}/${StackName}/*"]);
        }
    }
    let workflow = read(".github/workflows/deploy-to.yml");
    assert!(workflow.contains(&format!(".amazonaws.com/{file}\n")));
    for environment in ["staging", "prod"] {
        assert!(read("samconfig.toml").contains(&format!("s3_prefix = \"daybook-{environment}\"")));
    }
}

#[test]
fn template_of_imports_equals_the_retained_part_of_the_stack() {
    let retained_template = read("deploy/retained.yaml");
    for evaluated in [plain, plain_with_parts] {
        assert_eq!(retained(&evaluated(&text())), retained(&evaluated(&retained_template)));
    }
    let (template, imported) = (plain(&text()), plain(&retained_template));
    assert!(imported["Resources"].as_object().unwrap().values().all(|one| one.get("DeletionPolicy").is_some()));
    // Only a stack with a key has a table of data keys, and each has a table.
    assert_eq!(imported["Resources"]["SubjectKeys"]["Condition"], template["Resources"]["SubjectKeys"]["Condition"]);
    assert!(imported["Resources"]["Table"].get("Condition").is_none());
    for part in ["Parameters", "Conditions"] {
        for (name, value) in imported[part].as_object().unwrap() {
            assert_eq!(*value, template[part][name], "{name}");
        }
    }
    // The documented identifiers name each of them.
    let page = read("docs/deploy.md");
    let block = page.split("```json\n").find(|block| block.starts_with("[\n")).unwrap().split("```").next().unwrap();
    let identifiers: Value = serde_json::from_str(block).unwrap();
    let named: BTreeMap<_, _> = identifiers
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["LogicalResourceId"].as_str().unwrap().to_owned(), one["ResourceType"].clone()))
        .collect();
    let types = retained(&template).into_iter().map(|(name, resource)| (name, resource["Type"].clone()));
    assert_eq!(named, types.collect());
}
