//! The number of parameters, and values that a deployment must accept.

use serde_json::json;
use serde_yaml_ng::Value as Yaml;

use super::{plain, read};

/// The parts that `!Select` chooses from, and which one it chooses, where `!Split` makes them.
fn selections(yaml: &Yaml, found: &mut Vec<(usize, String, String)>) {
    match yaml {
        Yaml::Tagged(tagged) => {
            if let ("Select", Yaml::Sequence(select)) = (tagged.tag.to_string().trim_start_matches('!'), &tagged.value)
                && let Yaml::Tagged(split) = &select[1]
            {
                let Yaml::Tagged(text) = &split.value[1] else { panic!("{split:?}") };
                let name = text.value.as_str().unwrap();
                let text = if text.tag == "Ref" { format!("${{{name}}}") } else { name.to_owned() };
                let index = select[0].as_u64().unwrap();
                found.push((usize::try_from(index).unwrap(), split.value[0].as_str().unwrap().to_owned(), text));
            }
            selections(&tagged.value, found);
        }
        Yaml::Sequence(elements) => elements.iter().for_each(|element| selections(element, found)),
        Yaml::Mapping(members) => members.values().for_each(|value| selections(value, found)),
        _ => {}
    }
}

/// CloudFormation may evaluate the branch of a condition that it does not take.
#[test]
fn selections_succeed_when_each_parameter_is_empty() {
    let mut found = Vec::new();
    let parts = ["deploy/read-models.yaml", "deploy/reactor.yaml"];
    for file in ["template.yaml", "deploy/instances.yaml", "deploy/fan-out.yaml"].into_iter().chain(parts) {
        selections(&serde_yaml_ng::from_str(&read(file)).unwrap(), &mut found);
    }
    assert!(found.len() > 10, "{found:?}");
    for (index, separator, text) in found {
        let mut empty = text.clone();
        while let Some((before, rest)) = empty.split_once("${") {
            empty = format!("{before}{}", rest.split_once('}').unwrap().1);
        }
        assert!(empty.split(&separator).count() > index, "part {index} of {text} at {separator}");
    }
}

/// `sam deploy --guided` asks for each of them.
#[test]
fn template_has_at_most_twenty_parameters_and_nine_hundred_lines() {
    let text = read("template.yaml");
    assert!(plain(&text)["Parameters"].as_object().unwrap().len() <= 20);
    assert!(text.lines().count() <= 900, "{}", text.lines().count());
    // Older versions of SAM do not know managed instances.
    assert!(!text.contains("CapacityProvider"));
}

#[test]
fn no_parameter_makes_a_guided_deployment_ask_for_ever() {
    for file in ["template.yaml", "deploy/instances.yaml", "deploy/domain.yaml", "deploy/fan-out.yaml"] {
        for (name, parameter) in plain(&read(file))["Parameters"].as_object().unwrap() {
            let is_hidden = parameter["NoEcho"] == true;
            assert!(
                !(is_hidden && parameter["Default"] == ""),
                "{name}: sam deploy --guided does not accept an empty value"
            );
        }
    }
}

#[test]
fn repository_is_accepted_with_the_ids_of_its_tokens_and_without() {
    let pattern = plain(&read(".github/aws.yaml"))["Parameters"]["Repository"]["AllowedPattern"].clone();
    // CloudFormation compares the whole value.
    let schema = json!({"pattern": format!("^({})$", pattern.as_str().unwrap())});
    for accepted in ["acme/orders", "acme@123456/orders@456789", "a.b-c_d/e"] {
        assert!(jsonschema::is_valid(&schema, &json!(accepted)), "{accepted}");
    }
    for rejected in ["acme", "acme/orders@456789", "acme@1/orders", "acme@x/orders@y", "acme/*", "acme@1/orders@2:ref"]
    {
        assert!(!jsonschema::is_valid(&schema, &json!(rejected)), "{rejected}");
    }
}
