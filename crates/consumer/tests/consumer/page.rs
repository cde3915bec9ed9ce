//! docs/consumers.md: its Rust is that of the example. docs/consumer.py follows its rules without this crate.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use daybook_consumer::BusMessage;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::journal::{event, noted};

const PAGE: &str = include_str!("../../../../docs/consumers.md");

/// Reads the cases, each with the messages in their order of arrival, and prints the places that were applied.
const DRIVER: &str = r#"

def run(case):
    db = connect(":memory:")
    db.execute("CREATE TABLE applied (aggregate TEXT, epoch INTEGER, seq INTEGER)")
    failures = set(case["fails"])

    def handle(db, event):
        metadata = event["detail"]["metadata"]
        db.execute("INSERT INTO applied VALUES (?, ?, ?)", (metadata["aggregateId"], metadata["epoch"], metadata["messageSeq"]))
        if metadata["messageId"] in failures:
            failures.remove(metadata["messageId"])
            raise RuntimeError("the first attempt fails")

    for event in case["events"]:
        try:
            receive(db, event, handle)
        except RuntimeError:
            pass
    applied = {}
    for aggregate, epoch, seq in db.execute("SELECT * FROM applied ORDER BY rowid"):
        applied.setdefault(aggregate, []).append([epoch, seq])
    return {"applied": applied, "stored": db.execute("SELECT COUNT(*) FROM stored").fetchone()[0]}

import sys
print(json.dumps([run(case) for case in json.load(sys.stdin)]))
"#;

/// The code blocks of the page in a language.
fn blocks(language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let blocks = PAGE.split(&begin).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// A text without indentation.
fn flat(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn rust_of_the_page_is_that_of_the_example() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../app/order-mails/src/lib.rs");
    let source = flat(&std::fs::read_to_string(path).unwrap());
    let blocks = blocks("rust");
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(source.contains(&flat(&block)), "{block}");
    }
}

#[test]
fn each_error_in_the_log_is_on_the_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut lines = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let code = std::fs::read_to_string(path).unwrap();
        // The message is the last argument of the macro.
        let calls = code.split("tracing::error!(").skip(1).map(|rest| rest.split(");").next().unwrap());
        lines.extend(calls.map(|call| call.rsplit('"').nth(1).unwrap().to_owned()));
    }
    assert_eq!(lines.len(), 6, "{lines:?}");
    for line in lines {
        let known = PAGE.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
        assert!(known.clone().any(|(known, _)| line.starts_with(known)), "no row for {line:?}");
    }
}

/// Three aggregates; the table of the second is restored to the time after message 2. The last message arrives once more at
/// the end, so that the message that failed is attempted again.
fn case(rng: &mut Rng) -> Value {
    let mut messages: Vec<BusMessage> = Vec::new();
    for aggregate in ["note/0", "note/2"] {
        messages.extend((1..=6).map(|number| noted(aggregate, number)));
    }
    messages.extend((1..=2).map(|number| noted("note/1", number)));
    messages.extend([(3, Some(1)), (4, None)].map(|(number, previous)| noted("note/1", number).in_epoch(2, previous)));
    let fails = [messages[rng.usize(..messages.len())].metadata.message_id.clone()];
    let mut events: Vec<_> = messages.iter().cycle().take(3 * messages.len()).map(event).collect();
    rng.shuffle(&mut events);
    let last = ["note/0", "note/1", "note/2"].map(|aggregate| event(&noted(aggregate, 1)));
    json!({"events": events.into_iter().chain(last).collect::<Vec<_>>(), "fails": fails})
}

#[test]
fn python_applies_shuffled_messages_once_and_in_order() {
    let code = include_str!("../../../../docs/consumer.py");
    let mut rng = Rng::with_seed(1);
    let mut cases: Vec<_> = (0..200).map(|_| case(&mut rng)).collect();
    // One message is missing.
    let without = |event: &Value| event["detail"]["metadata"]["messageId"] != "note-0-1-4";
    let events: Vec<_> =
        cases[0]["events"].as_array().unwrap().iter().filter(|event| without(event)).cloned().collect();
    cases.push(json!({"events": events, "fails": []}));

    let mut python = Command::new("python3");
    let python = python.args(["-c", &format!("{code}{DRIVER}")]);
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(json!(cases).to_string().as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let mut results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let gap = results.pop().unwrap();
    let six = json!([[1, 1], [1, 2], [1, 3], [1, 4], [1, 5], [1, 6]]);
    for (seed, result) in results.iter().enumerate() {
        let applied = &result["applied"];
        assert_eq!([&applied["0"], &applied["2"]], [&six, &six], "{seed}");
        assert_eq!((&applied["1"], &result["stored"]), (&json!([[1, 1], [1, 2], [2, 3], [2, 4]]), &json!(0)), "{seed}");
    }
    assert_eq!((&gap["applied"]["0"], &gap["stored"]), (&json!([[1, 1], [1, 2], [1, 3]]), &json!(2)));
    assert_eq!(gap["applied"]["2"], six);
}
