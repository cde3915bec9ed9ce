//! One schedule: the run of one seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::{MappingSettings, RecordFilter};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::AggregateKey;
use tokio::time::{Instant, sleep};

use crate::bell::Bell;
use crate::checks::{Guarantees, check_commits, check_messages, check_table};
use crate::clock::{Clock, in_virtual_time};
use crate::database::{Database, TABLE};
use crate::dice::Dice;
use crate::faults::ServiceFaults;
use crate::lambda::Function;
use crate::log::{Log, LogContents};
use crate::services::Services;
use crate::shard::Poller;
use crate::stream::{CampaignMessage, MessageKind, StreamShape, build_stream};
use crate::writers::{Attempt, Work};

/// The maximum time of a schedule after the end of all faults.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Longer than the seven days after which outbox rows expire.
const UNTIL_ROWS_EXPIRE: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        fastrand::seed(seed);
        let clock = Clock::start();
        let log = Arc::new(Log::new(clock, verbose));
        let mut dice = Dice::new(seed, "schedule");
        let database = Database::new(seed, clock, Arc::clone(&log));
        let (work, attempts) = write(seed, &mut dice, clock, &log, &database).await;
        relay(&work, &mut dice, &log, &attempts).await;
        log.contents()
    })
}

/// The part of the writers: runs them, and checks the table.
async fn write(
    seed: u64,
    dice: &mut Dice,
    clock: Clock,
    log: &Arc<Log>,
    database: &Database,
) -> (Arc<Work>, Vec<Attempt>) {
    store(database).admin().create_table().await.unwrap();

    // Large: the messages of a few aggregates exceed the size of a request. Many: they exceed its number of entries.
    let (large, many) = (dice.chance(0.02), dice.chance(0.02));
    let types: &[&str] = match (large, many) {
        (true, _) => &["bell"; 6],
        (false, true) => &["todo"; 24],
        (false, false) => &["account", "todo", "order", "bell", "bell", "order"],
    };
    let mut keys: Vec<_> = types.iter().zip(0..).map(|(&of, id)| AggregateKey::new(of, format!("{id}"))).collect();
    dice.shuffle(&mut keys);
    keys.truncate(if large || many { keys.len() } else { dice.size(1..=4) });
    let work = Arc::new(Work {
        seed,
        clock,
        log: Arc::clone(log),
        database: database.clone(),
        keys: keys.clone(),
        registry: Arc::new(aggregates::registry().unwrap().with::<Bell>().unwrap()),
        volume: if large { 300_000 } else { 20 },
    });
    database.start_faults();
    let (writers, commands) = match (large, many, dice.chance(0.03)) {
        (true, ..) => (2, 8),
        (false, true, _) => (3, 12),
        (false, false, true) => (dice.number(1..=3), dice.size(20..=40)),
        (false, false, false) => (dice.number(1..=3), dice.size(2..=10)),
    };
    let attempts = work.run(writers, commands).await;
    database.stop_faults();
    // Calls that were sent still arrive.
    sleep(Duration::from_secs(60)).await;
    check_table(database, &keys, &attempts, log);
    verify(&work, log).await;
    (work, attempts)
}

/// Verifies every aggregate as an operator does. Each finding is a violation.
async fn verify(work: &Work, log: &Log) {
    let store = store(&work.database);
    for key in &work.keys {
        let model = work.registry.get(&key.aggregate_type).unwrap();
        let verified = store.admin().verify(model, key, work.clock.timestamp()).await.unwrap();
        log.expect(verified.findings.is_empty(), || format!("{key}: {:?}", verified.findings));
    }
}

/// A store without faults.
fn store(database: &Database) -> EventStore {
    EventStore::new(&database.config(Arc::default()), StoreSettings::new(TABLE))
}

/// The part of the relay: delivers the stream, and checks the messages.
async fn relay(work: &Work, dice: &mut Dice, log: &Arc<Log>, attempts: &[Attempt]) {
    let Work { seed, clock, ref database, .. } = *work;
    let recorded = database.stream();
    check_commits(&recorded, attempts, log);
    let mut settings = settings(dice);
    let mut shape = StreamShape {
        in_order: dice.chance(0.5),
        shards: dice.size(1..=2),
        damage: dice.one_of(&[0.0, 0.0, 0.05, 0.3]),
        malformed: settings.bisect_batch_on_function_error,
        noise: dice.one_of(&[0, 4, 12]),
        spread: dice.one_of(&[Duration::ZERO, Duration::from_secs(2), Duration::from_secs(60)]),
    };
    let (large, many) = (work.volume > 1_000, work.keys.len() > 10);
    if large || many {
        log.count(if large { "large messages" } else { "many aggregates" });
        (settings.batch_size, shape.shards, shape.spread) = (100, 1, Duration::ZERO);
    }
    let stream = build_stream(recorded, shape, dice, log, clock.now());
    let messages = Arc::new(stream.messages.clone());
    log.count_times("message committed", messages.len() as u64);
    log.line(|| format!("{} messages, {shape:?}, {settings:?}", messages.len()));

    let seconds_of_faults = dice.one_of(&[0, 1, 5, 20, 60, 120]);
    let faults = ServiceFaults::draw(dice, Instant::now() + Duration::from_secs(seconds_of_faults));
    // A batch of nothing but rejected messages looks like a bus that rejects everything, until the mapping splits it.
    let rejects = settings.bisect_batch_on_function_error;
    let rejected = if rejects { rejected(dice, &messages) } else { BTreeMap::new() };
    let services = Services::new(seed, Arc::clone(log), Arc::clone(&messages), faults.clone(), &rejected);
    let splits = settings.bisect_batch_on_function_error;
    let function = Function::new(seed, services.clone(), Arc::clone(log), Arc::clone(&messages), faults, splits);
    let guarantees = Guarantees {
        order: shape.in_order && settings.parallelization_factor == 1,
        filtered: settings.filter != RecordFilter::default(),
    };
    log.count(if guarantees.order { "order guaranteed" } else { "order guaranteed within a batch" });

    let mut pollers = Vec::new();
    for (number, shard) in stream.shards.iter().enumerate() {
        let mut restarts: Vec<_> =
            (0..dice.one_of(&[0, 0, 1, 3])).map(|_| clock.now() + dice.milliseconds(1..=60_000)).collect();
        restarts.sort_unstable();
        let poller = Poller {
            clock,
            log: Arc::clone(log),
            function: function.clone(),
            services: services.clone(),
            settings: settings.clone(),
            messages: Arc::clone(&messages),
            dice: Dice::new(seed, &format!("shard {number}")),
            restarts,
            deadline: Instant::now() + Duration::from_secs(seconds_of_faults) + PATIENCE,
        };
        pollers.push(tokio::spawn(poller.run(Arc::clone(shard))));
    }
    for poller in pollers {
        poller.await.unwrap();
    }
    // Abandoned invocations end, and calls that were sent still arrive.
    sleep(Duration::from_secs(300)).await;
    check_messages(&stream, &services.effects(), services.bus(), guarantees, log);
    check_expiry(work, dice, log, &messages).await;
    log.line(|| format!("{} invocations", function.invocations()));
}

/// Deletes expired rows from the table, and checks that no message is sent because of it.
async fn check_expiry(work: &Work, dice: &mut Dice, log: &Arc<Log>, messages: &Arc<Vec<CampaignMessage>>) {
    let Work { seed, clock, ref database, .. } = *work;
    if !dice.chance(0.2) {
        return;
    }
    sleep(UNTIL_ROWS_EXPIRE).await;
    let before = database.stream().len();
    let swept = database.sweep_expired();
    log.expect(swept == messages.len(), || format!("{} rows have expired, {swept} were deleted", messages.len()));
    log.count_times("row expired", swept as u64);
    verify(work, log).await;
    let removals: Vec<_> = database.stream().into_iter().skip(before).collect();
    log.expect(removals.len() == swept, || format!("{} removals of {swept} rows", removals.len()));

    let shape =
        StreamShape { in_order: true, shards: 1, damage: 0.0, malformed: false, noise: 0, spread: Duration::ZERO };
    let stream = build_stream(removals, shape, dice, log, clock.now());
    let services =
        Services::new(seed, Arc::clone(log), Arc::clone(messages), ServiceFaults::default(), &BTreeMap::new());
    let poller = Poller {
        clock,
        log: Arc::clone(log),
        function: Function::new(
            seed,
            services.clone(),
            Arc::clone(log),
            Arc::clone(messages),
            ServiceFaults::default(),
            false,
        ),
        services: services.clone(),
        settings: MappingSettings { report_batch_item_failures: true, ..MappingSettings::default() },
        messages: Arc::clone(messages),
        dice: Dice::new(seed, "expiry"),
        restarts: vec![],
        deadline: Instant::now() + PATIENCE,
    };
    poller.run(Arc::clone(&stream.shards[0])).await;
    log.expect(services.effects().is_empty(), || "a message was sent because its row expired".to_owned());
}

/// Random valid settings of a mapping.
fn settings(dice: &mut Dice) -> MappingSettings {
    let mut outbox_rows = RecordFilter::default();
    outbox_rows.add(r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"OUTBOX#"}]}}}}"#).unwrap();
    MappingSettings {
        batch_size: dice.one_of(&[1, 2, 3, 10, 25, 100]),
        batching_window: dice.one_of(&[
            Duration::ZERO,
            Duration::ZERO,
            Duration::from_secs(1),
            Duration::from_secs(10),
        ]),
        parallelization_factor: if dice.chance(0.7) { 1 } else { dice.size(2..=10) },
        bisect_batch_on_function_error: dice.chance(0.6),
        maximum_retry_attempts: if dice.chance(0.75) { None } else { Some(dice.one_of(&[0, 1, 3])) },
        maximum_record_age: dice.chance(0.1).then(|| Duration::from_secs(60)),
        report_batch_item_failures: true,
        filter: if dice.chance(0.6) { outbox_rows } else { RecordFilter::default() },
    }
}

/// Messages that the bus permanently rejects, and the codes.
fn rejected(dice: &mut Dice, messages: &[CampaignMessage]) -> BTreeMap<usize, &'static str> {
    let rate = dice.one_of(&[0.0, 0.0, 0.05, 0.3]);
    let sound = messages.iter().enumerate().filter(|(_, message)| message.kind == MessageKind::Sound);
    let mut rejected = BTreeMap::new();
    for (index, _) in sound {
        if dice.chance(rate) {
            rejected.insert(index, dice.one_of(&["InvalidArgument", "RedactionFailure", "SomethingNew"]));
        }
    }
    rejected
}
