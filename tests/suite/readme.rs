//! The commands of the README and of the API page return the printed output, and the README's aggregate works.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::document::Document;
use suite_tests::{Answer, Suite, workspace};

use crate::counter::Counter;
use crate::instance::{Instance, settings};

fn readme() -> String {
    std::fs::read_to_string(workspace().join("README.md")).unwrap()
}

/// The output of a `curl` command: with `-i` the status line and the headers, then the body.
#[derive(Debug)]
struct Printed {
    head: Vec<String>,
    body: Value,
}

/// The `curl` commands of a page, each with its printed output.
fn commands(page: &str) -> Vec<(Vec<String>, Printed)> {
    let page = std::fs::read_to_string(workspace().join(page)).unwrap();
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let shown = blocks.flat_map(|block| block.split("$ ").skip(1)).filter(|shown| shown.starts_with("curl"));
    shown.map(command).collect()
}

fn command(shown: &str) -> (Vec<String>, Printed) {
    // The command ends with the line that closes its last quote.
    let ends = shown.match_indices('\n').map(|(end, _)| end);
    let (words, end) = ends.filter_map(|end| Some((shlex::split(&shown[..end])?, end))).next().unwrap();
    let printed = shown[end..].trim();
    let (head, body) = if words.iter().any(|word| word == "-si") {
        printed.split_once("\n\n").unwrap_or((printed, "null"))
    } else {
        ("", printed)
    };
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    (words, Printed { head: head.lines().map(str::to_owned).collect(), body })
}

/// Runs a command as curl would.
async fn curl(suite: &Suite, words: &[String]) -> Answer {
    let (mut headers, mut body, mut path, mut method) = (Vec::new(), None, None, None);
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-s" | "-si" => {}
            "-X" => method = Some(words.next().unwrap().parse().unwrap()),
            "--json" => {
                body = words.next();
                headers.push(("content-type", "application/json"));
            }
            "-H" => headers.push(words.next().unwrap().split_once(": ").unwrap()),
            url => path = url.strip_prefix("localhost:3000"),
        }
    }
    let method = method.unwrap_or(if body.is_some() { Method::POST } else { Method::GET });
    suite.send(method, path.unwrap(), &headers, body.map(String::as_str)).await
}

/// Whether a response equals the printed one.
fn is_as_printed(printed: &Printed, answer: &Answer) -> bool {
    let mut head = printed.head.iter();
    let status = head.next().is_none_or(|line| line == &format!("HTTP/1.1 {}", answer.status));
    let mut headers = head.map(|line| line.split_once(": ").unwrap());
    status
        && headers.all(|(name, shown)| {
            let varies = ["date", "content-length", "link"].contains(&name);
            varies || alike(&shown.into(), &answer.header(name).into())
        })
        && alike(&printed.body, &answer.body)
}

/// Whether two responses differ only in ids and times.
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
async fn commands_of_the_readme_return_the_printed_output() {
    answer_as_printed("README.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_api_page_return_the_printed_output() {
    answer_as_printed("docs/api.md").await;
}

async fn answer_as_printed(page: &str) {
    let suite = Suite::start().await;
    let commands = commands(page);
    assert!(commands.len() >= 10, "{commands:?}");
    for (words, printed) in commands {
        // A message arrives on the bus after a delay.
        let mut answer = curl(&suite, &words).await;
        for _ in 0..200 {
            if is_as_printed(&printed, &answer) || !words.iter().any(|word| word.contains("/_dev/")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = curl(&suite, &words).await;
        }
        assert!(is_as_printed(&printed, &answer), "{words:?} answers\n{answer:?}\nand not\n{printed:?}");
    }
}

#[test]
fn api_page_documents_each_problem() {
    let page = std::fs::read_to_string(workspace().join("docs/api.md")).unwrap();
    let schemas = Document::get().json()["components"]["schemas"].as_object().unwrap();
    let problems = schemas.values().filter_map(|schema| {
        let kind = schema["properties"]["type"]["const"].as_str()?.strip_prefix("urn:daybook:problem:")?;
        Some((kind, &schema["properties"]["status"]["const"]))
    });
    let mut seen = 0;
    for (kind, status) in problems {
        seen += 1;
        let row = page.lines().find(|line| line.contains(&format!("`{kind}`")) && line.starts_with('|'));
        assert!(row.is_some_and(|row| row.starts_with(&format!("| {status} |"))), "{kind} {status}: {row:?}");
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn aggregate_of_the_readme_equals_the_tested_one() {
    let readme = readme();
    let block = readme.split("   ```rust\n").nth(1).unwrap().split("   ```\n").next().unwrap();
    let shown: String = block.lines().map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line))).collect();
    let tested = std::fs::read_to_string(workspace().join("tests/suite/counter.rs")).unwrap();
    assert_eq!(shown, tested);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregate_of_the_readme_is_served_after_its_registration() {
    let engine = daybook_local_aws::dynamodb::LocalDynamoDb::in_memory().await.unwrap();
    let registry = daybook_decider::Registry::new().with::<Counter>().unwrap();
    let instance = Instance::with(engine, registry, settings()).await;
    let post = async |path, body| instance.post(path, body).await.status;
    assert_eq!(post("/counter", json!({"id": "1", "from": 1})).await, 201);
    assert_eq!(post("/counter/1/commands", json!({"command": "Tick"})).await, 200);
    assert_eq!(post("/counter/1/commands", json!({"command": "Tick"})).await, 422);
}
