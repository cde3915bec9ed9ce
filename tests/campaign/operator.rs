//! An operator who runs commands of the `daybook` binary: `dlq redrive` while the relay goes on and after the faults, and
//! `republish`. Commands are killed or crash, and their calls fail.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use daybook_cli::operator::Exit;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::SdkConfig;
use daybook_operations::dead_letters::{RedriveOptions, redrive_queue};
use daybook_operations::messages::MessageFilter;
use daybook_operations::moment::Moment;
use daybook_operations::republish::{RepublishOptions, Window, republish_from};
use daybook_operations::{Interrupt, OperatorError, Stack, StackQueue};
use daybook_settings::Environment;
use daybook_stream_relay::{RelaySettings, Resend, RetryPolicy, clients};
use daybook_table::keys;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use ulid::Ulid;

use crate::bell::registry;
use crate::database::TABLE;
use crate::dice::Dice;
use crate::log::Log;
use crate::process::{Crash, Process};
use crate::services::{Effect, Services};
use crate::stream::{CampaignMessage, MessageKind};
use crate::writers::Work;

/// Longer than received messages stay hidden.
const UNTIL_VISIBLE: Duration = Duration::from_secs(60 * 60);

/// The time after which the operator kills a command.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

const DLQ_URL: &str = "http://in.process/1/dlq";

/// More than any command sends in its time.
const RATE: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// Maximum concurrent requests to the bus, as by default.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// The operator.
pub(crate) struct Operator {
    work: Arc<Work>,
    services: Services,
    dice: Dice,
}

impl Operator {
    pub(crate) fn new(work: Arc<Work>, services: Services) -> Self {
        let dice = Dice::new(work.seed, "operator");
        Self { work, services, dice }
    }

    /// Redrives the queue a few times while the relay goes on.
    pub(crate) async fn redrive_early(mut self) -> Self {
        for _ in 0..self.dice.size(1..=3) {
            let pause = self.dice.milliseconds(0..=60_000);
            sleep(pause).await;
            if self.services.queued().is_empty() {
                continue;
            }
            self.work.log.count("redrive while the relay goes on");
            let crash = match self.dice.number(0..=4) {
                0 => Some(Crash::BeforeCall(self.dice.size(0..=6))),
                1 => Some(Crash::AfterCall(self.dice.size(0..=6))),
                _ => None,
            };
            let ended = self.redrive(crash).await;
            let allowed = matches!(
                ended,
                None | Some(Ok(Exit::Clean | Exit::Findings))
                    | Some(Err(OperatorError::Queue { .. } | OperatorError::Bus { .. }))
            );
            self.work.log.expect(allowed, || format!("the redrive ends with {ended:?}"));
        }
        self
    }

    /// After the faults, sometimes redrives the queue until it contains only messages that can never be sent, and
    /// sometimes republishes the messages of a time.
    pub(crate) async fn finish(mut self) {
        // What an interrupted command has received is visible again.
        if !self.services.queued().is_empty() && self.dice.chance(0.4) {
            sleep(UNTIL_VISIBLE).await;
            self.redrive_all().await;
            if self.dice.chance(0.5) {
                self.services.accept_all();
                self.redrive_all().await;
            }
            self.check_redriven();
        }
        if !self.work.is_large() && !self.work.is_many() && self.dice.chance(0.15) {
            self.republish_window().await;
        }
    }

    /// Redrives the queue without faults, and checks the queue.
    async fn redrive_all(&mut self) {
        let log = Arc::clone(&self.work.log);
        let before = self.services.effects().len();
        let ended = self.redrive(None).await;
        let messages = Arc::clone(self.services.messages());
        let left = self.services.queued();
        for index in left.iter().copied().flatten() {
            let unsendable = self.services.rejects(index) || messages[index].kind == MessageKind::Unsendable;
            log.expect(unsendable, || format!("message {index} is still in the queue: {ended:?}"));
        }
        let expected = if left.is_empty() { Exit::Clean } else { Exit::Findings };
        log.expect(matches!(&ended, Some(Ok(exit)) if *exit == expected), || {
            format!("the redrive ends with {ended:?}")
        });
        let effects = self.services.effects();
        log.count_times("message redriven", resent(&effects[before..]).count() as u64);
        check_resent_order(&effects[before..], &messages, &log);
    }

    /// Checks that every message in the queue reached the bus, unless it can never be sent.
    fn check_redriven(&self) {
        let effects = self.services.effects();
        let resent: BTreeSet<_> = resent(&effects).collect();
        for effect in &effects {
            let Effect::DeadLettered(index) = *effect else { continue };
            let message = &self.services.messages()[index];
            let is_sendable = message.kind == MessageKind::Sound && !self.services.rejects(index);
            self.work.log.expect(!is_sendable || resent.contains(&index), || {
                format!("message {} of {} was dead-lettered and never redriven", message.seq, message.pk)
            });
        }
    }

    /// Runs `daybook dlq redrive`; `None` if it crashed or was killed.
    async fn redrive(&mut self, crash: Option<Crash>) -> Option<Result<Exit, OperatorError>> {
        let process = Arc::new(Process::default());
        process.begin(crash);
        let config = self.services.operator_config(Arc::clone(&process));
        let config = config.to_builder().retry_config(RetryConfig::disabled()).build();
        let queue = StackQueue::new(aws_sdk_sqs::Client::new(&config), DLQ_URL.to_owned());
        let options = RedriveOptions { filter: MessageFilter::default(), yes: true, rate: RATE, limit: None };
        let stack = stack();
        let running = redrive_queue(&stack, &options, queue, sender(&config), |_, _| Ok(()));
        let ended = until_crash(running, &process).await;
        let ended = ended.map(|ended| ended.and_then(|(counts, failure)| exit(failure, counts.is_clean())));
        self.work.log.line(|| format!("redrive {crash:?}: {ended:?}"));
        if ended.is_none() {
            self.work.log.count("operator command crash");
        }
        ended
    }

    /// Republishes the messages of a random time, and checks that exactly those are sent.
    async fn republish_window(&mut self) {
        let log = Arc::clone(&self.work.log);
        log.count("republish");
        let events = self.event_times();
        let Some((first, last)) = events.values().min().zip(events.values().max()) else { return };
        let span = u64::try_from(last.duration_since(*first).as_millis()).unwrap() + 2_000;
        let (from, length) = (self.dice.number(0..=span), self.dice.number(1..=span));
        let from = *first - SignedDuration::from_secs(1) + SignedDuration::from_millis(from.cast_signed());
        let to = from + SignedDuration::from_millis(length.cast_signed());
        let in_window = |message: &CampaignMessage| {
            let event = message.committed["seqNum"]["N"].as_str().unwrap().parse().unwrap();
            events.get(&(message.pk.clone(), event)).is_some_and(|time| (from..to).contains(time))
        };
        let messages = Arc::clone(self.services.messages());
        let expected: BTreeSet<_> =
            (0..messages.len()).filter(|&index| in_window(&messages[index]) && !self.services.rejects(index)).collect();

        let before = self.services.effects().len();
        let config = self.services.operator_config(Arc::default());
        let store = self.work.database.store(Arc::default(), StoreSettings::new(TABLE));
        let resend = sender(&config);
        let ended = run_republish(&self.work, from, to, store, resend, &Process::default()).await;
        let effects = self.services.effects();
        let sent: BTreeSet<_> = resent(&effects[before..]).collect();
        log.line(|| format!("republish from {from} to {to}: {ended:?}"));
        log.expect(sent == expected, || format!("republished from {from} to {to} are {sent:?}, expected {expected:?}"));
        log.expect(matches!(ended, Some(Ok(Exit::Clean | Exit::Findings))), || {
            format!("republish ends with {ended:?}")
        });
        log.count_times("message republished", sent.len() as u64);
        check_resent_order(&effects[before..], &messages, &log);
    }

    /// The time in the id of each event, by partition and number.
    fn event_times(&self) -> BTreeMap<(String, u64), Timestamp> {
        let rows = self.work.keys.iter().flat_map(|key| self.work.database.rows(&keys::pk(key)));
        let time = |row: Value| {
            let id = Ulid::from_string(row["eventId"]["S"].as_str()?).unwrap();
            let number = row["seqNum"]["N"].as_str()?.parse().unwrap();
            let time = Timestamp::from_millisecond(id.timestamp_ms().cast_signed()).unwrap();
            Some(((row["pk"]["S"].as_str()?.to_owned(), number), time))
        };
        rows.filter(|row| row["sk"]["S"].as_str().is_some_and(|sk| sk.starts_with("EVENT#"))).filter_map(time).collect()
    }
}

/// Runs `daybook republish` for the types of a schedule; `None` if it crashed or was killed.
pub(crate) async fn run_republish(
    work: &Work,
    from: Timestamp,
    to: Timestamp,
    store: EventStore,
    resend: Resend,
    process: &Process,
) -> Option<Result<Exit, OperatorError>> {
    let types: BTreeSet<_> = work.keys.iter().map(|key| key.aggregate_type.clone()).collect();
    let window = Window {
        from: Moment::At(from),
        to: Moment::At(to),
        types: types.into_iter().collect(),
        aggregates: Vec::new(),
        message_types: Vec::new(),
        event_types: Vec::new(),
    };
    let options = RepublishOptions { window, yes: true, rate: RATE, concurrency: CONCURRENCY };
    let stack = stack();
    let ended = until_crash(republish_from(&stack, &options, &store, resend, |_| Ok(())), process).await;
    ended.map(|ended| ended.and_then(|ended| exit(ended.failure, ended.counts.is_clean())))
}

/// The exit status of the command.
fn exit(failure: Option<OperatorError>, is_clean: bool) -> Result<Exit, OperatorError> {
    failure.map_or(Ok(if is_clean { Exit::Clean } else { Exit::Findings }), Err)
}

/// A sender to the bus, as commands create it.
pub(crate) fn sender(config: &SdkConfig) -> Resend {
    let settings = RelaySettings {
        event_bus_name: "main".into(),
        event_source: "daybook".into(),
        dlq_url: String::new(),
        retry: RetryPolicy::default(),
    };
    Resend::new(clients::eventbridge(config), settings, RATE)
}

async fn until_crash<T>(command: impl Future<Output = T>, process: &Process) -> Option<T> {
    timeout(PATIENCE, process.run(command)).await.ok().flatten()
}

/// The stack of the schedule. Nothing interrupts the command.
fn stack() -> Stack {
    let environment = std::iter::empty::<(&str, &str)>().collect::<Environment>();
    Stack::new(environment, registry(), projections::projections, Interrupt::new())
}

fn resent(effects: &[Effect]) -> impl Iterator<Item = usize> {
    effects.iter().filter_map(|effect| if let Effect::Resent(index) = effect { Some(*index) } else { None })
}

/// Checks that a command first sends the messages of each aggregate in their order.
fn check_resent_order(effects: &[Effect], messages: &[CampaignMessage], log: &Log) {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for message in resent(effects).filter(|index| seen.insert(*index)).map(|index| &messages[index]) {
        let before = last.insert(&message.pk, message.seq);
        log.expect(before < Some(message.seq), || {
            format!("an operator sends message {} of {} after {before:?}", message.seq, message.pk)
        });
    }
}
