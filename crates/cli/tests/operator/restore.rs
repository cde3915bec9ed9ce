//! `daybook restore`. The rows and their reads and messages are those of the embedded DynamoDB and of the bus.

mod aws;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_decider::{Caller, DecisionInput, Folded, Meta};
use daybook_local_aws::messaging::Server;
use daybook_table::AggregateKey;
use daybook_test_support::commands::{requests, transact};
use daybook_test_support::row::Item;
use daybook_test_support::table::TABLE;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use ulid::Ulid;

use self::aws::{Aws, KEY, NEW, State};
use crate::support::{Setup, samples_with_process};

/// Executes a command of a to-do now: other tests use a clock of their own.
async fn decide(setup: &Setup, epoch: u32, id: &str, command: &str, title: &str) {
    let (registry, now) = (aggregates::registry().unwrap(), Timestamp::now());
    let (model, commands) =
        (registry.get("todo").unwrap(), requests(&[(command, json!({"title": title, "message": ""}))]));
    let seed = Ulid::from_parts(now.as_millisecond().try_into().unwrap(), fastrand::u128(..));
    let input = DecisionInput::new(now, seed, Meta::default(), Caller::anonymous(), epoch);
    let decide = |before: &Folded| model.decide(before, id, &commands, &input);
    transact(&setup.store, model, &AggregateKey::new("todo", id), decide).await.unwrap();
}

/// A stack of which an event was lost: to-do 1 was updated after the time of the restore, which is now.
struct Damaged {
    setup: Setup,
    aws: Aws,
    _server: Server,
}

impl Damaged {
    async fn new() -> Self {
        Self::with_messages_of(1).await
    }

    /// With an epoch in its messages that may differ from that of the stack, which is 1.
    async fn with_messages_of(epoch: u32) -> Self {
        let mut setup = Setup::new().await;
        for (id, command, title) in [("1", "CreateTodo", "a"), ("1", "UpdateTodo", "b"), ("2", "CreateTodo", "c")] {
            decide(&setup, epoch, id, command, title).await;
        }
        let at = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
        let scanned = setup.store.client().scan().table_name(TABLE).send().await.unwrap();
        let (aws, server) = Aws::start(setup.table.proxy.url(), at, scanned.items().to_vec()).await;
        for variable in ["AWS_ENDPOINT_URL_CLOUDFORMATION", "AWS_ENDPOINT_URL_LAMBDA", "AWS_ENDPOINT_URL_DYNAMODB"] {
            setup.settings.push((variable, server.url().to_owned()));
        }
        setup.settings.push(("STACK", "prod".to_owned()));
        decide(&setup, epoch, "1", "UpdateTodo", "lost").await;
        Self { setup, aws, _server: server }
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.aws.state.lock().unwrap())
    }

    fn changes(&self) -> Vec<String> {
        self.state(|state| std::mem::take(&mut state.changes))
    }

    fn line(&self, options: &str) -> String {
        format!("restore --into {NEW} --at {} {options}", self.aws.at)
    }

    async fn run(&self, options: &str, exit: Exit) -> Vec<String> {
        self.setup.daybook(&self.line(options)).await.expect(exit)
    }

    async fn error(&self, line: &str, exit_code: u8) -> String {
        let error = self.setup.daybook(line).await.ended.unwrap_err();
        assert_eq!(error.exit_code(), exit_code, "{error}");
        error.to_string()
    }
}

/// The state and the step of each line.
fn steps(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.split_once(':')).map(|(step, _)| step).collect()
}

const CLOSE: &str = "PUT /2017-10-31/functions/prod-CommandHandler/concurrency";
const STOP: &str = "PUT /2015-03-31/event-source-mappings/u-1";
const OPEN: &str = "DELETE /2017-10-31/functions/prod-CommandHandler/concurrency";
const UNTIL_CLOSED: [&str; 7] =
    [CLOSE, STOP, "RestoreTableToPointInTime", "UpdateTable", "UpdateTable", "UpdateContinuousBackups", "UpdateStack"];

#[tokio::test(flavor = "multi_thread")]
async fn restore_takes_each_step_once_and_opens_the_api_when_it_is_told_to() {
    let mut damaged = Damaged::new().await;
    damaged.setup.aggregates = samples_with_process;
    let plan = damaged.run("--open", Exit::Clean).await;
    assert!(plan[..11].iter().all(|line| line.starts_with("would-do ")) && plan.len() == 11, "{plan:#?}");
    assert!(damaged.changes().is_empty());

    damaged.state(|state| state.busy = vec!["UpdateContinuousBackups"]);
    let lines = damaged.run("--yes", Exit::Clean).await;
    let names =
        ["close-api", "stop-relay", "restore-table", "complete-settings", "verify", "use-table", "list-lost-events"];
    let doing: Vec<_> = steps(&lines).into_iter().filter(|step| step.starts_with("doing ")).collect();
    assert_eq!(doing, names.map(|name| format!("doing {name}")));
    // A deployment without them would select the damaged table again.
    let note = format!("note use-table: set \"TableStreamArn=arn:aws:dynamodb:us-east-1:1:table/{NEW}/stream/");
    assert!(
        lines[6].starts_with(&note) && lines[6].contains("\" and \"Epoch=2\" in samconfig.toml before"),
        "{lines:#?}"
    );
    let lost: Vec<_> = lines.iter().filter(|line| line.starts_with("lost ")).collect();
    assert!(lost.len() == 1 && lost[0].contains(": todo/1 event 3 TodoUpdated "), "{lines:#?}");
    assert!(
        lines.last().unwrap().starts_with("left list-lost-events: decide what to do about the lost events"),
        "{lines:#?}"
    );
    assert_eq!(damaged.changes(), UNTIL_CLOSED);
    let values = damaged.state(|state| {
        ["Epoch", "MappingsEnabled", "TrafficShift", "AlarmEmail"].map(|name| state.parameters[name].clone())
    });
    assert_eq!(values, ["2", "false", "AllAtOnce", "on-call@example.com"]);
    assert!(damaged.setup.sent().is_empty());

    let plan = damaged.run("--open", Exit::Clean).await;
    let open = ["list-lost-events", "republish", "enable-mappings", "open-api", "enable-ttl"];
    assert_eq!(steps(&plan)[..6], names[..6].iter().map(|name| format!("done {name}")).collect::<Vec<_>>());
    assert_eq!(steps(&plan)[6], "note use-table");
    assert_eq!(steps(&plan)[7..12], open.map(|name| format!("would-do {name}")));
    // Messages from before the restore, with the old epoch, and not those of lost events.
    damaged.run("--yes --open", Exit::Clean).await;
    assert_eq!(damaged.setup.sent().len(), 3);
    assert_eq!(damaged.changes(), ["UpdateStack", OPEN, "UpdateTimeToLive"]);

    // The time and the old table are known from the new one.
    let lines = damaged.setup.daybook(&format!("restore --into {NEW} --open --yes")).await.expect(Exit::Clean);
    assert!(lines[..11].iter().all(|line| line.starts_with("done ")), "{lines:#?}");
    let since = damaged.aws.at - SignedDuration::from_hours(1);
    let catch_up = format!("run `daybook process catch-up fulfilment --since {since} --yes`, first without --yes");
    assert!(lines[11].starts_with("left ") && lines[11].ends_with(&catch_up), "{lines:#?}");
    assert!(lines[12].contains(&format!("; delete {TABLE} when")), "{lines:#?}");
    assert!(damaged.changes().is_empty());
    assert_eq!(damaged.setup.sent().len(), 3);

    // A table that is known only from its name.
    damaged.state(|state| state.restored.as_mut().unwrap()["RestoreSummary"] = Value::Null);
    let error = damaged.error(&damaged.line("--yes --open"), 2).await;
    assert!(error.contains(&format!("which table was restored into {NEW}: give --source")), "{error}");
    damaged.run(&format!("--yes --open --source {TABLE}"), Exit::Clean).await;
    assert!(damaged.changes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn new_epoch_is_above_that_of_each_message() {
    // A replica has the messages of another stack.
    let damaged = Damaged::with_messages_of(4).await;
    let lines = damaged.run("--epoch 4 --yes", Exit::Findings).await;
    assert!(lines.last().unwrap().starts_with("stopped verify: "), "{lines:#?}");
    damaged.run("--epoch 5 --yes --open", Exit::Clean).await;
    assert_eq!(damaged.state(|state| state.parameters["Epoch"].clone()), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_restore_goes_on_where_it_ended() {
    let damaged = Damaged::new().await;
    let mut made = Vec::new();
    for denied in UNTIL_CLOSED.iter().chain(&["UpdateTimeToLive"]).filter(|operation| **operation != "UpdateTable") {
        damaged.state(|state| state.denied = denied);
        let error = damaged.error(&damaged.line("--yes --open"), 3).await;
        assert!(error.contains("AccessDenied"), "{error}");
        made.extend(damaged.changes());
    }
    damaged.state(|state| state.denied = "");
    let lines = damaged.run("--yes --open", Exit::Clean).await;
    assert_eq!(steps(&lines)[9..11], ["done open-api", "doing enable-ttl"]);
    made.extend(damaged.changes());
    let expected = UNTIL_CLOSED.into_iter().chain(["UpdateStack", OPEN, "UpdateTimeToLive"]).collect::<Vec<_>>();
    assert_eq!(made, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_used_that_is_not_as_it_must_be() {
    let damaged = Damaged::new().await;
    let at = damaged.aws.at;
    // Before anything is changed.
    let early = at - SignedDuration::from_hours(25);
    for (line, expected) in [
        (format!("restore --into {NEW} --yes --at {early}"), "set --at to the time of the restore, from "),
        (format!("restore --into {NEW} --yes"), "set --at to the time of the restore, from "),
        (format!("restore --into {NEW} --yes --at {}", at + SignedDuration::from_hours(1)), "set --at to the time"),
        (format!("restore --into other --yes --at {at}"), "the name of --into must begin with prod-"),
    ] {
        let error = damaged.error(&line, 2).await;
        assert!(error.contains(expected), "{error}");
    }
    damaged.state(|state| state.recovery_of_source = "DISABLED");
    let error = damaged.error(&damaged.line("--yes"), 2).await;
    assert!(error.contains(&format!("{TABLE} has no point-in-time recovery")), "{error}");
    damaged.state(|state| state.recovery_of_source = "ENABLED");
    damaged.state(|state| drop(state.parameters.insert("Epoch".to_owned(), "4".to_owned())));
    let error = damaged.error(&damaged.line("--epoch 4 --yes"), 2).await;
    assert!(error.contains("--epoch must be above 4, the epoch of prod"), "{error}");
    assert!(damaged.changes().is_empty());

    // Rows of an incomplete append.
    let keep = |row: &Item| row["sk"] != AttributeValue::S("EVENT#000000000002".to_owned());
    damaged.state(|state| state.rows.retain(keep));
    let lines = damaged.run("--yes", Exit::Findings).await;
    assert!(lines.iter().any(|line| line.starts_with("found verify: todo/1 ")), "{lines:#?}");
    assert!(lines.last().unwrap().starts_with("stopped verify: "), "{lines:#?}");
    assert_eq!(damaged.changes(), UNTIL_CLOSED[..6]);

    // Another key, another time.
    damaged.state(|state| drop(state.parameters.insert("KmsKeyArn".to_owned(), "arn:other".to_owned())));
    let lines = damaged.run("--yes", Exit::Findings).await;
    let expected = format!("stopped verify: {NEW} is encrypted with {KEY}, not with KmsKeyArn of the stack, arn:other");
    assert_eq!(lines.last().unwrap(), &expected);
    let error = damaged.error(&format!("restore --into {NEW} --yes --at {early}"), 2).await;
    assert!(error.contains(&format!("{NEW} was restored to {at}: set --at")), "{error}");

    // Another source.
    let arn = json!("arn:aws:dynamodb:us-east-1:1:table/other");
    damaged.state(|state| state.restored.as_mut().unwrap()["RestoreSummary"]["SourceTableArn"] = arn);
    let error = damaged.error(&damaged.line("--yes"), 2).await;
    assert!(error.contains(&format!("{NEW} was restored from other: set --source to this table")), "{error}");
    assert!(damaged.changes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn table_without_a_stream_is_not_used() {
    let damaged = Damaged::new().await;
    damaged.state(|state| state.denied = "UpdateStack");
    damaged.error(&damaged.line("--yes"), 3).await;
    damaged.state(|state| {
        state.denied = "";
        state.restored.as_mut().unwrap()["LatestStreamArn"] = Value::Null;
    });
    damaged.changes();
    let lines = damaged.run("--yes", Exit::Findings).await;
    assert_eq!(lines.last().unwrap(), &format!("stopped use-table: {NEW} has no stream"));
    assert!(damaged.changes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn update_in_progress_ends_before_the_api_is_opened() {
    let damaged = Damaged::new().await;
    damaged.run("--yes", Exit::Clean).await;
    // An earlier run was interrupted while it enabled the mappings.
    damaged.state(|state| {
        state.before = state.parameters.clone();
        state.parameters.insert("MappingsEnabled".to_owned(), "true".to_owned());
        (state.status, state.updated) = ("UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE");
    });
    let lines = damaged.run("--yes --open", Exit::Findings).await;
    assert!(
        lines.last().unwrap().starts_with("stopped enable-mappings: prod is UPDATE_ROLLBACK_COMPLETE"),
        "{lines:#?}"
    );
    assert_eq!(damaged.state(|state| state.reserved), Some(0));
    damaged.state(|state| state.updated = "UPDATE_COMPLETE");
    damaged.run("--yes --open", Exit::Clean).await;
    assert_eq!(damaged.state(|state| state.reserved), None);

    // A later deployment that was rolled back: the API stays open.
    damaged.changes();
    damaged.state(|state| state.status = "UPDATE_ROLLBACK_COMPLETE");
    let lines = damaged.run("--yes --open", Exit::Findings).await;
    let expected =
        "stopped read-stack: prod is UPDATE_ROLLBACK_COMPLETE: deploy it first, so that its settings are known";
    assert_eq!(lines, [expected]);
    assert!(damaged.changes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn update_that_is_rolled_back_leaves_the_api_closed() {
    let damaged = Damaged::new().await;
    damaged.state(|state| state.updated = "UPDATE_ROLLBACK_COMPLETE");
    let lines = damaged.run("--yes --open", Exit::Findings).await;
    let stopped = lines.last().unwrap();
    assert!(
        stopped.starts_with("stopped use-table: prod is UPDATE_ROLLBACK_COMPLETE, and the API is closed: `aws "),
        "{lines:#?}"
    );
    assert_eq!(damaged.state(|state| state.reserved), Some(0));
    damaged.state(|state| state.updated = "UPDATE_COMPLETE");
    damaged.run("--yes --open", Exit::Clean).await;
    assert_eq!(damaged.state(|state| state.parameters["Epoch"].clone()), "2");
}
