//! `daybook dev --data FILE` killed during writes: afterwards, every acknowledged event is stored, and every outbox row reaches
//! the bus.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_table::{attributes, keys};
use serde_json::{Value, json};

use crate::daybook::Daybook;

/// Acknowledged writes before each kill.
const WRITES: usize = 60;

/// Concurrent writers. Each writes to its own aggregate and to a common one.
const WRITERS: usize = 6;

/// How often the stack is killed.
const KILLS: usize = 3;

/// Writes until the stack is killed, and sends each acknowledged event id with its aggregate.
async fn write(api: String, writer: usize, round: usize, acknowledged: tokio::sync::mpsc::Sender<(String, String)>) {
    let client = reqwest::Client::new();
    for n in 0.. {
        let id = if n % 2 == 0 { "common".to_owned() } else { format!("own-{writer}") };
        let todo = json!({"title": format!("{round}/{writer}/{n}"), "message": "x".repeat(200)});
        let mut create = todo.clone();
        create["id"] = id.as_str().into();
        let post = async |path: String, body: &Value| client.post(format!("{api}{path}")).json(body).send().await;
        let mut answer = post(format!("/todo/{id}"), &todo).await;
        if answer.as_ref().is_ok_and(|answer| answer.status() == 404) {
            answer = post("/todo".to_owned(), &create).await;
        }
        let Ok(answer) = answer else { return };
        if !answer.status().is_success() {
            continue;
        }
        let Ok(body) = answer.json::<Value>().await else { return };
        for event in body["events"].as_array().unwrap() {
            let event_id = event["eventId"].as_str().unwrap().to_owned();
            if acknowledged.send((id.clone(), event_id)).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_stack_loses_no_acknowledged_event_and_sends_every_outbox_row() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let mut acknowledged: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for round in 0..KILLS {
        let daybook = Daybook::with_data(&data);
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| tokio::spawn(write(daybook.api.clone(), writer, round, sender.clone())))
            .collect();
        drop(sender);
        for _ in 0..WRITES {
            let (id, event_id) = receiver.recv().await.unwrap();
            acknowledged.entry(id).or_default().insert(event_id);
        }
        daybook.kill();
        // Responses that were on the way when the stack was killed count too: they acknowledge events.
        while let Some((id, event_id)) = receiver.recv().await {
            acknowledged.entry(id).or_default().insert(event_id);
        }
        for writer in writers {
            writer.await.unwrap();
        }
    }

    let daybook = Daybook::with_data(&data);
    for (id, event_ids) in &acknowledged {
        let answer = daybook.get(&format!("/todo/{id}/events?limit=1000")).await;
        let events = answer["events"].as_array().unwrap();
        let numbers: Vec<_> = events.iter().map(|event| event["seqNum"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>(), "{id}");
        let stored: BTreeSet<_> = events.iter().map(|event| event["eventId"].as_str().unwrap().to_owned()).collect();
        assert!(event_ids.is_subset(&stored), "{id}: {:?}", event_ids.difference(&stored));
    }

    let client = aws_sdk_dynamodb::Client::new(&daybook_function_runtime::aws_config_at(&daybook.dynamodb));
    let rows = client.scan().table_name("daybook-dev").into_paginator().items().send().try_collect().await.unwrap();
    let is_outbox = |row: &std::collections::HashMap<String, aws_sdk_dynamodb::types::AttributeValue>| {
        row[attributes::SK].as_s().unwrap().starts_with(keys::OUTBOX_PREFIX)
    };
    let waiting: BTreeSet<_> =
        rows.iter().filter(|row| is_outbox(row)).map(|row| row["messageId"].as_s().unwrap().clone()).collect();
    assert!(waiting.len() >= acknowledged.values().map(BTreeSet::len).sum());
    for attempt in 0.. {
        let bus = daybook.get("/_dev/bus").await;
        let sent = bus.as_array().unwrap().iter();
        let sent: BTreeSet<_> =
            sent.map(|entry| entry["detail"]["metadata"]["messageId"].as_str().unwrap().to_owned()).collect();
        if waiting.is_subset(&sent) {
            break;
        }
        assert!(attempt < 600, "{} messages never reach the bus", waiting.difference(&sent).count());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
