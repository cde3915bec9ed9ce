//! The part of the relay: delivers the stream to the relay and to the snapshotter, with an operator beside them, and checks
//! the messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::{MappingSettings, RecordFilter};
use futures_util::future::OptionFuture;
use tokio::time::{Instant, sleep};

use crate::checks::{Guarantees, check_bytes, check_commits, check_messages};
use crate::dice::Dice;
use crate::faults::ServiceFaults;
use crate::lambda::Function;
use crate::operator::Operator;
use crate::requests::Attempt;
use crate::services::{Rejections, Services};
use crate::shard::StreamReader;
use crate::snapshots::SnapshotFunction;
use crate::stream::{CampaignMessage, MessageKind, Stream, StreamShape, build_stream};
use crate::writers::{PERSONAL, Work};

/// The maximum time of a schedule after the end of all faults.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Fewer rejected messages than those from which the relay treats the bus as the cause.
const FEW: usize = 2;

/// Delivers the stream and settles the dead-letter queue. Returns the messages of the stream.
pub(crate) async fn deliver(
    work: &Arc<Work>,
    dice: &mut Dice,
    attempts: &[Attempt],
    snapshotter: Option<&SnapshotFunction>,
) -> Arc<Vec<CampaignMessage>> {
    let Work { seed, clock, ref database, ref log, .. } = **work;
    let recorded = database.stream();
    check_commits(&recorded, attempts, log);
    let mut settings = settings(dice);
    let shape = shape(work, &mut settings, dice);
    let stream = build_stream(recorded, shape, dice, log, clock.now());
    let messages = Arc::new(stream.messages.clone());
    log.count_times("message committed", messages.len() as u64);
    log.line(|| format!("{} messages, {shape:?}, {settings:?}", messages.len()));

    let seconds_of_faults = dice.one_of(&[0, 1, 5, 20, 60, 120]);
    let until = Instant::now() + Duration::from_secs(seconds_of_faults);
    let faults = ServiceFaults::draw(dice, until);
    let splits = settings.bisect_batch_on_function_error;
    let rejections = rejections(splits, dice, &messages);
    let is_rejecting = (!rejections.permanent.is_empty(), !rejections.transient.is_empty());
    match (is_rejecting.0, splits) {
        (true, false) => log.count("rejected message in batches that are not split"),
        (true, true) => log.count("rejected message in batches that are split"),
        (false, _) => {}
    }
    if is_rejecting.1 {
        log.count("message that fails for a while");
    }
    let services = Services::new(seed, Arc::clone(log), Arc::clone(&messages), faults.clone(), rejections);
    let guarantees = Guarantees {
        order: shape.in_order && settings.parallelization_factor == 1,
        filtered: settings.filter != RecordFilter::default(),
    };
    log.count(if guarantees.order { "order guaranteed" } else { "order guaranteed within a batch" });

    let relay = StreamReader {
        seed,
        name: "relay",
        clock,
        log: Arc::clone(log),
        function: Function::new(seed, clock, services.clone(), faults, splits),
        settings,
        restarts: true,
        deadline: until + PATIENCE,
    };
    let operator = Operator::new(Arc::clone(work), services.clone());
    let operator =
        if dice.chance(0.3) { tokio::spawn(operator.redrive_early()) } else { tokio::spawn(async { operator }) };
    let snapshots: OptionFuture<_> =
        snapshotter.map(|function| tokio::spawn(take_snapshots(relay.clone(), function, &stream, until, dice))).into();
    relay.clone().run(stream.shards.clone()).await;
    snapshots.await.transpose().unwrap();
    let operator = operator.await.unwrap();
    // Abandoned invocations end, and calls that were sent still arrive.
    sleep(Duration::from_secs(300)).await;
    check_messages(&stream, &services.effects(), guarantees, log);
    operator.finish().await;
    check_bytes(&messages, &services.effects(), services.bus(), log);
    if !work.is_large() {
        let sent = format!("{:?} {:?}", services.bus().delivered(), services.bus().dead_letters());
        log.expect(!sent.contains(PERSONAL), || format!("a message has a personal value: {sent}"));
    }
    log.line(|| format!("{} invocations", relay.function.invocations()));
    messages
}

/// The stream of a schedule.
fn shape(work: &Work, settings: &mut MappingSettings, dice: &mut Dice) -> StreamShape {
    let shape = StreamShape {
        in_order: dice.chance(0.5),
        shards: dice.size(1..=2),
        splits: dice.one_of(&[0, 0, 1, 2, 4]),
        damage: dice.one_of(&[0.0, 0.0, 0.05, 0.3]),
        malformed: settings.bisect_batch_on_function_error,
        noise: dice.one_of(&[0, 4, 12]),
        spread: dice.one_of(&[Duration::ZERO, Duration::from_secs(2), Duration::from_secs(60)]),
    };
    if !work.is_large() && !work.is_many() {
        return shape;
    }
    work.log.count(if work.is_large() { "large messages" } else { "many aggregates" });
    settings.batch_size = 100;
    StreamShape { shards: 1, splits: 0, spread: Duration::ZERO, ..shape }
}

/// Delivers the stream to the snapshotter, behind a mapping with settings of its own. Until the end of the faults, calls
/// of the table fail too.
fn take_snapshots(
    relay: StreamReader<Function>,
    function: &SnapshotFunction,
    stream: &Stream,
    until: Instant,
    dice: &mut Dice,
) -> impl Future<Output = ()> + use<> {
    let mut due = RecordFilter::default();
    due.add(r#"{"eventName":["INSERT"],"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"EVENT#"}]}},"NewImage":{"snapshotDue":{"BOOL":[true]}}}}"#)
        .unwrap();
    let filter = if dice.chance(0.7) { due } else { RecordFilter::default() };
    function.end_faults_at(until);
    let StreamReader { seed, clock, log, deadline, .. } = relay;
    let settings = MappingSettings { filter, ..settings(dice) };
    let reader = StreamReader {
        seed,
        name: "snapshotter",
        clock,
        log,
        function: function.clone(),
        settings,
        restarts: true,
        deadline,
    };
    let (shards, database, faults) = (stream.shards.clone(), function.database(), dice.chance(0.5));
    async move {
        if faults {
            database.start_faults();
        }
        tokio::join!(reader.run(shards), async {
            sleep(until.saturating_duration_since(Instant::now())).await;
            database.stop_faults();
        });
    }
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
        maximum_record_age: dice.chance(0.25).then(|| Duration::from_secs(60)),
        report_batch_item_failures: true,
        filter: if dice.chance(0.6) { outbox_rows } else { RecordFilter::default() },
    }
}

/// Messages that the bus does not accept. Without a mapping that splits batches, they are few: a batch of nothing but
/// rejected messages looks like a bus that rejects everything.
fn rejections(splits: bool, dice: &mut Dice, messages: &[CampaignMessage]) -> Rejections {
    let sound = messages.iter().enumerate().filter(|(_, message)| message.kind == MessageKind::Sound);
    let mut sound: Vec<_> = sound.map(|(index, _)| index).collect();
    dice.shuffle(&mut sound);
    let rate = dice.one_of(&[0.0, 0.0, 0.05, 0.3]);
    let fails_for_a_while = dice.chance(0.25);
    let most = if splits { sound.len() } else { FEW };
    let count = sound.iter().filter(|_| dice.chance(rate)).count();
    let permanent: Vec<_> = sound.drain(..count.min(most)).collect();
    let transient: BTreeSet<_> = sound.into_iter().take(if fails_for_a_while { FEW } else { 0 }).collect();
    let code = |index| (index, dice.one_of(&["InvalidArgument", "RedactionFailure", "SomethingNew"]));
    let permanent: BTreeMap<_, _> = permanent.into_iter().map(code).collect();
    let seconds = dice.one_of(&[30, 90, 180]);
    Rejections { permanent, transient, until: Some(Instant::now() + Duration::from_secs(seconds)) }
}
