//! What the rules of the command line name that does not exist. It may be a typing error, with which a queue would stay empty.
//!
//! These are warnings, because it may exist later: the code may be edited while the stack runs, and the program may be built.
//! Other senders may put messages of their own on the bus, and the table may contain messages of earlier code.

use std::collections::BTreeSet;
use std::env::{self, consts};
use std::ffi::OsString;
use std::path::Path;

use daybook_command_handler::openapi::variants;
use daybook_decider::{Model, Registry};

use crate::rule_option::{FunctionCode, RuleOption};

/// A warning for each aggregate type, message type and program of a rule that is not known.
pub fn rule_warnings(rules: &[RuleOption], registry: &Registry) -> Vec<String> {
    if rules.is_empty() {
        // The names of the messages come from their JSON schemas, which take time.
        return Vec::new();
    }
    let aggregate_types: BTreeSet<_> = registry.iter().map(|model| model.type_name().to_owned()).collect();
    let message_types: BTreeSet<_> = registry.iter().flat_map(message_types).collect();
    let mut warnings = Vec::new();
    for RuleOption { aggregate_types: of_rule, message_types: messages_of_rule, function, text, .. } in rules {
        let unknown = |kind: &str, names: &[String], known: &BTreeSet<String>| {
            let unknown: Vec<_> = names.iter().filter(|name| !known.contains(*name)).collect();
            let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {known}") };
            let warning = |name: &String| format!("'{text}' names an unknown {kind} type {name:?}; {known}");
            unknown.into_iter().map(warning).collect::<Vec<_>>()
        };
        warnings.extend(unknown("aggregate", of_rule, &aggregate_types));
        warnings.extend(unknown("message", messages_of_rule, &message_types));
        if let Some(FunctionCode::Program(path)) = function.as_ref().map(|function| &function.code)
            && !exists(path)
        {
            warnings.push(format!("'{text}' names a program that does not exist yet; build {}", path.display()));
        }
    }
    warnings
}

/// The names of the messages of an aggregate.
fn message_types(model: &dyn Model) -> impl Iterator<Item = String> {
    variants(model.schemas().message.as_value(), "type").into_iter().map(|variant| variant.name)
}

/// Whether a program can be found: at its path, or in the folders of `PATH` if it is a name alone.
fn exists(program: &Path) -> bool {
    let mut with_suffix = OsString::from(program);
    with_suffix.push(consts::EXE_SUFFIX);
    let is_in = |folder: &Path| folder.join(program).is_file() || folder.join(&with_suffix).is_file();
    if program.components().count() > 1 {
        return is_in(Path::new(""));
    }
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| is_in(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_of_a_rule_are_warnings_that_list_the_known_ones() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("billing");
        std::fs::write(&program, "").unwrap();
        let known = format!("order/*,todo/* -> queue:a -> function:{}", program.display());
        let rules = [
            known.as_str(),
            "OrderPlaced, accountOverdrawn -> queue:b",
            "* -> function:sh",
            "* -> function:http://localhost:9000/x",
            r#"{"detail": {"metadata": {"aggregateType": [{"prefix": "or"}]}}, "source": ["other"]} -> queue:c"#,
            "ordr/*,todo/* -> queue:d",
            "OrderPlacd -> queue:e -> function:target/nowhere/billing",
            r#"{"detail-type": ["OrderPlacd"]} -> queue:f"#,
        ];
        let rules = rules.map(|rule| rule.parse().unwrap());
        let registry = aggregates::registry().unwrap();
        let warnings = rule_warnings(&rules, &registry);
        let ordr = r#"'ordr/*,todo/* -> queue:d' names an unknown aggregate type "ordr"; known: account, order, todo"#;
        assert_eq!(warnings[0], ordr);
        for (warning, expected) in warnings[1..].iter().zip([
            "names an unknown message type \"OrderPlacd\"; known: ",
            "names a program that does not exist yet; build target/nowhere/billing",
            "names an unknown message type \"OrderPlacd\"; known: ",
        ]) {
            assert!(warning.contains(expected), "{warning}");
        }
        assert!(warnings[1].contains("OrderPlaced, "), "{}", warnings[1]);
        assert_eq!(warnings.len(), 4, "{warnings:#?}");
    }
}
