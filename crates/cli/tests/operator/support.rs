//! Shared code of the tests: a table, a bus, a queue, and an operator at a terminal.

use std::io::{self, Write};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregates::{Account, Fulfilment, Order, Payment, Shipment, Todo};
use aws_sdk_dynamodb::types::AttributeValue;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::middleware::{self, Next};
use clap::Parser;
use daybook_cli::Project;
use daybook_cli::commands::OperatorCommand;
use daybook_cli::operator::{Exit, Interrupt, OperatorContext, OperatorError, Stack};
use daybook_decider::{Aggregate, RegistrationError, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_settings::Environment;
use daybook_table::{AggregateKey, OutboxItem};
use daybook_test_support::commands::execute;
use daybook_test_support::row::Item;
use daybook_test_support::table::{KEYS_TABLE, TABLE, TestTable};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::views::Registered;

/// The project whose stack the tests start.
pub(crate) const SAMPLES: Project = Project { aggregates: aggregates::registry, projections: projections::projections };

/// The stack that an operator works on. Only the commands under test use the table's proxy.
pub(crate) struct Setup {
    pub(crate) table: TestTable,
    pub(crate) bus: Bus,
    server: Server,
    /// A store that does not use the proxy.
    pub(crate) store: EventStore,
    /// Additional settings.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// The projections of the commands.
    pub(crate) projections: fn() -> Registered,
    /// How long a message for the projector stays hidden, and the time-out of its invocations.
    pub(crate) hidden_seconds: i32,
    /// The number of times that instances of the projector have asked for messages.
    pub(crate) receives: Arc<AtomicU64>,
    /// The aggregates of the commands.
    pub(crate) aggregates: fn() -> Result<Registry, RegistrationError>,
}

/// Those of the samples that most tests use: many commands first make up to 64 queries for each type.
fn two_samples() -> Result<Registry, RegistrationError> {
    Registry::new().with::<Account>()?.with::<Todo>()
}

/// These, and another one.
pub(crate) fn samples_with<A: Aggregate>() -> Result<Registry, RegistrationError> {
    two_samples()?.with::<A>()
}

/// These, and a process with its sources.
pub(crate) fn samples_with_process() -> Result<Registry, RegistrationError> {
    samples_with::<Order>()?.with::<Payment>()?.with::<Shipment>()?.with::<Fulfilment>()
}

/// The output and the result of a command.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) ended: Result<Exit, OperatorError>,
    pub(crate) lines: Vec<String>,
}

impl Printed {
    /// Expects this exit status. Returns the lines of the output.
    #[track_caller]
    pub(crate) fn expect(self, exit: Exit) -> Vec<String> {
        assert_eq!(self.ended.as_ref().ok(), Some(&exit), "{self:?}");
        self.lines
    }
}

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: OperatorCommand,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A test table whose writers have these settings.
    pub(crate) async fn with(settings: &[(&'static str, &str)]) -> Self {
        let bus = Bus::with("main", "dlq");
        let server = Server::start(without_waits(&bus)).await.unwrap();
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let all = settings.iter().map(|(name, value)| (*name, value.as_str())).chain([("TABLE_NAME", TABLE)]);
        let table = TestTable::with(StoreSettings::read(&all.collect()).unwrap()).await;
        let store = table.direct_store();
        Self {
            table,
            bus,
            server,
            store,
            settings,
            projections: projections::projections,
            hidden_seconds: 5,
            receives: Arc::default(),
            aggregates: two_samples,
        }
    }

    /// A test table for another sample, too.
    pub(crate) async fn of<A: Aggregate>() -> Self {
        Self { aggregates: samples_with::<A>, ..Self::new().await }
    }

    /// A test table for a process, too.
    pub(crate) async fn with_process() -> Self {
        Self { aggregates: samples_with_process, ..Self::new().await }
    }

    /// Copies the keys of personal data of another table, which an import of its events needs.
    pub(crate) async fn copy_keys(&self, from: &Self) {
        let rows = from.table.raw.scan().table_name(KEYS_TABLE).send().await.unwrap();
        for row in rows.items.unwrap() {
            self.table.raw.put_item().table_name(KEYS_TABLE).set_item(Some(row)).send().await.unwrap();
        }
    }

    pub(crate) fn queue_url(&self) -> String {
        format!("{}/000000000000/dlq", self.server.url())
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", self.table.proxy.url().to_owned()),
            ("AWS_ENDPOINT_URL_EVENTBRIDGE", self.server.url().to_owned()),
            ("AWS_ENDPOINT_URL_SQS", self.server.url().to_owned()),
            ("TABLE_NAME", TABLE.to_owned()),
            ("KEYS_TABLE_NAME", KEYS_TABLE.to_owned()),
            ("PERSONAL_DATA_KEY", "local".to_owned()),
            ("AWS_ENDPOINT_URL_KMS", self.table.kms.url().to_owned()),
            ("EVENT_BUS_NAME", "main".to_owned()),
            ("EVENT_SOURCE", "daybook".to_owned()),
            ("DLQ_URL", self.queue_url()),
        ];
        environment.extend(self.settings.clone());
        environment
    }

    /// Runs a command.
    pub(crate) async fn daybook(&self, line: &str) -> Printed {
        self.daybook_at(line, Screen::new()).await
    }

    /// Runs a command, and interrupts it after it has printed `lines` lines.
    pub(crate) async fn daybook_until(&self, line: &str, lines: usize) -> Printed {
        self.daybook_at(line, Screen { lines, ..Screen::new() }).await
    }

    /// Runs a command, and interrupts it after a time.
    pub(crate) async fn daybook_interrupted(&self, line: &str, after: Duration) -> Printed {
        let screen = Screen::new();
        let stop = screen.stop.clone();
        let interrupt = async {
            tokio::time::sleep(after).await;
            stop.cancel();
            std::future::pending().await
        };
        tokio::select! {
            printed = self.daybook_at(line, screen) => printed,
            printed = interrupt => printed,
        }
    }

    /// Runs a command whose output is closed after `lines` lines.
    pub(crate) async fn daybook_unread(&self, line: &str, lines: usize) -> Printed {
        self.daybook_at(line, Screen { closes: lines, ..Screen::new() }).await
    }

    /// Runs a command whose process ends at once after it has printed `lines` lines.
    pub(crate) async fn daybook_crashed(&self, line: &str, lines: usize) {
        let crashed = watch::Sender::new(false);
        let mut stop = crashed.subscribe();
        let screen = Screen { crashes: lines, crashed, ..Screen::new() };
        tokio::select! {
            biased;
            crashed = stop.wait_for(|crashed| *crashed) => drop(crashed.unwrap()),
            printed = self.daybook_at(line, screen) => panic!("the command ended before the crash: {printed:?}"),
        }
    }

    /// Runs a command that serves pages until it is interrupted, and visits the address that it prints.
    pub(crate) async fn served<T>(&self, line: &str, visit: impl AsyncFnOnce(String) -> T) -> T {
        let screen = Screen::new();
        let printed = async || {
            loop {
                let text = String::from_utf8(screen.text.lock().unwrap().clone()).unwrap();
                if text.contains("Ctrl-C") {
                    break text.lines().find_map(|line| line.strip_prefix("Console  ").map(str::to_owned)).unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let visited = async {
            let visited = visit(printed().await).await;
            screen.stop.cancel();
            visited
        };
        let mut ended = None;
        let run = async {
            ended = Some(self.daybook_at(line, screen.clone()).await);
            // A command that fails at once never prints its address.
            assert!(screen.stop.is_cancelled(), "{ended:?}");
        };
        let (visited, ()) = tokio::join!(visited, run);
        ended.unwrap().expect(Exit::Clean);
        visited
    }

    async fn daybook_at(&self, line: &str, screen: Screen) -> Printed {
        let project = Project::new(self.aggregates, self.projections);
        run_command(self.environment().into_iter().collect(), project, line, screen).await
    }

    pub(crate) fn fail(&self, faults: Value) {
        self.bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    }

    /// Loads an aggregate, decides a command on it and appends the result.
    pub(crate) async fn command(&self, aggregate: &str, command: &str, data: Value) {
        self.commands(aggregate, &[(command, data)]).await;
    }

    /// Does the same with several commands.
    pub(crate) async fn commands(&self, aggregate: &str, commands: &[(&str, Value)]) {
        let key = key(aggregate);
        let registry = (self.aggregates)().unwrap();
        let model = registry.get(&key.aggregate_type).unwrap();
        execute(&self.store, model, &key, commands).await.unwrap();
    }

    /// Creates a to-do with this number of events, and as many messages.
    pub(crate) async fn todo(&self, id: &str, events: usize) {
        let request = |n: usize| {
            let command = if n == 0 { "CreateTodo" } else { "UpdateTodo" };
            (command, json!({"title": format!("{id}/{n}"), "message": ""}))
        };
        let commands: Vec<_> = (0..events).map(request).collect();
        for some in commands.chunks(40) {
            self.commands(&format!("todo/{id}"), some).await;
        }
    }

    /// The rows of an aggregate whose sort keys begin with `prefix`.
    pub(crate) async fn rows(&self, aggregate: &str, prefix: &str) -> Vec<Item> {
        self.table.rows(&key(aggregate), prefix).await
    }

    /// Puts a row that is not an event into the index, between the first and the last event of a type.
    pub(crate) async fn stray_row(&self, event_type: &str) {
        let row = [
            ("pk", "STRAY"),
            ("sk", "ROW"),
            ("gsi1pk", &format!("EVENT_TYPE#{event_type}")),
            ("gsi1sk", "EVENT#01M7XZT6Q0G6DHYB4P1612VGXF"),
        ];
        self.table.put(row.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).into()).await;
    }

    pub(crate) async fn outbox(&self, aggregate: &str) -> Vec<OutboxItem> {
        let rows = self.rows(aggregate, "OUTBOX#").await;
        rows.into_iter().map(|row| serde_dynamo::from_item(row).unwrap()).collect()
    }

    pub(crate) async fn delete(&self, aggregate: &str, sk: &str) {
        self.table.delete(&key(aggregate), sk).await;
    }

    /// The message ids on the bus, in order of arrival.
    pub(crate) fn sent(&self) -> Vec<String> {
        let id = |detail: &str| {
            let detail: Value = serde_json::from_str(detail).unwrap();
            detail["metadata"]["messageId"].as_str().unwrap().to_owned()
        };
        self.bus.delivered().iter().map(|entry| id(&entry.detail)).collect()
    }
}

/// The calls of a bus, except that none waits for messages of the dead-letter queue: each command that reads the queue would wait
/// for seconds, although no message is sent meanwhile.
fn without_waits(bus: &Bus) -> Router {
    bus.router().layer(middleware::from_fn(async |request: Request, next: Next| {
        let (parts, body) = request.into_parts();
        let mut text = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        if text.contains("/dlq\"") {
            text = text.replace("\"WaitTimeSeconds\":1", "\"WaitTimeSeconds\":0");
        }
        next.run(Request::from_parts(parts, text.into())).await
    }))
}

/// Runs a command in an environment, and interrupts it after it has printed `lines` lines.
pub(crate) async fn daybook_in(environment: Environment, line: &str, lines: usize) -> Printed {
    run_command(environment, SAMPLES, line, Screen { lines, ..Screen::new() }).await
}

async fn run_command(environment: Environment, project: Project, line: &str, screen: Screen) -> Printed {
    let words = shlex::split(line).unwrap();
    // As in a shell: `NAME=value COMMAND`.
    let settings = words.iter().map_while(|word| word.split_once('=')).collect::<Vec<_>>();
    let environment = settings.iter().fold(environment, |given, (name, value)| given.with(name, (*value).to_owned()));
    let words = std::iter::once("daybook").chain(words[settings.len()..].iter().map(String::as_str));
    let command = Line::try_parse_from(words).unwrap().command;
    let registry = (project.aggregates)().unwrap();
    let stack = Stack::new(environment, registry, project.projections, screen.stop.clone());
    let mut context = OperatorContext { stack, out: Box::new(screen.clone()) };
    let ended = Box::pin(command.run(&mut context)).await;
    let text = String::from_utf8(screen.text.lock().unwrap().clone()).unwrap();
    Printed { ended, lines: text.lines().map(str::to_owned).collect() }
}

pub(crate) fn key(aggregate: &str) -> AggregateKey {
    aggregate.parse().unwrap()
}

/// Captured standard output, which can interrupt the command or be closed.
#[derive(Clone)]
struct Screen {
    text: Arc<Mutex<Vec<u8>>>,
    /// After this number of lines, the command is interrupted.
    lines: usize,
    /// After this number of lines, the output is closed.
    closes: usize,
    stop: Interrupt,
    /// After this number of lines, the process has crashed.
    crashes: usize,
    crashed: watch::Sender<bool>,
}

impl Screen {
    fn new() -> Self {
        let (stop, crashed) = (Interrupt::new(), watch::Sender::new(false));
        Self { text: Arc::default(), lines: usize::MAX, closes: usize::MAX, stop, crashes: usize::MAX, crashed }
    }
}

fn lines(text: &[u8]) -> usize {
    text.iter().filter(|&&byte| byte == b'\n').count()
}

impl Write for Screen {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        let mut text = self.text.lock().unwrap();
        if lines(&text) >= self.closes {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        text.extend_from_slice(some);
        if lines(&text) >= self.lines {
            self.stop.cancel();
        }
        if lines(&text) >= self.crashes {
            self.crashed.send_replace(true);
        }
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
