//! A test of an aggregate as Rust source: given events, a command, then events; or given events and their state.

use std::fmt::Write;

/// What the test expects.
pub(crate) enum Expectation<'a> {
    Decision {
        /// The command, JSON.
        command: &'a str,
        /// The name of the rejection, if the rules reject the command.
        rejection: Option<&'a str>,
        /// The new events, JSON.
        events: &'a [String],
        /// The types of the new messages.
        messages: &'a [String],
        /// The time of the decision.
        at: Option<&'a str>,
    },
    /// The state after the events, JSON.
    State(&'a str),
}

/// The test of an aggregate.
pub(crate) struct TestSource<'a> {
    /// The path of the Rust type of the aggregate.
    pub(crate) subject: &'a str,
    /// The name of the test, of any characters.
    pub(crate) name: &'a str,
    /// The id of the aggregate.
    pub(crate) id: &'a str,
    /// The events before, JSON.
    pub(crate) given: &'a [String],
    pub(crate) expectation: Expectation<'a>,
}

impl TestSource<'_> {
    /// The source, for a file in the folder `tests` of the crate of the aggregates.
    pub(crate) fn text(&self) -> String {
        let Self { subject, name, id, given, expectation } = self;
        let name = identifier(name);
        let mut text = format!(
            "use daybook::Aggregate;\nuse daybook::given::given;\n\ntype Subject = {subject};\n\n\
             fn event(json: &str) -> <Subject as Aggregate>::Event {{\n    serde_json::from_str(json).unwrap()\n}}\n"
        );
        let given = list(given, 1);
        // Writing to a text cannot fail.
        let _ = match expectation {
            Expectation::Decision { command, rejection, events, messages, at } => {
                let at = at.map(|at| format!("\n        .at({at:?})")).unwrap_or_default();
                let then = match rejection {
                    Some(rejection) => format!("then_rejected({rejection:?}, {})", list(events, 2)),
                    None => format!("then({})", list(events, 2)),
                };
                write!(
                    text,
                    "\nfn command(json: &str) -> <Subject as Aggregate>::Command {{\n    serde_json::from_str(json).unwrap()\n}}\n\n\
                     #[test]\nfn {name}() {{\n    given::<Subject>({given})\n        .with_id({id:?}){at}\n        .when(command({}))\n        \
                     .{then}\n        .announces({messages:?});\n}}\n",
                    raw(command)
                )
            }
            Expectation::State(state) => write!(
                text,
                "\n#[test]\nfn {name}() {{\n    let state = given::<Subject>({given}).state();\n    let expected: serde_json::Value = \
                 serde_json::from_str({}).unwrap();\n    assert_eq!(serde_json::to_value(state).unwrap(), expected);\n}}\n",
                raw(state)
            ),
        };
        text
    }
}

fn list(events: &[String], depth: usize) -> String {
    let (inner, outer) = ("    ".repeat(depth + 1), "    ".repeat(depth));
    let lines: String = events.iter().map(|event| format!("\n{inner}event({}),", raw(event))).collect();
    if lines.is_empty() { "[]".to_owned() } else { format!("[{lines}\n{outer}]") }
}

/// A text as a raw string, with as many signs as it needs.
fn raw(text: &str) -> String {
    let signs = (1..).map(|count| "#".repeat(count)).find(|signs| !text.contains(&format!("\"{signs}")));
    let signs = signs.unwrap_or_default();
    format!("r{signs}\"{text}\"{signs}")
}

/// A name in snake case: `RecordTransaction on account/1` becomes `record_transaction_on_account_1`.
fn identifier(name: &str) -> String {
    let mut identifier = String::new();
    let mut was_lower = false;
    for character in name.chars() {
        if character.is_ascii_uppercase() && was_lower {
            identifier.push('_');
        }
        was_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        let next = if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '_' };
        if next != '_' || !identifier.ends_with('_') {
            identifier.push(next);
        }
    }
    identifier.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_test_is_an_identifier() {
        assert_eq!(identifier("RecordTransaction on account/12-b"), "record_transaction_on_account_12_b");
        assert_eq!(identifier("state of order/A.1~ at version 3"), "state_of_order_a_1_at_version_3");
    }

    #[test]
    fn raw_text_ends_where_it_should() {
        assert_eq!(raw("a"), "r#\"a\"#");
        assert_eq!(raw("a\"#b\"##"), "r###\"a\"#b\"##\"###");
    }
}
