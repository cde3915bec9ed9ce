//! Replaces the table of a stack by a restored one, step by step. docs/restore.md describes what that means.
//!
//! Invariants:
//! - What is done is read from AWS, and from nowhere else: an interrupted restore goes on where it ended.
//! - From the first step until the API is opened, it rejects all requests, and the new table is used with its own epoch only.

mod contents;

use std::io;
use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use daybook_decider::Model;
use daybook_table::attributes::TTL;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::error::OperatorError;
use crate::health::relay_mappings;
use crate::signed_calls::{CLOUDFORMATION, DYNAMODB, LAMBDA, SignedCalls};
use crate::stack::{Stack, StackDescription};

/// The first and the longest pause before AWS is asked again whether something has ended.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(5)];

/// Replace the table of a stack by a restored one, step by step.
///
/// Without `--yes`, the command changes nothing, and prints which steps are done and which are not. With `--yes`, it closes the
/// API, stops the relay, restores and verifies the table, updates the stack to this table and the next epoch, and lists the
/// lost events. The API stays closed, so that you can decide what to do about them. With `--yes --open`, it also sends messages
/// again, enables the event source mappings, opens the API and enables TTL. It reads from AWS what is done: after a failure or
/// Ctrl-C, run it again. Build `daybook` from the deployed commit. docs/restore.md describes what a restore does to events,
/// messages, consumers and views.
#[derive(Clone, Debug, Args)]
pub struct RestoreOptions {
    /// Name of the restored table: the name of the stack, a hyphen and more. If the table exists, it is used.
    #[arg(long, value_name = "NAME")]
    pub into: String,
    /// Time to restore to, the last moment before the damage, such as 2026-11-20T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub at: Option<Timestamp>,
    /// The table to restore. Default: that of the stack.
    #[arg(long, value_name = "NAME")]
    pub source: Option<String>,
    /// The new epoch. Default: that of the stack, plus 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub epoch: Option<u32>,
    /// Send the messages since this time again. Default: an hour before the time of the restore.
    #[arg(long, value_name = "TIME")]
    pub republish_from: Option<Timestamp>,
    /// Maximum aggregates verified, and messages sent, per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Also take the steps that open the API again.
    #[arg(long)]
    pub open: bool,
    /// Take the steps; without this option, the command only prints them.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug)]
enum Stop {
    Failed(OperatorError),
    /// A person must do something first: "shop is UPDATE_IN_PROGRESS: deploy it first".
    Here(String),
}

impl<E: Into<OperatorError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Takes the steps that are not done. Reports each step, and what it finds: the state, the step, and a text. Returns whether
/// no step was stopped.
pub async fn restore(
    mut stack: Stack,
    options: RestoreOptions,
    mut report: impl FnMut(&str, &str, &str) -> io::Result<()>,
) -> Result<bool, OperatorError> {
    let name = stack.required("STACK")?;
    let cloudformation = SignedCalls::connect(&stack.environment, CLOUDFORMATION).await?;
    let description = StackDescription::read(&cloudformation, &name).await?;
    let description = description.ok_or_else(|| OperatorError::Usage(format!("the stack {name} does not exist")))?;
    stack.environment = description.settings_over(&stack.environment);
    let lambda = SignedCalls::connect(&stack.environment, LAMBDA).await?;
    let dynamodb = SignedCalls::connect(&stack.environment, DYNAMODB).await?;
    let source = options.source.clone().unwrap_or_else(|| description.output("TableName").to_owned());
    let (report, step): (&mut Report<'_>, _) = (&mut report, "read-stack");
    let mut restore =
        Restore { options, stack, name, description, source, cloudformation, lambda, dynamodb, report, step };
    match restore.take_steps().await {
        Ok(()) => Ok(true),
        Err(Stop::Failed(error)) => Err(error),
        Err(Stop::Here(reason)) => restore.report("stopped", &reason).map(|()| false).map_err(OperatorError::from),
    }
}

type Report<'a> = dyn FnMut(&str, &str, &str) -> io::Result<()> + 'a;

struct Restore<'a> {
    options: RestoreOptions,
    /// The stack, with the settings of its functions.
    stack: Stack,
    name: String,
    description: StackDescription,
    /// The table that is or was restored.
    source: String,
    cloudformation: SignedCalls,
    lambda: SignedCalls,
    dynamodb: SignedCalls,
    report: &'a mut Report<'a>,
    step: &'static str,
}

impl Restore<'_> {
    async fn take_steps(&mut self) -> Result<(), Stop> {
        let (into, name) = (self.options.into.clone(), self.name.clone());
        // An earlier run may have begun an update, whose parameters are described before it succeeds.
        self.end_update().await?;
        self.check_options().await?;
        let is_open = self.uses_table() && self.description.parameter("MappingsEnabled") == "true";
        if is_open && self.description.status.contains("ROLLBACK") {
            let status = &self.description.status;
            return Err(Stop::Here(format!("{name} is {status}: deploy it first, so that its settings are known")));
        }
        let concurrency = format!("/functions/{}/concurrency", self.description.output("CommandHandlerName"));
        let reserved = self.lambda.get(&format!("/2019-09-30{concurrency}")).await?;
        let reserved = reserved["ReservedConcurrentExecutions"].as_u64();

        if self.begins("close-api", "the API rejects all requests", is_open || reserved == Some(0))? {
            if let Some(number) = reserved {
                self.report("note", &format!("{number} executions were reserved: reserve them again at the end"))?;
            }
            let none = json!({"ReservedConcurrentExecutions": 0});
            self.lambda.put(&format!("/2017-10-31{concurrency}"), &none).await?;
        }
        let mappings = relay_mappings(&self.lambda, self.description.output("StreamRelayName")).await?;
        let enabled: Vec<_> = mappings.iter().filter(|mapping| !mapping.state.starts_with("Disabl")).collect();
        let text = "disable its event source mapping, so that no message of a lost event is sent";
        if self.begins("stop-relay", text, self.uses_table() || enabled.is_empty())? {
            for mapping in enabled {
                let path = format!("/2015-03-31/event-source-mappings/{}", mapping.id);
                self.lambda.put(&path, &json!({"Enabled": false})).await?;
            }
        }
        let exists = self.is_active().await?;
        if self.begins("restore-table", &format!("restore {} into {into}", self.source), exists)? {
            self.restore_table().await?;
        }
        let is_complete = exists && self.missing_settings().await?.is_empty();
        let text = format!("give {into} a stream, point-in-time recovery and its protection");
        if self.begins("complete-settings", &text, is_complete)? {
            self.complete_settings().await?;
        }
        let epoch = self.options.epoch.unwrap_or(self.epoch() + 1);
        let text = format!("compare all rows of {into} with each other and with the code");
        if self.begins("verify", &text, self.uses_table())? {
            self.verify(epoch).await?;
        }
        let text = format!("update {name} to {into} and epoch {epoch}, with disabled event source mappings");
        if self.begins("use-table", &text, self.uses_table())? {
            self.use_table(epoch).await?;
        }
        if self.uses_table() && !is_open {
            let text = format!("{} before any deployment: an earlier value selects its table", self.settings());
            self.report("note", &text)?;
        }
        if self.begins("list-lost-events", &format!("list the events that {into} does not contain"), is_open)? {
            self.list_lost_events().await?;
        }
        if !self.options.open {
            let text =
                "decide what to do about the lost events, as docs/restore.md describes, and run this with --open";
            return Ok(self.report("left", text)?);
        }
        if self.begins("republish", "send the messages from before the restore again", is_open)? {
            self.republish().await?;
        }
        let text = format!("let the relay and the snapshotter of {name} read the stream of {into}");
        if self.begins("enable-mappings", &text, is_open)? {
            self.update(&[("MappingsEnabled", "true".to_owned())]).await?;
        }
        if self.begins("open-api", "the API accepts requests", is_open && reserved != Some(0))? {
            self.lambda.text("DELETE", &format!("/2017-10-31{concurrency}")).await?;
        }
        let has_ttl = exists && self.has_ttl().await?;
        if self.begins("enable-ttl", &format!("let DynamoDB delete expired rows of {into}"), has_ttl)? {
            let ttl = json!({"Enabled": true, "AttributeName": TTL});
            let request = json!({"TableName": into, "TimeToLiveSpecification": ttl});
            self.dynamodb.post("UpdateTimeToLive", &request).await?;
        }
        if !self.uses_table() {
            return Ok(());
        }
        self.report_what_is_left()
    }

    /// What a person does after the last step.
    fn report_what_is_left(&mut self) -> Result<(), Stop> {
        let since = self.options.at.unwrap_or_default() - SignedDuration::from_hours(1);
        let processes = self.stack.registry.iter().filter(|model| !model.sources().is_empty()).map(Model::type_name);
        for process in processes.filter(|_| self.stack.has_processes()).map(str::to_owned).collect::<Vec<_>>() {
            let text = format!("run `daybook process catch-up {process} --since {since} --yes`, first without --yes");
            self.report("left", &text)?;
        }
        let text = format!("{}; delete {} when nothing of it is needed", self.settings(), self.source);
        Ok(self.report("left", &text)?)
    }

    /// What a person must set for the next deployment.
    fn settings(&self) -> String {
        let (stream, epoch) = (self.description.parameter("TableStreamArn"), self.epoch());
        format!("set \"TableStreamArn={stream}\" and \"Epoch={epoch}\" in samconfig.toml")
    }

    /// Reports a step. Returns whether it must be taken.
    fn begins(&mut self, step: &'static str, text: &str, is_done: bool) -> Result<bool, Stop> {
        self.step = step;
        let (state, takes) = match (is_done, self.options.yes) {
            (true, _) => ("done", false),
            (false, true) => ("doing", true),
            (false, false) => ("would-do", false),
        };
        self.report(state, text)?;
        Ok(takes)
    }

    fn report(&mut self, state: &str, text: &str) -> io::Result<()> {
        (self.report)(state, self.step, text)
    }

    async fn check_options(&mut self) -> Result<(), Stop> {
        let RestoreOptions { into, at, epoch, source, .. } = &self.options;
        let usage = |problem| Err(OperatorError::Usage(problem).into());
        let used = self.description.output("TableName");
        if !into.starts_with(&format!("{}-", self.name)) {
            return usage(format!(
                "the name of --into must begin with {}-, or the stack may not use the table",
                self.name
            ));
        }
        if !self.uses_table() && epoch.is_some_and(|epoch| epoch <= self.epoch()) {
            return usage(format!("--epoch must be above {}, the epoch of {}", self.epoch(), self.name));
        }
        let Some(table) = self.table(into).await? else {
            let recovery = self.recovery(&self.source).await?;
            if recovery["PointInTimeRecoveryStatus"] != "ENABLED" {
                return usage(format!("{} has no point-in-time recovery", self.source));
            }
            let earliest = timestamp(&recovery["EarliestRestorableDateTime"]).unwrap_or_default();
            return match at {
                Some(at) if (earliest..=Timestamp::now()).contains(at) => Ok(()),
                _ => usage(format!("set --at to the time of the restore, from {earliest} to now")),
            };
        };
        let restored = &table["RestoreSummary"];
        let restored_at = timestamp(&restored["RestoreDateTime"]).or(*at);
        if restored_at.is_none() || at.is_some_and(|at| Some(at.as_second()) != restored_at.map(Timestamp::as_second)) {
            let found = restored_at.map_or("an unknown time".to_owned(), |at| at.to_string());
            return usage(format!("{into} was restored to {found}: set --at to this time, or choose another name"));
        }
        let restored_from =
            restored["SourceTableArn"].as_str().and_then(|arn| Some(arn.rsplit_once('/')?.1.to_owned()));
        let is_expected = |from: &String| self.uses_table() || from == used || Some(from) == source.as_ref();
        if let Some(from) = restored_from.as_ref().filter(|from| !is_expected(from)) {
            return usage(format!(
                "{into} was restored from {from}: set --source to this table, or choose another name"
            ));
        }
        self.source = source.clone().or(restored_from).unwrap_or(self.source.clone());
        if self.source == *into {
            return usage(format!("it is unknown which table was restored into {into}: give --source"));
        }
        self.options.at = restored_at;
        Ok(())
    }

    async fn restore_table(&mut self) -> Result<(), Stop> {
        let RestoreOptions { into, at, .. } = self.options.clone();
        if let (None, Some(at)) = (self.table(&into).await?, at) {
            let latest =
                async || self.recovery(&self.source).await.map(|it| timestamp(&it["LatestRestorableDateTime"]));
            self.wait(async || Ok(latest().await? >= Some(at))).await?;
            let request =
                json!({"SourceTableName": self.source, "TargetTableName": into, "RestoreDateTime": at.as_second()});
            self.dynamodb.post("RestoreTableToPointInTime", &request).await?;
        }
        self.wait(async || self.is_active().await).await
    }

    async fn complete_settings(&mut self) -> Result<(), Stop> {
        for (operation, request) in self.missing_settings().await? {
            // A new table rejects a change while another is under way, and its recovery while backups are being prepared.
            let is_busy =
                |cause: &str| cause.contains("ResourceInUse") || cause.contains("ContinuousBackupsUnavailable");
            let is_accepted = async || match self.dynamodb.post(operation, &request).await {
                Err(OperatorError::Call { cause, .. }) if is_busy(&cause) => Ok(false),
                response => response.map(|_| true),
            };
            self.wait(is_accepted).await?;
            self.wait(async || self.is_active().await).await?;
        }
        Ok(())
    }

    async fn use_table(&mut self, epoch: u32) -> Result<(), Stop> {
        let (into, name) = (self.options.into.clone(), self.name.clone());
        let table = self.table(&into).await?.unwrap_or_default();
        let Some(stream) = table["LatestStreamArn"].as_str() else {
            return Err(Stop::Here(format!("{into} has no stream")));
        };
        let parameters = [
            ("TableStreamArn", stream.to_owned()),
            ("Epoch", epoch.to_string()),
            ("MappingsEnabled", "false".to_owned()),
            // A gradual shift would send requests to both tables.
            ("TrafficShift", "AllAtOnce".to_owned()),
            ("Release", Timestamp::now().as_second().to_string()),
        ];
        self.update(&parameters).await?;
        match self.uses_table() {
            true => Ok(()),
            false => Err(Stop::Here(format!(
                "{name} does not use {into} after its update: its template must be of this version"
            ))),
        }
    }

    /// Updates the stack, and waits until the update has ended.
    async fn update(&mut self, parameters: &[(&str, String)]) -> Result<(), Stop> {
        // An earlier run may have made the same update.
        self.end_update().await?;
        let (parameter, value) = &parameters[0];
        if self.description.status != "UPDATE_COMPLETE" || self.description.parameter(parameter) != value {
            self.description.update(&self.cloudformation, &self.name, parameters).await?;
            self.end_update().await?;
        }
        let (name, status) = (&self.name, &self.description.status);
        if status != "UPDATE_COMPLETE" {
            let events = format!("`aws cloudformation describe-stack-events --stack-name {name}` has the reason");
            return Err(Stop::Here(format!("{name} is {status}, and the API is closed: {events}")));
        }
        Ok(())
    }

    /// Waits until no update of the stack is in progress, and reads the stack.
    async fn end_update(&mut self) -> Result<(), Stop> {
        let (name, cloudformation) = (&self.name, &self.cloudformation);
        let read = async || StackDescription::read(cloudformation, name).await.map(Option::unwrap_or_default);
        self.wait(async || Ok(!read().await?.is_in_progress())).await?;
        self.description = read().await?;
        self.stack.environment = self.description.settings_over(&self.stack.environment);
        Ok(())
    }

    async fn wait(&self, is_true: impl AsyncFn() -> Result<bool, OperatorError>) -> Result<(), Stop> {
        let [mut pause, longest] = PAUSES;
        while !is_true().await? {
            (self.stack.progress)(None, self.step.to_owned());
            self.stack.interrupt.run_until_cancelled(sleep(pause)).await.ok_or_else(interrupted)?;
            pause = longest.min(2 * pause);
        }
        Ok(())
    }

    fn stack_over(&self, table: &str) -> Stack {
        let environment = self.stack.environment.clone().with("TABLE_NAME", table.to_owned());
        Stack { environment, ..self.stack.clone() }
    }

    fn uses_table(&self) -> bool {
        self.description.output("TableName") == self.options.into
    }

    fn epoch(&self) -> u32 {
        self.description.parameter("Epoch").parse().unwrap_or(1)
    }

    async fn table(&self, name: &str) -> Result<Option<Value>, OperatorError> {
        match self.dynamodb.post("DescribeTable", &json!({"TableName": name})).await {
            Err(OperatorError::Call { cause, .. }) if cause.contains("ResourceNotFoundException") => Ok(None),
            response => response.map(|mut response| Some(response["Table"].take())),
        }
    }

    async fn is_active(&self) -> Result<bool, OperatorError> {
        Ok(self.table(&self.options.into).await?.is_some_and(|table| table["TableStatus"] == "ACTIVE"))
    }

    async fn recovery(&self, table: &str) -> Result<Value, OperatorError> {
        let mut backups = self.dynamodb.post("DescribeContinuousBackups", &json!({"TableName": table})).await?;
        Ok(backups["ContinuousBackupsDescription"]["PointInTimeRecoveryDescription"].take())
    }

    /// The calls that give the restored table what it lacks.
    async fn missing_settings(&self) -> Result<Vec<(&'static str, Value)>, OperatorError> {
        let into = &self.options.into;
        let table = self.table(into).await?.unwrap_or_default();
        let mut missing = Vec::new();
        let mut add = |operation, name: &str, value| missing.push((operation, json!({"TableName": into, name: value})));
        if table["StreamSpecification"]["StreamEnabled"] != true {
            add("UpdateTable", "StreamSpecification", json!({"StreamEnabled": true, "StreamViewType": "NEW_IMAGE"}));
        }
        if self.description.parameter("DeletionProtection") == "true" && table["DeletionProtectionEnabled"] != true {
            add("UpdateTable", "DeletionProtectionEnabled", json!(true));
        }
        if self.recovery(into).await?["PointInTimeRecoveryStatus"] != "ENABLED" {
            let recovery = json!({"PointInTimeRecoveryEnabled": true, "RecoveryPeriodInDays": 35});
            add("UpdateContinuousBackups", "PointInTimeRecoverySpecification", recovery);
        }
        Ok(missing)
    }

    async fn has_ttl(&self) -> Result<bool, OperatorError> {
        let ttl = self.dynamodb.post("DescribeTimeToLive", &json!({"TableName": self.options.into})).await?;
        Ok(ttl["TimeToLiveDescription"]["TimeToLiveStatus"].as_str().is_some_and(|status| status.starts_with("ENABL")))
    }
}

fn interrupted() -> Stop {
    Stop::Here("run the command again: it goes on here".to_owned())
}

/// A time of DynamoDB, in whole seconds.
#[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
fn timestamp(seconds: &Value) -> Option<Timestamp> {
    Timestamp::from_second(seconds.as_f64()? as i64).ok()
}
