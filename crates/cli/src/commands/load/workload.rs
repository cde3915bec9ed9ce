//! The requests: for each aggregate type, the commands of the API document's examples in an order that the aggregate
//! accepts.

use daybook_decider::{Caller, CommandRequest, DecisionInput, Folded, Json, Meta, Model, Registry};
use daybook_projection::Projections;
use jiff::Timestamp;
use serde_json::{Value, json};
use ulid::Ulid;

use super::options::Share;
use crate::operator::OperatorError;

/// A command that can follow itself this often can be sent to a hot aggregate any number of times.
const REPETITIONS: usize = 30;

/// The requests of a run.
#[derive(Debug)]
pub(super) struct Workload {
    /// The beginning of each id.
    pub(super) prefix: String,
    scripts: Vec<Script>,
    mix: Mix,
}

/// The shares of the kinds of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) reads: Share,
    pub(super) hot: Share,
    pub(super) hot_aggregates: usize,
}

/// The requests to an aggregate of one type.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) aggregate_type: &'static str,
    /// The data of the create command.
    pub(super) create: Value,
    /// The commands that follow, one after the other.
    pub(super) commands: Vec<Step>,
    /// A command that the aggregate accepts any number of times after its creation.
    pub(super) repeatable: Option<Value>,
}

#[derive(Debug)]
pub(super) struct Step {
    /// The body of the request.
    pub(super) command: Value,
    /// Whether the aggregate is deleted afterwards.
    pub(super) deletes: bool,
}

/// The kind of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    /// The next command of an aggregate that no other sender writes.
    Command,
    /// A command to the hot aggregate of this number.
    Hot(usize),
    /// A read of the state of an aggregate that exists.
    Read,
}

impl Workload {
    /// The workload of the aggregate types with these names, or of all.
    pub(super) fn of_examples(
        registry: &Registry,
        types: &[String],
        mix: Mix,
        prefix: String,
    ) -> Result<Self, OperatorError> {
        let without_views = Projections::new();
        let document = daybook_command_handler::openapi::document(registry, &without_views);
        if let Some(unknown) = types.iter().find(|name| registry.get(name).is_none()) {
            return Err(OperatorError::Usage(format!(
                "--type is {unknown:?}, which is not a registered aggregate type"
            )));
        }
        let selected = registry.iter().filter(|model| types.is_empty() || types.iter().any(|t| t == model.type_name()));
        let scripts: Vec<_> = selected.filter_map(|model| Script::of_examples(model, &document)).collect();
        let workload = Self { prefix, scripts, mix };
        if workload.scripts.is_empty() {
            let reason = "the API document has no example that creates an aggregate; add `#[schemars(example = …)]` to its fields";
            return Err(OperatorError::Usage(reason.to_owned()));
        }
        if mix.hot != "0".parse().expect("it is a share") && workload.hot_scripts().next().is_none() {
            let reason = "--hot needs a type whose examples contain a command that can be sent again and again";
            return Err(OperatorError::Usage(reason.to_owned()));
        }
        Ok(workload)
    }

    /// The kind of the request `index`, counted from 0.
    pub(super) fn kind(&self, index: u64) -> RequestKind {
        let Mix { reads, hot, hot_aggregates } = self.mix;
        if reads.selects(index) {
            return RequestKind::Read;
        }
        let writes = index - reads.count(index);
        if hot.selects(writes) {
            let number = hot.count(writes) % hot_aggregates as u64;
            return RequestKind::Hot(usize::try_from(number).unwrap_or_default());
        }
        RequestKind::Command
    }

    /// The script of the aggregate `number`: all types in turn.
    pub(super) fn script(&self, number: usize) -> &Script {
        &self.scripts[number % self.scripts.len()]
    }

    /// The scripts of the hot aggregates.
    pub(super) fn hot_aggregates(&self) -> Vec<&Script> {
        let uses_hot = self.mix.hot.count(u64::from(u32::MAX)) > 0;
        let count = if uses_hot { self.mix.hot_aggregates } else { 0 };
        self.hot_scripts().cycle().take(count).collect()
    }

    fn hot_scripts(&self) -> impl Iterator<Item = &Script> + Clone {
        self.scripts.iter().filter(|script| script.repeatable.is_some())
    }
}

impl Script {
    /// The script of a type, from the examples of its paths in the API document.
    fn of_examples(model: &dyn Model, document: &Value) -> Option<Self> {
        let aggregate_type = model.type_name();
        let path = format!("/{aggregate_type}/{{id}}/commands");
        let examples =
            &document["paths"][path.as_str()]["post"]["requestBody"]["content"]["application/json"]["examples"];
        let create = examples["creation"]["value"][0].clone();
        let created = after(model, &model.before_first_event(), &create)?;
        let (mut commands, mut now) = (Vec::new(), created.clone());
        for command in examples["several"]["value"].as_array().into_iter().flatten() {
            let Some(next) = after(model, &now, command) else { continue };
            commands.push(Step { command: command.clone(), deletes: model.is_deleted(&next) });
            now = next;
        }
        let repeats = |command: &&Value| {
            let mut each = std::iter::repeat_n(*command, REPETITIONS);
            each.try_fold(created.clone(), |now, command| after(model, &now, command)).is_some()
        };
        let repeatable = commands.iter().map(|step| &step.command).find(repeats).cloned();
        Some(Self { aggregate_type, create: create.get("data").cloned().unwrap_or(json!({})), commands, repeatable })
    }

    pub(super) fn create_path(&self) -> String {
        format!("/{}", self.aggregate_type)
    }

    /// The body of the request that creates an aggregate.
    pub(super) fn create_body(&self, id: &str) -> String {
        let mut body = self.create.clone();
        body["id"] = id.into();
        body.to_string()
    }

    pub(super) fn path(&self, id: &str) -> String {
        format!("/{}/{id}", self.aggregate_type)
    }

    pub(super) fn commands_path(&self, id: &str) -> String {
        format!("{}/commands", self.path(id))
    }
}

/// The aggregate after a command; `None` if it is rejected.
fn after(model: &dyn Model, before: &Folded, command: &Value) -> Option<Folded> {
    let request = CommandRequest {
        command: command["command"].as_str()?.to_owned(),
        data: Json::of(command.get("data").unwrap_or(&json!({}))).ok()?,
    };
    let (now, seed) = (Timestamp::now(), Ulid::generate());
    let input = DecisionInput { now, seed, meta: Meta::default(), epoch: 1, caller: Caller::anonymous() };
    let decided = model.decide(before, "load", &[request], &input).ok()?;
    decided.rejection.is_none().then_some(decided.after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(mix: (&str, &str, usize), types: &[&str]) -> Result<Workload, OperatorError> {
        let (reads, hot, hot_aggregates) = mix;
        let mix = Mix { reads: reads.parse().unwrap(), hot: hot.parse().unwrap(), hot_aggregates };
        let types: Vec<_> = types.iter().map(|&name| name.to_owned()).collect();
        Workload::of_examples(&aggregates::registry().unwrap(), &types, mix, "load-1".to_owned())
    }

    #[test]
    fn script_of_each_type_has_its_examples_in_an_order_that_the_rules_accept() {
        let workload = workload(("0", "0", 1), &[]).unwrap();
        let names = |script: &Script| -> Vec<_> {
            script.commands.iter().map(|step| step.command["command"].as_str().unwrap().to_owned()).collect()
        };
        let [account, order, todo] = workload.scripts.as_slice() else { panic!("{workload:?}") };
        assert_eq!(names(account), ["UpdateOwner", "RecordTransaction"]);
        assert_eq!(names(order), ["ProcessPayment", "ShipOrder", "DeliverOrder", "RefundOrder"]);
        assert_eq!(names(todo), ["UpdateTodo", "DeleteTodo"]);
        assert_eq!(todo.commands.iter().map(|step| step.deletes).collect::<Vec<_>>(), [false, true]);
        let repeatable = |script: &Script| Some(script.repeatable.as_ref()?["command"].clone());
        // An account rejects the fourth withdrawal of the example, and an order its second payment.
        assert_eq!(
            [account, order, todo].map(repeatable),
            [Some("UpdateOwner".into()), None, Some("UpdateTodo".into())]
        );
    }

    #[test]
    fn mix_has_the_given_shares() {
        let workload = workload(("25%", "40%", 3), &[]).unwrap();
        let kinds: Vec<_> = (0..400).map(|index| workload.kind(index)).collect();
        let count = |wanted: fn(&RequestKind) -> bool| kinds.iter().filter(|kind| wanted(kind)).count();
        assert_eq!(count(|kind| *kind == RequestKind::Read), 100);
        assert_eq!(count(|kind| matches!(kind, RequestKind::Hot(_))), 120);
        assert_eq!(count(|kind| *kind == RequestKind::Hot(2)), 40);
        assert_eq!(workload.hot_aggregates().len(), 3);
    }

    #[test]
    fn workload_that_cannot_be_sent_is_a_usage_error() {
        for (mix, types, expected) in
            [(("0", "0", 1), ["nothing"], "not a registered"), (("0", "10%", 1), ["order"], "--hot needs a type")]
        {
            let error = workload(mix, &types).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
    }
}
