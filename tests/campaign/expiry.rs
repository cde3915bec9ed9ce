//! The expiry of outbox rows: it removes nothing else, and no message is sent because of it.

use daybook_table::keys;
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::MappingSettings;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::faults::ServiceFaults;
use crate::lambda::Function;
use crate::services::{Rejections, Services};
use crate::shard::StreamReader;
use crate::stream::{CampaignMessage, StreamShape, build_stream};
use crate::writers::Work;

/// Longer than the seven days after which outbox rows expire.
const UNTIL_ROWS_EXPIRE: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// The maximum time of the delivery.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Deletes expired rows from the table, and checks that no message is sent because of it.
pub(crate) async fn check_expiry(work: &Work, dice: &mut Dice, messages: &Arc<Vec<CampaignMessage>>) {
    let Work { seed, clock, ref database, ref log, .. } = *work;
    sleep(UNTIL_ROWS_EXPIRE).await;
    let is_outbox_row = |row: &Value| row["sk"]["S"].as_str().is_some_and(|sk| sk.starts_with("OUTBOX#"));
    // Stored responses and kept snapshots expire too.
    let now = i64::try_from(clock.now().as_secs()).unwrap();
    let is_expired = |row: &Value| row["ttl"]["N"].as_str().is_some_and(|ttl| ttl.parse::<i64>().unwrap() <= now);
    let rows = work.keys.iter().flat_map(|key| database.rows(&keys::pk(key)));
    let expired: Vec<_> = rows.filter(is_expired).collect();
    let outbox = expired.iter().filter(|row| is_outbox_row(row)).count();
    log.expect(outbox == messages.len(), || format!("{outbox} of {} outbox rows have expired", messages.len()));
    let before = database.stream().len();
    let swept = database.sweep_expired();
    log.expect(swept == expired.len(), || format!("{} rows have expired, {swept} were deleted", expired.len()));
    log.count_times("row expired", outbox as u64);
    let removals: Vec<_> = database.stream().into_iter().skip(before).collect();
    log.expect(removals.len() == swept, || format!("{} removals of {swept} rows", removals.len()));

    let stream = build_stream(removals, StreamShape::default(), dice, log, clock.now());
    let faults = ServiceFaults::default();
    let services = Services::new(seed, Arc::clone(log), Arc::clone(messages), faults.clone(), Rejections::default());
    let reader = StreamReader {
        seed,
        name: "expiry",
        clock,
        log: Arc::clone(log),
        function: Function::new(seed, clock, services.clone(), faults, false),
        settings: MappingSettings { report_batch_item_failures: true, ..MappingSettings::default() },
        restarts: false,
        deadline: Instant::now() + PATIENCE,
    };
    reader.run(stream.shards).await;
    log.expect(services.effects().is_empty(), || "a message was sent because its row expired".to_owned());
}
