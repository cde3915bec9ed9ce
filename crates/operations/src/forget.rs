//! Forgetting the personal data of an aggregate.

use std::time::Duration;

use clap::Args;
use daybook_admin::AdminCalls;
use daybook_decider::joint::decide;
use daybook_decider::{
    Addressed, AggregateKey, Caller, CommandError, CommandRequest, DecisionInput, Decisions, Folded, Involved,
    JointError, Json, Meta, Model, Registry,
};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, LoadPolicy, ResponseDetail, TransactError, TransactOptions, Undecided,
};
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use crate::error::OperatorError;
use crate::stack::{SETTINGS_TO_IMPORT_MESSAGES, Stack};
use crate::verify::VerifyFinding;

const PATIENCE: Duration = Duration::from_secs(10);

/// Forget the personal values about an aggregate, in all rows that the stack stores.
///
/// A dry run by default, which decides the command that the code declares (FORGET), and appends nothing; `--yes` executes it. Its
/// event, the end of the key and the release of claims are one transaction. If the aggregate is forgotten already, only its key is
/// ended, in case a restore has brought it back. Copies outside the stack are not changed.
#[derive(Clone, Debug, Args)]
pub struct ForgetOptions {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    pub aggregate: AggregateKey,
    /// Forget; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Then check all rows of the aggregate, also that no event has a value in plain text.
    #[arg(long)]
    pub verify: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForgottenAggregate {
    pub aggregate: String,
    pub dry_run: bool,
    pub command: Option<&'static str>,
    /// The version of the aggregate, after the command if it was sent.
    pub version: u64,
    pub was_forgotten: bool,
    #[serde(skip)]
    pub findings: Vec<VerifyFinding>,
}

pub async fn forget(stack: &Stack, options: &ForgetOptions) -> Result<ForgottenAggregate, OperatorError> {
    let failed = |reason: String| OperatorError::Failed(format!("{}: {reason}", options.aggregate));
    let store = stack.store(SETTINGS_TO_IMPORT_MESSAGES).await?;
    let key = &options.aggregate;
    let registry = &stack.registry;
    let model = registry.get(&key.aggregate_type);
    let model = model.ok_or_else(|| failed(format!("no aggregate type {} is registered", key.aggregate_type)))?;
    let unavailable = OperatorError::store("cannot forget the aggregate; run it again");
    let loaded = store.load(model, key).await.map_err(&unavailable)?;
    if loaded.version() == 0 {
        return Err(failed("it does not exist".to_owned()));
    }
    let is_forgotten = |folded: &Folded| model.is_forgotten(folded).map_err(|panic| failed(panic.to_string()));
    let mut version = loaded.version();
    let was_forgotten = is_forgotten(&loaded.folded)?;
    let command = model.forget();
    if command.is_none() && !was_forgotten {
        return Err(failed("its type declares no FORGET".to_owned()));
    }
    if let Some(command) = command.filter(|_| !was_forgotten) {
        let commands = [CommandRequest { command: command.to_owned(), data: Json::empty_object() }];
        let forgetting = Forgetting { registry, store: &store, key, commands: &commands, appends: options.yes };
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: false,
            expected_version: None,
            idempotency: None,
            deadline: Instant::now() + PATIENCE,
        };
        match store.transact(model, key, &forgetting, &options).await {
            Ok(_) | Err(TransactError::Decide(NotForgotten::DryRun)) => {}
            Err(error) => return Err(failed(daybook_function_runtime::with_causes(&error))),
        }
    }
    let mut findings = Vec::new();
    if options.yes {
        let after = store.load(model, key).await.map_err(&unavailable)?;
        if !is_forgotten(&after.folded)? {
            return Err(failed("is_forgotten is false after the command; its key is still there".to_owned()));
        }
        version = after.version();
        store.end_key(key).await.map_err(&unavailable)?;
        if options.verify {
            let verified = store.admin().verify(model, key, Timestamp::now()).await.map_err(&unavailable)?;
            let found = verified.findings.iter().chain(&verified.warnings);
            findings.extend(found.map(|finding| VerifyFinding::new(finding, stack.is_local())));
        }
    }
    let (aggregate, dry_run) = (key.to_string(), !options.yes);
    Ok(ForgottenAggregate { aggregate, dry_run, command, version, was_forgotten, findings })
}

struct Forgetting<'a> {
    registry: &'a Registry,
    store: &'a EventStore,
    key: &'a AggregateKey,
    commands: &'a [CommandRequest],
    /// Otherwise it is only decided.
    appends: bool,
}

#[derive(Debug, thiserror::Error)]
enum NotForgotten {
    #[error("{0}")]
    Undecided(String),
    #[error("it is a dry run")]
    DryRun,
}

impl Decide for Forgetting<'_> {
    type Error = NotForgotten;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<NotForgotten>> {
        let meta = Meta { actor: Some("daybook".to_owned()), ..Meta::default() };
        let input = self.store.decision_input(meta, Caller::system());
        let input = DecisionInput { involved: involved.clone(), ..input };
        match decide(self.registry, before, &[Addressed::new(self.key, self.commands)], &input) {
            Err(JointError { error: CommandError::Needs(needs), .. }) => Err(Undecided::Needs(needs)),
            Err(error) => Err(NotForgotten::Undecided(error.to_string()).into()),
            Ok(Decisions { own, .. }) if own.rejection.is_some() => {
                let reason = own.rejection.map(|rejection| format!("{}: {}", rejection.name, rejection.detail));
                Err(NotForgotten::Undecided(reason.unwrap_or_default()).into())
            }
            Ok(decisions) => Ok(decisions),
        }
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.registry.get(aggregate_type)
    }

    fn respond(&self, _: &Folded, decided: &Decisions, _: ResponseDetail) -> Result<CommandResponse, NotForgotten> {
        if !self.appends {
            return Err(NotForgotten::DryRun);
        }
        let version = decided.own.after.version();
        Ok(CommandResponse { status: 200, version, state_version: 0, body: String::new() })
    }
}
