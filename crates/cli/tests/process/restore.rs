//! The restore of a table, rehearsed on the local stack by the steps of docs/restore.md.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::daybook::{Daybook, template};

/// A consumer that stores the text of each to-do: the latest by its order.
struct Consumer {
    /// The position of a message within its aggregate.
    position: fn(&Value) -> (u64, u64),
    received: HashSet<String>,
    texts: BTreeMap<String, ((u64, u64), String)>,
}

impl Consumer {
    fn ordering_by(position: fn(&Value) -> (u64, u64)) -> Self {
        Self { position, received: HashSet::new(), texts: BTreeMap::new() }
    }

    fn receive(&mut self, message: &Value) {
        let metadata = &message["detail"]["metadata"];
        if !self.received.insert(metadata["messageId"].as_str().unwrap().to_owned()) {
            return;
        }
        let (aggregate, position) = (message["resources"][0].as_str().unwrap(), (self.position)(metadata));
        let text = message["detail"]["data"]["message"].as_str().unwrap().to_owned();
        let stored = self.texts.entry(aggregate.to_owned()).or_default();
        if position > stored.0 {
            *stored = (position, text);
        }
    }

    /// The texts after these messages, by to-do.
    fn texts_after<'a>(mut self, messages: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, String> {
        messages.into_iter().for_each(|message| self.receive(message));
        self.texts.into_iter().map(|(aggregate, (_, text))| (aggregate, text)).collect()
    }
}

fn number(metadata: &Value, name: &str) -> u64 {
    metadata[name].as_u64().unwrap()
}

fn by_epoch(metadata: &Value) -> (u64, u64) {
    (number(metadata, "epoch"), number(metadata, "messageSeq"))
}

fn by_number_only(metadata: &Value) -> (u64, u64) {
    (0, number(metadata, "messageSeq"))
}

/// To-do, epoch and `messageSeq` of each message, sorted.
fn positions(messages: &[Value]) -> Vec<(&str, u64, u64)> {
    let position = |message: &'_ Value| by_epoch(&message["detail"]["metadata"]);
    let positions = messages.iter().map(|message| (message["resources"][0].as_str().unwrap(), position(message)));
    let mut sorted: Vec<_> =
        positions.map(|(aggregate, (epoch, message_seq))| (aggregate, epoch, message_seq)).collect();
    sorted.sort_unstable();
    sorted
}

async fn update(daybook: &Daybook, id: &str, message: &str) -> Value {
    daybook.post(&format!("/todo/{id}"), &json!({"title": "t", "message": message})).await
}

/// The template with `MappingsEnabled=false`.
fn template_without_mappings(folder: &Path) -> std::path::PathBuf {
    let text = std::fs::read_to_string(template()).unwrap();
    let (before, parameter) = text.split_once("\n  MappingsEnabled:\n").unwrap();
    let parameter = parameter.replacen("Default: \"true\"", "Default: \"false\"", 1);
    let path = folder.join("template.yaml");
    std::fs::write(&path, format!("{before}\n  MappingsEnabled:\n{parameter}")).unwrap();
    path
}

fn assert_clean(daybook: &Daybook, aggregates: usize) {
    let verified = daybook.operate(&["verify", "--scan"]);
    assert!(verified.starts_with(&format!("verified {aggregates} aggregates: ")), "{verified}");
    assert!(verified.contains("; nothing is wrong"), "{verified}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_with_a_raised_epoch_confuses_no_consumer_that_orders_by_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let (data, restored) = (folder.path().join("daybook.db"), folder.path().join("restored.db"));

    // Before the restore point: four messages, of which the last is not sent yet.
    let daybook = Daybook::with_data(&data);
    daybook.create_todo("1", "created").await;
    update(&daybook, "1", "updated").await;
    daybook.create_todo("2", "created").await;
    daybook.list("/_dev/bus", 3).await;
    daybook.set_faults(&json!({"putEvents": [{"http": 500, "forever": true}]})).await;
    update(&daybook, "2", "not sent yet").await;
    assert_eq!(daybook.end("INT").0.code(), Some(0));
    std::fs::copy(&data, &restored).unwrap();
    let restore_point = jiff::Timestamp::now().to_string();

    // After it: events that will be lost, although their messages are sent.
    let daybook = Daybook::with_data(&data);
    daybook.list("/_dev/bus", 4).await;
    let lost = update(&daybook, "1", "lost").await;
    update(&daybook, "1", "lost too").await;
    daybook.create_todo("3", "lost").await;
    let feed = daybook.get("/events?type=TodoUpdated").await;
    let cursor = feed["cursor"].as_str().unwrap().to_owned();
    let mut sent = daybook.list("/_dev/bus", 7).await;
    // The comparison of the step "Find the lost events".
    let listed = daybook.operate(&["feed", "--from", &restore_point]);
    assert_eq!(listed.lines().filter(|line| line.contains("todo/")).count(), 3, "{listed}");
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    // The restored table, with the next epoch and disabled mappings.
    let without_mappings = template_without_mappings(folder.path());
    let daybook = Daybook::start_in_epoch(Some(&restored), &without_mappings, Some("2"));
    let mappings = daybook.get("/_dev/mappings").await;
    assert!(mappings.as_array().unwrap().iter().all(|mapping| mapping["enabled"] == false), "{mappings}");
    assert_clean(&daybook, 2);
    assert_eq!(daybook.get("/todo/1").await["state"]["message"], "updated");

    // Republish sends the messages from before the restore point, as they were written.
    let republished = daybook.operate(&["republish", "--from", "1h", "--to", &restore_point, "--yes"]);
    assert!(republished.contains("4 messages sent"), "{republished}");
    let bus = daybook.list("/_dev/bus", 7).await;
    assert_eq!(positions(&bus[3..]), [("todo/1", 1, 1), ("todo/1", 1, 2), ("todo/2", 1, 1), ("todo/2", 1, 2)]);
    let ids = |messages: &[Value]| -> HashSet<String> {
        messages.iter().map(|message| message["detail"]["metadata"]["messageId"].to_string()).collect()
    };
    assert_eq!(ids(&bus[3..]), ids(&sent[..4]));

    // New events have the numbers of lost ones. Nothing is sent while the mappings are disabled.
    let again = update(&daybook, "1", "after the restore").await;
    assert_eq!((&again["version"], &again["messages"][0]["messageSeq"]), (&json!(3), &json!(3)));
    assert_eq!(lost["version"], again["version"]);
    assert_ne!(lost["events"][0]["eventId"], again["events"][0]["eventId"]);
    daybook.create_todo("3", "after the restore").await;
    assert_eq!(daybook.list("/_dev/bus", 7).await, bus);
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    // Enabled mappings send the new messages, and here, where the copy contains the stream, the unsent one again.
    let daybook = Daybook::start_in_epoch(Some(&restored), &template(), Some("2"));
    update(&daybook, "3", "last").await;
    let bus = daybook.list("/_dev/bus", 11).await;
    assert_eq!(positions(&bus[7..]), [("todo/1", 2, 3), ("todo/2", 1, 2), ("todo/3", 2, 1), ("todo/3", 2, 2)]);
    assert_clean(&daybook, 3);

    // The reader of a feed continues with its cursor from the lost part.
    let after = daybook.get(&format!("/events?type=TodoUpdated&after={cursor}")).await;
    let texts: Vec<_> = after["events"].as_array().unwrap().iter().map(|event| &event["data"]["message"]).collect();
    assert_eq!(texts, ["after the restore", "last"]);

    // A consumer that received everything, in any order, has the restored states.
    sent.extend_from_slice(&bus[3..]);
    let expected = [("todo/1", "after the restore"), ("todo/2", "not sent yet"), ("todo/3", "last")];
    let expected: BTreeMap<_, _> = expected.map(|(id, text)| (id.to_owned(), text.to_owned())).into();
    assert_eq!(Consumer::ordering_by(by_epoch).texts_after(&sent), expected);
    assert_eq!(Consumer::ordering_by(by_epoch).texts_after(sent.iter().rev()), expected);
    // Without the epoch, it keeps a lost state.
    assert_eq!(Consumer::ordering_by(by_number_only).texts_after(&sent)["todo/1"], "lost too");
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    // A stack with the epoch from before the restore is found by verify.
    let daybook = Daybook::start(Some(&restored), &template());
    let verified = daybook.operate(&["verify"]);
    assert!(verified.contains("detail/metadata/epoch is 2, expected at most 1, the setting EPOCH"), "{verified}");
}
