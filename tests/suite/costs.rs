//! The figures of "Costs" in docs/deploy.md that follow from the sizes of stored rows: they are those of real rows.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::limits::item_size;
use daybook_table::{AggregateKey, keys};
use jiff::Timestamp;
use serde_json::{Value, json};
use suite_tests::workspace;

use crate::fixtures::{call_api, read};
use crate::instance::Instance;

const ID: &str = "01M7XZT6PZEDC7MQFQ9XT58J16";

/// The data of the event and of the message, each, in the table of costs.
const DATA: usize = 1024;

/// What a command of one event and one message stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) table_units: f64,
    pub(crate) index_units: f64,
    /// The bytes of the event row, of the outbox row, and of the message's `Detail`.
    pub(crate) event: usize,
    pub(crate) outbox: usize,
    pub(crate) detail: usize,
    /// The bytes of the data, which the event and the message have in common.
    pub(crate) data: usize,
    /// The time at which the outbox row expires. If it ends with two zeros, the row takes a byte less than other rows.
    expires: u64,
    /// The bytes that attribute names of two letters would save, in the event row and in the outbox row.
    saved: (usize, usize),
}

/// A table with one to-do, created by a request as API Gateway passes it, signed by a role.
async fn created(message: &str, headers: &[(&str, &str)]) -> Instance {
    let mut request: Value = serde_json::from_str(&read("command-handler/create.json")).unwrap();
    request["rawPath"] = "/todo".into();
    request["requestContext"]["http"]["path"] = "/todo".into();
    request["body"] = json!({"id": ID, "title": "TODO", "message": message}).to_string().into();
    for (name, value) in headers {
        request["headers"][name] = (*value).into();
    }
    let instance = Instance::start().await;
    let response = call_api(&instance.router, &request.to_string()).await;
    assert_eq!(response["statusCode"], 201, "{response}");
    instance
}

async fn create(message: &str, headers: &[(&str, &str)]) -> Stored {
    loop {
        let stored = create_once(message, headers).await;
        if stored.expires % 100 != 0 {
            return stored;
        }
    }
}

async fn create_once(message: &str, headers: &[(&str, &str)]) -> Stored {
    let instance = created(message, headers).await;
    let append = instance.table.proxy.take_calls().pop().unwrap();
    assert_eq!(append.operation, "TransactWriteItems");
    let key = AggregateKey::new("todo", ID);
    let [event] = &instance.table.rows(&key, "EVENT#").await[..] else { panic!("not one event") };
    let [outbox] = &instance.table.rows(&key, "OUTBOX#").await[..] else { panic!("not one message") };
    let text = |row: &std::collections::HashMap<String, AttributeValue>, name: &str| row[name].as_s().unwrap().len();
    Stored {
        table_units: append.table_units,
        index_units: append.index_units,
        event: item_size(event),
        outbox: item_size(outbox),
        detail: text(outbox, "detail"),
        data: text(event, "data"),
        expires: outbox["ttl"].as_n().unwrap().parse().unwrap(),
        saved: (saved(event), saved(outbox)),
    }
}

/// The read units of a load that is not cached, of a snapshot and this number of copies of an event after it.
pub(crate) async fn units_of_load(events: u64, message: &str) -> f64 {
    let instance = created(message, &[]).await;
    let key = AggregateKey::new("todo", ID);
    let registry = aggregates::registry().unwrap();
    let model = registry.get("todo").unwrap();
    instance.table.direct_store().take_snapshot(model, &key, Timestamp::now()).await.unwrap();
    let event = instance.table.row(&key, &keys::event_sk(1)).await.unwrap();
    for seq_num in 2..=1 + events {
        let mut copy = event.clone();
        copy.insert("sk".to_owned(), AttributeValue::S(keys::event_sk(seq_num)));
        copy.insert("seqNum".to_owned(), AttributeValue::N(seq_num.to_string()));
        instance.table.put(copy).await;
    }
    instance.table.proxy.take_calls();
    assert_eq!(instance.table.store().load(model, &key).await.unwrap().version(), 1 + events);
    instance.table.proxy.take_calls().iter().map(|call| call.table_units).sum()
}

/// The bytes that names of two letters would save, also in maps.
fn saved<'a>(row: impl IntoIterator<Item = (&'a String, &'a AttributeValue)>) -> usize {
    row.into_iter().map(|(name, value)| name.len().saturating_sub(2) + value.as_m().map_or(0, saved)).sum()
}

/// The message of a to-do whose event has this number of bytes of data.
pub(crate) async fn message_for_data(bytes: usize) -> String {
    let shortest = create("", &[]).await.data;
    "x".repeat(bytes - shortest)
}

pub(crate) async fn create_with_data(bytes: usize) -> Stored {
    create(&message_for_data(bytes).await, &[]).await
}

/// The units of an append, by the rule of DynamoDB: one for each started KB, two in a transaction, and one in the index.
fn units(event: usize, outbox: usize) -> usize {
    let kilobytes = |bytes: usize| bytes.div_ceil(1024);
    2 * (kilobytes(event) + kilobytes(outbox) + 1) + kilobytes(event)
}

/// A price in US dollars.
fn price(dollars: f64) -> String {
    format!("{dollars:.2}")
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
#[tokio::test(flavor = "multi_thread")]
async fn costs_page_has_the_figures_of_real_rows() {
    let mut expected = BTreeSet::new();
    let one = create_with_data(DATA).await;
    assert_eq!(one.data, DATA);

    // The bytes beside the data.
    let (event, outbox) = (one.event - DATA, one.outbox - DATA);
    expected.insert(format!("An event row takes {event} bytes beside its data, and an outbox row {outbox}"));

    // Units by the size of the data. The engine counts as the rule does.
    for data in [128, 256, 512, DATA, 2 * DATA, 4 * DATA] {
        let stored = create_with_data(data).await;
        let counted = units(stored.event, stored.outbox);
        assert!((stored.table_units + stored.index_units - counted as f64).abs() < 0.5, "{stored:?}: {counted}");
    }
    expected.insert(format!("Up to {} bytes of data take 7 units", 1024 - outbox));
    // Each byte costs 1/1024 of three units in the event row, and of two in the outbox row.
    let average = (one.saved.0 * 3 + one.saved.1 * 2) as f64 / 1024.0;
    expected.insert(format!("about {average:.1} units a command"));

    // The table of costs. A load reads 50 events on average, a snapshot 100.
    let writes = units(one.event, one.outbox);
    let message = message_for_data(DATA).await;
    let recent = units_of_load(3, &message).await;
    let load = units_of_load(50, &message).await;
    let fold = units_of_load(100, &message).await;
    // A GB for each million of 1,000 bytes.
    let archived = (one.detail as f64 / 100.0).round() / 10.0;
    let prices = [
        1.0,
        0.30,
        writes as f64 * 0.625,
        0.1 * load * 0.125,
        0.30,
        0.005 + 0.04 * 0.625 + 0.01 * fold * 0.125,
        1.0,
        archived * 0.123,
        1.25,
    ];
    expected.insert(format!("= {writes} M units | 0.625 / M | {} |", price(prices[2])));
    expected.insert(format!("(1 snapshot + {} for 50 events)", load - 1.0));
    expected.insert(format!("{:.1} M units | 0.125 / M | {} |", 0.1 * load, price(prices[3])));
    expected.insert(format!("{},000 read units | as above | {} |", fold * 10.0, price(prices[5])));
    expected.insert(format!("| {archived:.1} GB | 0.10 / GB in, 0.023 / GB a month | {} |", price(prices[7])));
    expected.insert(format!("| **{}** |", price(prices.iter().sum())));
    expected.insert(format!("costs {load} units with 50 events since the snapshot, and {recent} with three"));

    // A stored response is one more item, of the event, the message and the state.
    let with_key = create(&"x".repeat(DATA - 63), &[("idempotency-key", "5f3c")]).await;
    let of_key = with_key.table_units - create(&"x".repeat(DATA - 63), &[]).await.table_units;
    expected.insert(format!("{of_key} units, {} for a million commands", price(of_key * 0.625)));

    // Storage: DynamoDB bills 100 bytes more for each item, in the table and in the index. Backups leave out the index.
    let in_table = (one.event + 100) as f64 / 1e3;
    let of_index = in_table;
    let storage = (in_table + of_index) * 0.25 + in_table * 0.20;
    expected.insert(format!("are {:.1} GB", in_table + of_index));
    expected.insert(format!("**{} a month for each million events**", price(storage)));
    expected.insert(format!("Outbox rows add {:.1} GB", (one.outbox + 100) as f64 / 1e3));

    let page = std::fs::read_to_string(workspace().join("docs/deploy.md")).unwrap();
    let page = page.split("\n## Costs").nth(1).unwrap().split("\n## ").next().unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let missing: Vec<_> = expected.into_iter().filter(|text| !page.contains(text.as_str())).collect();
    assert!(missing.is_empty(), "\"Costs\" in docs/deploy.md lacks {missing:#?}");
}
