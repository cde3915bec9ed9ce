//! Costs of a load, a command, a snapshot and a page of the console of a long and a short event stream on the local stack, in
//! calls and capacity units. They are counted between the stack and its table.
//!
//! In the normal run the long stream has 20,000 events. `LONG_STREAM=1000000 cargo test -p operator --test long_stream
//! -- --nocapture` uses a million, as each night, and prints the costs. Storing them takes one or two minutes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use daybook_decider::{Json, Meta, RecordedEvent};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::{AggregateKey, EventItem, SnapshotItem, StoredText, keys};
use daybook_test_support::fault_proxy::{FaultProxy, RecordedCall};
use daybook_test_support::table::{TABLE, TestTable, settings};
use dynoxide::{Database, ImportOptions};
use jiff::Timestamp;
use serde_json::{Value, json};
use ulid::Ulid;

/// As many events as a snapshot may be behind by default, and what a long stream is compared with.
const SHORT: u64 = 100;

/// The length of the long stream: a multiple of [`SHORT`], so that both streams are equally far from their next snapshot.
fn long() -> u64 {
    let asked = std::env::var("LONG_STREAM").map_or(20_000, |events| events.parse().expect("LONG_STREAM is a number"));
    assert!(asked > SHORT && asked.is_multiple_of(SHORT), "LONG_STREAM is a multiple of {SHORT}");
    asked
}

fn key(id: &str) -> AggregateKey {
    AggregateKey::new("account", id)
}

/// The binary over the table behind a proxy, which is in the data file of the stack.
fn daybook(proxy: &FaultProxy, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(arguments).env("AWS_ENDPOINT_URL_DYNAMODB", proxy.url()).env("TABLE_NAME", TABLE);
    command
}

/// A running `daybook dev`, killed when it is dropped.
struct Stack {
    process: Child,
    api: String,
}

impl Stack {
    /// A stack without read models, whose projector would read the events too.
    fn start(proxy: &FaultProxy, folder: &Path) -> Self {
        let template = folder.join("template.yaml");
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml"), &template).unwrap();
        let template = template.to_str().unwrap();
        let arguments = [
            "dev",
            "--no-restart",
            "--port",
            "0",
            "--dynamodb-port",
            "0",
            "--bus-port",
            "0",
            "--template",
            template,
            "--data",
        ];
        let mut command = daybook(proxy, &arguments);
        command.current_dir(folder).arg(folder.join("data"));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let api = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(rest) = line.trim_start().strip_prefix("API") {
                break rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        // The output is read to its end, so that the process never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, api }
    }

    async fn get(&self, id: &str) -> Value {
        let answer = reqwest::get(format!("{}/account/{id}", self.api)).await.unwrap();
        answer.error_for_status().unwrap().json().await.unwrap()
    }

    async fn pay(&self, id: &str, times: usize) -> Value {
        let payment = json!({"command": "RecordTransaction", "data": {"desc": "payment", "amount": 1}});
        let request = reqwest::Client::new().post(format!("{}/account/{id}/commands", self.api));
        let answer = request.json(&vec![payment; times]).send().await.unwrap();
        answer.error_for_status().unwrap().json().await.unwrap()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Puts an account of `version` events and its snapshot directly into the data file. Through the engine's endpoint, a million
/// events would take most of an hour, and the engine reads the rest of a stream for each page of it. Each row is the one that an
/// append or the snapshotter writes. The table's stream does not contain these rows.
fn fill(data: &Path, id: &str, version: u64) {
    const AT_ONCE: u64 = 20_000;
    let key = key(id);
    let registry = aggregates::registry().unwrap();
    let model = registry.get("account").unwrap();
    let database = Database::new(&data.to_string_lossy()).unwrap();
    database.enable_bulk_loading().unwrap();
    let import = |rows: Vec<Value>| {
        let rows = rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect();
        database.import_items(TABLE, rows, ImportOptions::default()).unwrap();
    };
    let payment = Json::of(&json!({"desc": "payment", "amount": 1})).unwrap();
    let event = |seq_num: u64| {
        let (event_type, data) = match seq_num {
            1 => ("AccountOpened", Json::of(&json!({ "id": id })).unwrap()),
            _ => ("TransactionAccepted", payment.clone()),
        };
        RecordedEvent {
            seq_num,
            event_id: Ulid::from_parts(seq_num, 0),
            event_type: event_type.to_owned(),
            event_version: 1,
            data,
            meta: Meta::default(),
            occurred_at: Timestamp::UNIX_EPOCH,
            message_seq: 0,
            message_epoch: 1,
            together: Vec::new(),
        }
    };
    let mut folded = model.before_first_event();
    for first in (1..=version).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let events: Vec<_> = (first..=version.min(first + AT_ONCE - 1)).map(event).collect();
        let due = |event: &RecordedEvent| event.seq_num.is_multiple_of(SHORT);
        import(events.iter().map(|event| row(&EventItem::new(&key, event, 1, due(event)))).collect());
        folded = model.fold(folded, &events).unwrap();
    }
    let began = "1970-01-01T00:00:00.000Z";
    let metadata = json!({
        "pk": keys::pk(&key), "sk": keys::METADATA, "currentSeqNum": version, "messageSeq": 0, "aggregateType": "account",
        "aggregateId": id, "createdAt": began, "updatedAt": began,
    });
    let snapshot = SnapshotItem {
        pk: keys::pk(&key),
        sk: keys::SNAPSHOT.to_owned(),
        state: StoredText::Text(model.state(&folded).unwrap().text().to_owned()),
        last_seq_num: version,
        message_seq: folded.message_seq(),
        state_version: model.state_version(),
        taken_at: began.to_owned(),
        ttl: None,
    };
    import(vec![row(&metadata), row(&snapshot)]);
    database.disable_bulk_loading().unwrap();
}

/// A row in DynamoDB's JSON.
fn row(item: &impl serde::Serialize) -> Value {
    let item: serde_dynamo::Item = serde_dynamo::to_item(item).unwrap();
    serde_json::to_value(item).unwrap()
}

/// The cost of an operation: the names of the calls, and the capacity units of table and index.
#[derive(Debug, PartialEq)]
struct Cost {
    calls: Vec<String>,
    table_units: f64,
    index_units: f64,
}

impl Cost {
    /// The cost of those of these calls that name the aggregate's partition.
    fn of(calls: &[RecordedCall], id: &str) -> Self {
        let pk = keys::pk(&key(id));
        let of_it: Vec<_> = calls.iter().filter(|call| call.request.to_string().contains(&format!("{pk}\""))).collect();
        let mut calls: Vec<_> = of_it.iter().map(|call| call.operation.clone()).collect();
        calls.sort_unstable();
        Self {
            calls,
            table_units: of_it.iter().map(|call| call.table_units).sum(),
            index_units: of_it.iter().map(|call| call.index_units).sum(),
        }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = match self.calls.as_slice() {
            few if few.len() <= 4 => few.join(" "),
            many => format!("{} calls", many.len()),
        };
        text += &format!(", {} units", self.table_units);
        if self.index_units > 0.0 {
            text += &format!(" + {}", self.index_units);
        }
        f.pad(&text)
    }
}

/// What the streams cost, each in the same order: what was done, and for which cost.
async fn measure(table: &TestTable, folder: &Path, id: &str, version: u64) -> Vec<(&'static str, Cost)> {
    let proxy = &table.proxy;
    let mut costs = Vec::new();
    let mut cost = |what, calls: &[RecordedCall]| {
        // The engine would read the tokens of all earlier transactions for each new one.
        assert!(calls.iter().all(|call| call.request.get("ClientRequestToken").is_none()), "{what}: {calls:?}");
        costs.push((what, Cost::of(calls, id)));
    };
    proxy.take_calls();
    let balance = |version: u64| json!(version - 1);

    let stack = Stack::start(proxy, folder);
    let read = stack.get(id).await;
    assert_eq!((&read["version"], &read["state"]["balance"]), (&json!(version), &balance(version)));
    cost("GET, new instance", &proxy.take_calls());
    stack.get(id).await;
    cost("GET again", &proxy.take_calls());
    drop(stack);

    let stack = Stack::start(proxy, folder);
    proxy.take_calls();
    assert_eq!(stack.pay(id, 1).await["version"], version + 1);
    cost("command, new instance", &proxy.take_calls());
    assert_eq!(stack.pay(id, 1).await["version"], version + 2);
    cost("command again", &proxy.take_calls());
    let page = reqwest::get(format!("{}/_console/aggregates/account/{id}", stack.api)).await.unwrap();
    assert!(page.text().await.unwrap().contains(&format!("{0} of {0}", version + 2)));
    cost("page of the console", &proxy.take_calls());

    // The next due snapshot: the calls after the append are those of the snapshotter, which receives the event by the stream.
    let after = stack.pay(id, 98).await;
    assert_eq!(after["version"], version + SHORT);
    let mut calls = Vec::new();
    let give_up = Instant::now() + Duration::from_secs(60);
    while Cost::of(&calls, id).calls.len() < 5 {
        assert!(Instant::now() < give_up, "no snapshot is taken: {:?}", Cost::of(&calls, id));
        tokio::time::sleep(Duration::from_millis(20)).await;
        calls.extend(proxy.take_calls());
    }
    calls.retain(|call| call.operation != "TransactWriteItems");
    cost("snapshot, when due", &calls);
    drop(stack);

    // In this process: a stack would read the due event in the stream again, and take that for work.
    proxy.take_calls();
    let loaded = table.store().load(aggregates::registry().unwrap().get("account").unwrap(), &key(id)).await.unwrap();
    let state: Value = serde_json::from_str(loaded.state.text()).unwrap();
    assert_eq!((loaded.version(), &state["balance"]), (version + SHORT, &balance(version + SHORT)));
    cost("load, from that snapshot", &proxy.take_calls());
    costs
}

#[tokio::test(flavor = "multi_thread")]
async fn long_stream_and_short_stream_have_the_same_costs() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let engine = LocalDynamoDb::start(Some(&data), listener).unwrap();
    let table = TestTable::over(engine, settings()).await;

    let mut sides = Vec::new();
    for (id, version) in [("short", SHORT), ("lengthy", long())] {
        // Ids of one length, so that their rows have one size.
        let id = &format!("{id:_<7}");
        let began = Instant::now();
        fill(&data, id, version);
        println!("{version} events put into the table in {:.0?}", began.elapsed());
        sides.push(measure(&table, folder.path(), id, version).await);
    }

    let [short, long_one] = [&sides[0], &sides[1]];
    println!("\n{:24} | {:48} | {:48}", "", format!("{SHORT} events"), format!("{} events", long()));
    for ((what, short), (_, long)) in short.iter().zip(long_one) {
        println!("{what:24} | {short:48} | {long:48}");
    }
    assert_eq!(short, long_one);
    let calls = |what: &str| short.iter().find(|(done, _)| *done == what).unwrap().1.calls.clone();
    assert_eq!(calls("GET, new instance"), ["GetItem", "Query"]);
    assert_eq!(calls("command, new instance"), ["GetItem", "Query", "TransactWriteItems"]);
    assert_eq!(calls("command again"), ["TransactWriteItems"]);
}
