//! Access to the API: with any parameters, every caller must be authenticated. Only CORS preflight requests have no
//! credentials, and they do nothing.

use std::collections::BTreeMap;

use serde_json::json;
use serde_yaml_ng::Value as Yaml;

use super::{KEY, plain, read, text};

/// The template with parameters, as CloudFormation evaluates it before it creates resources.
struct Stack {
    template: Yaml,
    parameters: BTreeMap<String, String>,
}

impl Stack {
    fn with(parameters: &[(&str, &str)]) -> Self {
        let template: Yaml = serde_yaml_ng::from_str(&text()).unwrap();
        let all = template["Parameters"].as_mapping().unwrap().iter();
        let default = |(name, parameter): (&Yaml, &Yaml)| {
            let default = &parameter["Default"];
            let default = default.as_str().map_or_else(|| default.as_f64().unwrap().to_string(), str::to_owned);
            (name.as_str().unwrap().to_owned(), default)
        };
        let given = parameters.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let parameters = all.map(default).chain(given).collect();
        Self { template, parameters }
    }

    /// The value of an expression; a reference to anything but a parameter is its name.
    fn text(&self, expression: &Yaml) -> String {
        match expression {
            Yaml::Tagged(tagged) if tagged.tag == "If" => {
                let chosen = if self.condition(tagged.value[0].as_str().unwrap()) { 1 } else { 2 };
                self.text(&tagged.value[chosen])
            }
            Yaml::Tagged(tagged) if tagged.tag == "Ref" => {
                let name = tagged.value.as_str().unwrap();
                self.parameters.get(name).map_or(name, String::as_str).to_owned()
            }
            Yaml::Tagged(tagged) if tagged.tag == "Sub" => {
                let given = self.parameters.iter();
                let text = tagged.value.as_str().unwrap().to_owned();
                given.fold(text, |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
            }
            Yaml::Tagged(tagged) if tagged.tag == "Select" => {
                let [index, list] = &tagged.value.as_sequence().unwrap()[..] else { panic!("{tagged:?}") };
                let Yaml::Tagged(split) = list else { panic!("{list:?} is no list") };
                assert_eq!(split.tag, "Split");
                let text = self.text(&split.value[1]);
                let index = usize::try_from(index.as_u64().unwrap()).unwrap();
                text.split(split.value[0].as_str().unwrap()).nth(index).unwrap().to_owned()
            }
            Yaml::Tagged(tagged) => self.text(&tagged.value),
            plain => plain.as_str().unwrap_or_else(|| panic!("{plain:?} is no text")).to_owned(),
        }
    }

    fn condition(&self, name: &str) -> bool {
        self.holds(&self.template["Conditions"][name])
    }

    fn holds(&self, condition: &Yaml) -> bool {
        let (verb, operands) = match condition {
            Yaml::Tagged(tagged) if tagged.tag == "Condition" => return self.condition(tagged.value.as_str().unwrap()),
            Yaml::Tagged(tagged) => (tagged.tag.to_string(), &tagged.value),
            Yaml::Mapping(long) => {
                let (verb, operands) = long.iter().next().unwrap();
                (verb.as_str().unwrap().replace("Fn::", "!"), operands)
            }
            other => panic!("{other:?} is no condition"),
        };
        let operands = operands.as_sequence().unwrap();
        match verb.as_str() {
            "!And" => operands.iter().all(|operand| self.holds(operand)),
            "!Or" => operands.iter().any(|operand| self.holds(operand)),
            "!Not" => !self.holds(&operands[0]),
            "!Equals" => self.text(&operands[0]) == self.text(&operands[1]),
            other => panic!("{other} is not known here"),
        }
    }

    /// Whether CloudFormation accepts the parameters.
    fn is_accepted(&self) -> bool {
        let rules = self.template["Rules"].as_mapping().unwrap().values();
        rules
            .filter(|rule| rule.get("RuleCondition").is_none_or(|condition| self.holds(condition)))
            .flat_map(|rule| rule["Assertions"].as_sequence().unwrap())
            .all(|assertion| self.holds(&assertion["Assert"]))
    }

    /// The resources of a type that CloudFormation would create.
    fn resources(&self, of_type: &str) -> Vec<&Yaml> {
        let all = self.template["Resources"].as_mapping().unwrap().values();
        all.filter(|resource| resource["Type"] == *of_type)
            .filter(|resource| resource.get("Condition").is_none_or(|name| self.condition(name.as_str().unwrap())))
            .collect()
    }

    /// Each route with its type of authorization.
    fn routes(&self) -> Vec<(String, String)> {
        let route = |route: &Yaml| {
            let properties = &route["Properties"];
            let authorizer = properties.get("AuthorizerId").map_or("AWS::NoValue".to_owned(), |id| self.text(id));
            let kind = self.text(&properties["AuthorizationType"]);
            assert_eq!(kind == "JWT", authorizer == "JwtAuthorizer", "{kind} by {authorizer}");
            assert!(kind != "JWT" || !self.resources("AWS::ApiGatewayV2::Authorizer").is_empty());
            (self.text(&properties["RouteKey"]), kind)
        };
        self.resources("AWS::ApiGatewayV2::Route").into_iter().map(route).collect()
    }
}

const ISSUER: (&str, &str) = ("JwtIssuer", "https://issuer.example");
const AUDIENCE: (&str, &str) = ("JwtAudience", "daybook");
const ORIGINS: (&str, &str) = ("AllowedOrigins", "https://app.example");

#[test]
fn each_route_requires_an_authenticated_caller() {
    let routes = |parameters: &[(&str, &str)]| {
        let stack = Stack::with(&[parameters, &[("AlarmEmail", "none")]].concat());
        assert!(stack.is_accepted(), "{parameters:?}");
        stack.routes()
    };
    let default = |kind: &str| ("$default".to_owned(), kind.to_owned());
    // Browsers send a preflight request without credentials. It reaches the function as OPTIONS, which does nothing.
    let preflight = ("OPTIONS /{proxy+}".to_owned(), "NONE".to_owned());
    assert_eq!(routes(&[]), [default("AWS_IAM")]);
    assert_eq!(routes(&[ISSUER, AUDIENCE]), [default("JWT")]);
    assert_eq!(routes(&[ORIGINS]), [default("AWS_IAM"), preflight.clone()]);
    assert_eq!(routes(&[ISSUER, AUDIENCE, ORIGINS]), [default("JWT"), preflight]);
}

#[test]
fn incomplete_jwt_parameters_are_rejected_and_open_no_route() {
    for half in [ISSUER, AUDIENCE] {
        let stack = Stack::with(&[half, ("AlarmEmail", "none")]);
        assert!(!stack.is_accepted(), "{half:?}");
        assert_eq!(stack.routes(), [("$default".to_owned(), "AWS_IAM".to_owned())]);
    }
}

#[test]
fn policies_for_a_key_and_the_table_of_data_keys_exist_only_with_the_key() {
    for (of_type, more) in [("AWS::IAM::ManagedPolicy", 2), ("AWS::DynamoDB::Table", 1)] {
        let count = |parameters: &[_]| Stack::with(parameters).resources(of_type).len();
        assert_eq!(count(&[KEY]), count(&[]) + more, "{of_type}");
    }
}

#[test]
fn roles_may_use_the_earlier_key_too_while_data_has_it() {
    for (file, policy, service) in [
        ("template.yaml", "UseTheKey", "dynamodb."),
        ("deploy/read-models.yaml", "UseTheKey", "dynamodb."),
        ("deploy/reactor.yaml", "UseTheKey", "dynamodb."),
        ("deploy/operators.yaml", "UseTheKey", "dynamodb."),
        ("deploy/fan-out.yaml", "KinesisRuleUsesTheKey", "kinesis."),
        ("deploy/fan-out.yaml", "FirehoseUsesTheKey", "s3."),
    ] {
        let policy = plain(&read(file))["Resources"][policy]["Properties"]["PolicyDocument"]["Statement"][0].clone();
        let all = "arn:${AWS::Partition}:kms:${AWS::Region}:${AWS::AccountId}:key/*";
        assert_eq!(policy["Resource"], json!(["KmsKeyArn", all]), "{file}");
        assert!(policy["Condition"]["StringEquals"]["kms:ViaService"].to_string().contains(service), "{file}");
    }
}

#[test]
fn protected_stack_needs_alarms_and_another_may_have_none() {
    let unprotected = ("DeletionProtection", "false");
    for (parameters, accepted, alarms, mails) in [
        (&[][..], false, 0, 0),
        (&[unprotected], true, 0, 0),
        (&[("AlarmEmail", "none")], true, 1, 0),
        (&[("AlarmEmail", "on-call@example.com")], true, 1, 2),
    ] {
        let stack = Stack::with(parameters);
        let counted = |of_type| stack.resources(of_type).len();
        // The nested stack with the alarms.
        assert_eq!(counted("AWS::CloudFormation::Stack"), alarms, "{parameters:?}");
        assert_eq!(counted("AWS::SNS::Subscription"), mails, "{parameters:?}");
        assert_eq!(stack.is_accepted(), accepted, "{parameters:?}");
    }
}

#[test]
fn api_has_no_other_entry_points() {
    let stack = Stack::with(&[ISSUER, AUDIENCE, ORIGINS]);
    assert_eq!(stack.resources("AWS::ApiGatewayV2::Api").len(), 1);
    for of_type in ["AWS::Serverless::HttpApi", "AWS::Serverless::Api", "AWS::Lambda::Url"] {
        assert!(stack.resources(of_type).is_empty(), "{of_type}");
    }
    for function in stack.resources("AWS::Serverless::Function") {
        assert!(function["Properties"].get("FunctionUrlConfig").is_none());
        let events = function["Properties"].get("Events").and_then(Yaml::as_mapping);
        assert!(events.into_iter().flat_map(|events| events.values()).all(|event| event["Type"] == "DynamoDB"));
    }
    let permissions = stack.resources("AWS::Lambda::Permission");
    assert_eq!(permissions.len(), 1);
    assert_eq!(permissions[0]["Properties"]["Principal"], "apigateway.amazonaws.com");
    assert!(stack.text(&permissions[0]["Properties"]["SourceArn"]).ends_with(":${HttpApi}/*"));
}
