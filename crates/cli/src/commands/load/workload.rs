//! The requests to the aggregates of a type: the examples of the API document, in an order that the aggregate accepts.

use daybook_decider::{Caller, CommandRequest, DecisionInput, Folded, Json, Meta, Model, Registry};
use daybook_projection::Projections;
use jiff::Timestamp;
use serde_json::{Value, json};
use ulid::Ulid;

use crate::operator::OperatorError;

/// The requests to an aggregate of one type.
pub(super) struct Script {
    aggregate_type: &'static str,
    /// The command that creates the aggregate, and those that follow. None deletes it, so it can always be read.
    pub(super) commands: Vec<Value>,
}

/// The scripts of the aggregate types with these names, or of all.
pub(super) fn scripts(registry: &Registry, types: &[String]) -> Result<Vec<Script>, OperatorError> {
    if let Some(unknown) = types.iter().find(|name| registry.get(name).is_none()) {
        return Err(OperatorError::Usage(format!("--type is {unknown:?}, which is not a registered aggregate type")));
    }
    let document = daybook_command_handler::openapi::document(registry, &Projections::new());
    let selected = registry.iter().filter(|model| types.is_empty() || types.iter().any(|t| t == model.type_name()));
    let scripts = selected.map(|model| Script::of_examples(model, &document));
    let scripts: Vec<_> = scripts.filter(|script| !script.commands.is_empty()).collect();
    let reason =
        "the API document has no example that creates an aggregate; add `#[schemars(example = …)]` to its fields";
    if scripts.is_empty() { Err(OperatorError::Usage(reason.to_owned())) } else { Ok(scripts) }
}

impl Script {
    fn of_examples(model: &dyn Model, document: &Value) -> Self {
        let path = format!("/{}/{{id}}/commands", model.type_name());
        let examples =
            &document["paths"][path.as_str()]["post"]["requestBody"]["content"]["application/json"]["examples"];
        let later = examples["several"]["value"].as_array().into_iter().flatten();
        let (mut now, mut commands) = (model.before_first_event(), Vec::new());
        for command in std::iter::once(&examples["creation"]["value"][0]).chain(later) {
            match after(model, &now, command).filter(|next| !model.is_deleted(next)) {
                Some(next) => now = next,
                None if commands.is_empty() => break,
                None => continue,
            }
            commands.push(command.clone());
        }
        Self { aggregate_type: model.type_name(), commands }
    }

    /// The path and the body of the request with a command; of a read, if there is no command.
    pub(super) fn request(&self, command: Option<usize>, id: &str) -> (String, Option<String>) {
        let (collection, Some(number)) = (format!("/{}", self.aggregate_type), command) else {
            return (format!("/{}/{id}", self.aggregate_type), None);
        };
        let command = &self.commands[number];
        if number > 0 {
            return (format!("{collection}/{id}/commands"), Some(command.to_string()));
        }
        let mut body = command.get("data").cloned().unwrap_or(json!({}));
        body["id"] = id.into();
        (collection, Some(body.to_string()))
    }
}

/// The aggregate after a command; `None` if it is rejected.
fn after(model: &dyn Model, before: &Folded, command: &Value) -> Option<Folded> {
    let data = Json::of(command.get("data").unwrap_or(&json!({}))).ok()?;
    let request = CommandRequest { command: command["command"].as_str()?.to_owned(), data };
    let (now, seed) = (Timestamp::now(), Ulid::generate());
    let input = DecisionInput { now, seed, meta: Meta::default(), epoch: 1, caller: Caller::anonymous() };
    let decided = model.decide(before, "load", &[request], &input).ok()?;
    decided.rejection.is_none().then_some(decided.after)
}
