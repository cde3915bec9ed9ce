//! The README keeps its word: its commands answer as printed, and its aggregate is one.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{Suite, workspace};

use crate::counter::Counter;
use crate::instance::{Instance, settings};

fn readme() -> String {
    std::fs::read_to_string(workspace().join("README.md")).unwrap()
}

/// The `curl` commands of the README, each with what it prints.
fn commands() -> Vec<(Vec<String>, String)> {
    let readme = readme();
    let blocks = readme.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let mut commands = Vec::new();
    for shown in blocks.flat_map(|block| block.split("$ ").skip(1)).filter(|shown| shown.starts_with("curl")) {
        // What is printed is the last line, the command whatever is before it.
        let (command, printed) = shown.trim_end().rsplit_once('\n').unwrap();
        commands.push((shlex::split(command).unwrap(), printed.to_owned()));
    }
    commands
}

/// Runs a command of the README as curl would.
async fn curl(suite: &Suite, words: &[String]) -> Value {
    let (mut headers, mut body, mut path) = (Vec::new(), None, None);
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-s" => {}
            "--json" => {
                body = words.next();
                headers.push(("content-type", "application/json"));
            }
            "-H" => headers.push(words.next().unwrap().split_once(": ").unwrap()),
            url => path = url.strip_prefix("localhost:3000"),
        }
    }
    let method = if body.is_some() { Method::POST } else { Method::GET };
    suite.send(method, path.unwrap(), &headers, body.map(String::as_str)).await.body
}

/// Whether two answers are alike but for what differs every time: ids and times.
fn alike(shown: &Value, answered: &Value) -> bool {
    let varies = |text: &str| {
        ulid::Ulid::from_string(text).is_ok() || (text.len() == 24 && text.starts_with("20") && text.ends_with('Z'))
    };
    match (shown, answered) {
        (Value::String(shown), Value::String(answered)) => shown == answered || (varies(shown) && varies(answered)),
        (Value::Array(shown), Value::Array(answered)) => {
            shown.len() == answered.len() && shown.iter().zip(answered).all(|(shown, answered)| alike(shown, answered))
        }
        (Value::Object(shown), Value::Object(answered)) => {
            shown.len() == answered.len()
                && shown.iter().all(|(name, shown)| answered.get(name).is_some_and(|answered| alike(shown, answered)))
        }
        (shown, answered) => shown == answered,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_commands_answer_as_printed() {
    let suite = Suite::start().await;
    let commands = commands();
    assert!(commands.len() >= 10, "{commands:?}");
    for (words, printed) in commands {
        let shown: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        // A message takes a moment to the bus.
        let mut answered = curl(&suite, &words).await;
        for _ in 0..200 {
            if alike(&shown, &answered) || !words.iter().any(|word| word.contains("/_dev/")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            answered = curl(&suite, &words).await;
        }
        assert!(alike(&shown, &answered), "{words:?} answers\n{answered}\nand not\n{shown}");
    }
}

#[test]
fn its_aggregate_is_the_one_that_is_tested() {
    let readme = readme();
    let block = readme.split("   ```rust\n").nth(1).unwrap().split("   ```\n").next().unwrap();
    let shown: String = block.lines().map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line))).collect();
    let tested = std::fs::read_to_string(workspace().join("tests/suite/counter.rs")).unwrap();
    assert_eq!(shown, tested);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_aggregate_is_served_once_it_is_registered() {
    let engine = local_dynamodb::LocalDynamoDb::in_memory().await.unwrap();
    let registry = aggregates::registry().unwrap().with::<Counter>().unwrap();
    let instance = Instance::with(engine, registry, settings()).await;
    let post = async |path, body| instance.send(axum::http::Method::POST, path, Some(body)).await.status();
    assert_eq!(post("/counter", json!({"id": "1", "from": 1})).await, 201);
    assert_eq!(post("/counter/1/commands", json!({"command": "Tick"})).await, 200);
    assert_eq!(post("/counter/1/commands", json!({"command": "Tick"})).await, 422);
}
