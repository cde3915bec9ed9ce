//! The option `--rule`: an event pattern, and where the events that match it go. What it names may not exist, which is a
//! warning: the code may be edited while the stack runs, the program may be built, and other senders may use the bus.

use std::collections::BTreeSet;
use std::env::{self, consts};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use daybook_command_handler::openapi::variants;
use daybook_decider::{Model, Registry};
use daybook_local_aws::messaging::EventPattern;
use serde_json::{Value, json};

/// How often a message of a queue is received before it goes to the dead-letter queue.
const MAX_RECEIVES_OF_QUEUE: u32 = 5;

/// How often a function is invoked with an event before the event goes to the dead-letter queue, as Lambda does.
const MAX_INVOCATIONS: u32 = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct RuleOption {
    pub(crate) pattern: EventPattern,
    pub(crate) json: Value,
    /// The queue that gets the events. A function without a queue has one of its own, as Lambda has for its asynchronous
    /// invocations.
    pub(crate) queue: String,
    pub(crate) function: Option<FunctionOption>,
    /// The option as it was given.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionOption {
    pub(crate) code: FunctionCode,
    /// Whether its event is a batch of messages, as from a queue, instead of one event of the bus.
    pub(crate) takes_batches: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FunctionCode {
    /// A program that speaks the Lambda Runtime API.
    Program(PathBuf),
    /// A URL that accepts events, such as that of `cargo lambda watch` or of a container of Lambda.
    Url(String),
}

impl RuleOption {
    pub fn queue_name(&self) -> Option<&str> {
        let is_named = self.function.as_ref().is_none_or(|function| function.takes_batches);
        is_named.then_some(&self.queue)
    }

    /// Whether the stack starts the function, and so sets its variables.
    pub fn starts_a_program(&self) -> bool {
        self.function.as_ref().is_some_and(|function| matches!(function.code, FunctionCode::Program(_)))
    }

    /// The table of the function. A program finds its name in the variable `TABLE_NAME`.
    pub fn table_name(&self) -> Option<String> {
        Some(format!("consumer-{}", self.function.as_ref()?.code.name()))
    }

    pub(crate) fn max_receives(&self) -> u32 {
        if self.queue_name().is_some() { MAX_RECEIVES_OF_QUEUE } else { MAX_INVOCATIONS }
    }
}

impl FunctionCode {
    /// The name of the function: that of the program, or the last part of the URL.
    pub(crate) fn name(&self) -> String {
        let name = match self {
            Self::Program(path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            // The URL of an invocation ends with `functions/NAME/invocations`.
            Self::Url(url) => {
                let url = url.trim_end_matches('/');
                let url = url.strip_suffix("/invocations").unwrap_or(url);
                url.rsplit('/').next().unwrap_or_default().to_owned()
            }
        };
        name.replace(|character: char| !(character.is_ascii_alphanumeric() || "-_".contains(character)), "-")
    }
}

impl FromStr for RuleOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "the form is 'PATTERN -> TARGET', with a target queue:NAME, function:PATH, function:URL or \
                    queue:NAME -> function:PATH";
        // A pattern may contain the arrow, and a target cannot.
        let (before, last) = text.rsplit_once("->").ok_or(form)?;
        let (pattern, queue, function) = match (before.rsplit_once("->"), last.trim()) {
            (Some((pattern, queue)), function) if queue.trim().starts_with("queue:") => {
                (pattern, Some(queue.trim()), Some(function))
            }
            (_, queue) if queue.starts_with("queue:") => (before, Some(queue), None),
            (_, function) => (before, None, Some(function)),
        };
        let code = function.map(|function| code(function).ok_or(form)).transpose()?;
        let takes_batches = queue.is_some();
        let queue = match (queue, &code) {
            (Some(queue), _) => queue_name(queue.trim_start_matches("queue:"))?,
            (None, Some(code)) => format!("{}-invocations", code.name()),
            (None, None) => return Err(form.to_owned()),
        };
        let function = code.map(|code| FunctionOption { code, takes_batches });
        let pattern = pattern_of(pattern.trim())?;
        Ok(Self {
            pattern: EventPattern::new(&pattern).map_err(|error| format!("the pattern is not valid: {error}"))?,
            json: pattern,
            queue,
            function,
            text: text.to_owned(),
        })
    }
}

/// The pattern of a JSON text, of aggregate types (`TYPE/*`) or message types that commas separate, or of `*` for all events.
fn pattern_of(text: &str) -> Result<Value, String> {
    Ok(match text {
        "" => return Err("the pattern is missing; * selects all events".to_owned()),
        "*" => json!({"source": [{"exists": true}]}),
        text if text.starts_with('{') => {
            serde_json::from_str(text).map_err(|error| format!("the pattern is not JSON: {error}"))?
        }
        list => {
            let names: Vec<_> = list.split(',').map(str::trim).collect();
            let aggregates: Vec<_> = names.iter().filter_map(|name| name.strip_suffix("/*")).collect();
            match aggregates.len() {
                0 => json!({"detail-type": names}),
                all if all == names.len() => json!({"detail": {"metadata": {"aggregateType": aggregates}}}),
                _ => return Err("a pattern names either aggregate types (TYPE/*) or message types".to_owned()),
            }
        }
    })
}

fn code(function: &str) -> Option<FunctionCode> {
    let code = function.strip_prefix("function:").filter(|code| !code.is_empty())?;
    let is_url = code.starts_with("http://") || code.starts_with("https://");
    Some(if is_url { FunctionCode::Url(code.to_owned()) } else { FunctionCode::Program(Path::new(code).to_owned()) })
}

/// A name by the rule of SQS, with room for the name of the dead-letter queue.
fn queue_name(name: &str) -> Result<String, String> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    if (1..=76).contains(&name.len()) && name.chars().all(is_allowed) {
        return Ok(name.to_owned());
    }
    Err(format!("the name of the queue {name:?} must have 1 to 76 letters, digits, hyphens and underscores"))
}

/// A warning for each aggregate type, message type and program of a rule that is not known.
pub fn rule_warnings(rules: &[RuleOption], registry: &Registry) -> Vec<String> {
    if rules.is_empty() {
        // The names of the messages come from their JSON schemas, which take time.
        return Vec::new();
    }
    let aggregate_types: BTreeSet<_> = registry.iter().map(|model| model.type_name().to_owned()).collect();
    let message_types: BTreeSet<_> = registry.iter().flat_map(message_types).collect();
    let mut warnings = Vec::new();
    for RuleOption { json, function, text, .. } in rules {
        let unknown = |kind: &str, named: &Value, known: &BTreeSet<String>| {
            let named = named.as_array().into_iter().flatten().filter_map(Value::as_str);
            let unknown = named.filter(|name| !known.contains(*name));
            let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {known}") };
            unknown.map(|name| format!("'{text}' names an unknown {kind} type {name:?}; {known}")).collect::<Vec<_>>()
        };
        warnings.extend(unknown("aggregate", &json["detail"]["metadata"]["aggregateType"], &aggregate_types));
        warnings.extend(unknown("message", &json["detail-type"], &message_types));
        if let Some(FunctionCode::Program(path)) = function.as_ref().map(|function| &function.code)
            && !exists(path)
        {
            warnings.push(format!("'{text}' names a program that does not exist yet; build {}", path.display()));
        }
    }
    warnings
}

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

    fn rule(text: &str) -> Result<RuleOption, String> {
        text.parse()
    }

    fn pattern(json: &Value) -> EventPattern {
        EventPattern::new(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    #[test]
    fn rule_names_pattern_queue_and_function() {
        let program = |path: &str| FunctionCode::Program(path.into());
        for (text, expected_pattern, queue, function) in [
            ("TodoCreated -> queue:seen", json!({"detail-type": ["TodoCreated"]}), "seen", None),
            ("A, B -> queue:seen", json!({"detail-type": ["A", "B"]}), "seen", None),
            ("a/*, b/* -> queue:q", json!({"detail": {"metadata": {"aggregateType": ["a", "b"]}}}), "q", None),
            ("* -> queue:a_b-1", json!({"source": [{"exists": true}]}), "a_b-1", None),
            (
                r#"{"resources": [{"prefix": "todo/->"}]} -> function:target/debug/my.consumer"#,
                json!({"resources": [{"prefix": "todo/->"}]}),
                "my-invocations",
                Some((program("target/debug/my.consumer"), false)),
            ),
            ("A->queue:q->function:x", json!({"detail-type": ["A"]}), "q", Some((program("x"), true))),
            (
                "A -> function:http://localhost:9000/2015-03-31/functions/bill/invocations",
                json!({"detail-type": ["A"]}),
                "bill-invocations",
                Some((FunctionCode::Url("http://localhost:9000/2015-03-31/functions/bill/invocations".into()), false)),
            ),
        ] {
            let found = rule(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((&found.pattern, found.queue.as_str()), (&pattern(&expected_pattern), queue), "{text}");
            let function = function.map(|(code, takes_batches)| FunctionOption { code, takes_batches });
            assert_eq!(found.function, function, "{text}");
        }
    }

    #[test]
    fn wrong_rule_is_rejected_with_its_reason() {
        for (text, expected) in [
            ("TodoCreated", "the form is"),
            ("TodoCreated -> seen", "the form is"),
            ("TodoCreated -> function:", "the form is"),
            (" -> queue:seen", "the pattern is missing"),
            ("a/*, B -> queue:seen", "a pattern names either aggregate types"),
            ("A -> queue:a/b", "the name of the queue \"a/b\" must have"),
            ("A -> queue:", "the name of the queue \"\" must have"),
            ("{\"a\" -> queue:q", "the pattern is not JSON"),
            (r#"{"a": [{"glob": "x"}]} -> queue:q"#, "the pattern is not valid: a: unknown operator \"glob\""),
        ] {
            let error = rule(text).err().unwrap_or_default();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

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
        let ordr = r#"'ordr/*,todo/* -> queue:d' names an unknown aggregate type "ordr"; known: account, course, customer, fulfilment, order, payment, reservation, shipment, student, subscription, todo"#;
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
