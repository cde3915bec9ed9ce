//! `daybook republish` while the writers go on: every message that was committed before it began is sent, and each with the
//! bytes of its row.

use daybook_table::keys;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use daybook_cli::operator::Exit;
use daybook_event_store::StoreSettings;
use daybook_operations::OperatorError;
use futures_util::future::{BoxFuture, FutureExt};
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::database::TABLE;
use crate::dice::Dice;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};
use crate::operator::{run_republish, sender};
use crate::process::Process;
use crate::writers::Work;

/// A bus that accepts every entry.
#[derive(Clone, Debug, Default)]
struct AcceptingBus(Arc<Mutex<Vec<String>>>);

impl Service for AcceptingBus {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let this = self.clone();
        async move {
            let request: Value = serde_json::from_str(&call.body).unwrap();
            let details = request["Entries"].as_array().unwrap().iter();
            let details: Vec<_> = details.map(|entry| entry["Detail"].as_str().unwrap().to_owned()).collect();
            let results: Vec<_> = details.iter().map(|_| json!({"EventId": "e"})).collect();
            this.0.lock().unwrap().extend(details);
            Ok(Reply { status: 200, body: json!({"FailedEntryCount": 0, "Entries": results}).to_string() })
        }
        .boxed()
    }
}

/// What a run of the command has sent.
pub(crate) struct EarlyRepublish {
    /// The details that were committed before it began.
    before: BTreeSet<String>,
    sent: Vec<String>,
    ended: Option<Result<Exit, OperatorError>>,
}

impl EarlyRepublish {
    /// Runs the command once while the writers go on.
    pub(crate) async fn run(work: Arc<Work>) -> Self {
        let mut dice = Dice::new(work.seed, "early republish");
        sleep(dice.milliseconds(50..=1_000)).await;
        let before = outbox(&work).into_keys().collect();
        let process = Arc::new(Process::default());
        let store = work.database.store(Arc::clone(&process), StoreSettings::new(TABLE));
        let (bus, now) = (AcceptingBus::default(), work.clock.timestamp());
        let (from, to) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_hours(1));
        let ended = run_republish(&work, from, to, store, sender(&network::config(bus.clone())), &process).await;
        work.log.line(|| format!("republish while writers go on: {ended:?}"));
        let sent = bus.0.lock().unwrap().clone();
        Self { before, sent, ended }
    }

    /// Checks the sent messages against the table after the writers have ended.
    pub(crate) fn check(self, work: &Work) {
        let Self { before, sent, ended } = self;
        let committed = outbox(work);
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for detail in &sent {
            let Some((pk, seq)) = committed.get(detail) else {
                work.log.violation(format!("republished, and not committed: {detail}"));
                continue;
            };
            let previous = last.insert(pk, *seq);
            work.log
                .expect(previous < Some(*seq), || format!("message {seq} of {pk} is republished after {previous:?}"));
        }
        match ended {
            // A read failed in all of its attempts.
            Some(Err(OperatorError::Store { .. })) => return,
            Some(Ok(Exit::Clean)) => {}
            other => work.log.violation(format!("republish while writers go on ends with {other:?}")),
        }
        let sent: BTreeSet<_> = sent.into_iter().collect();
        let missing: Vec<_> = before.difference(&sent).collect();
        work.log.expect(missing.is_empty(), || format!("not republished: {missing:?}"));
        work.log.count("republish while writers go on");
    }
}

/// The details of all outbox rows, each with its partition and number.
fn outbox(work: &Work) -> BTreeMap<String, (String, u64)> {
    let rows = work.keys.iter().flat_map(|key| work.database.rows(&keys::pk(key)));
    let message = |row: Value| {
        let seq = row["messageSeq"]["N"].as_str()?.parse().unwrap();
        Some((row["detail"]["S"].as_str()?.to_owned(), (row["pk"]["S"].as_str()?.to_owned(), seq)))
    };
    rows.filter(|row| row["sk"]["S"].as_str().is_some_and(|sk| sk.starts_with("OUTBOX#"))).filter_map(message).collect()
}
