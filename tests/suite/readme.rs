//! The commands of the README and of the API page return the printed output, the README's aggregate works, and its figures are
//! those of other pages.

use std::collections::BTreeSet;
use std::time::Duration;

use daybook_decider::registry::RESERVED_TYPES;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::document::Document;
use suite_tests::{ApiResponse, Suite, workspace};

use crate::counter::Counter;
use crate::instance::{Instance, settings};

fn read(page: &str) -> String {
    std::fs::read_to_string(workspace().join(page)).unwrap()
}

#[test]
fn pages_require_the_rust_version_of_the_manifest() {
    let required = format!("You need Rust {} or later", env!("CARGO_PKG_RUST_VERSION"));
    for page in ["README.md", "docs/tutorial.md"] {
        assert!(read(page).contains(&required), "{page} does not contain {required:?}");
    }
}

/// A `curl` command of a page, and what it prints.
#[derive(Debug)]
struct Command {
    words: Vec<String>,
    /// The filter of `jq`, where the output of `curl` is piped into it.
    filter: Option<String>,
    /// With `-i`, the status line and the headers.
    head: Vec<String>,
    /// The JSON values.
    body: Vec<Value>,
}

fn commands(page: &str) -> Vec<Command> {
    let page = read(page);
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let shown = blocks.flat_map(|block| block.split("$ ").skip(1)).filter(|shown| shown.starts_with("curl"));
    shown.map(command).collect()
}

fn command(shown: &str) -> Command {
    // The command ends with the line that closes its last quote.
    let ends = shown.match_indices('\n').map(|(end, _)| end);
    let (mut words, end) = ends.filter_map(|end| Some((shlex::split(&shown[..end])?, end))).next().unwrap();
    let printed = shown[end..].trim();
    let (head, body) = if words.iter().any(|word| word == "-si") {
        printed.split_once("\n\n").unwrap_or((printed, "null"))
    } else {
        ("", printed)
    };
    let body = serde_json::Deserializer::from_str(body).into_iter().collect::<Result<_, _>>();
    let pipe = words.iter().position(|word| word == "|");
    let filter = pipe.and_then(|pipe| words.split_off(pipe).pop());
    let head = head.lines().map(str::to_owned).collect();
    Command { words, filter, head, body: body.unwrap_or_else(|error| panic!("{error}: {printed}")) }
}

/// The values that `jq` prints.
fn jq(filter: &str, input: &Value) -> Vec<Value> {
    use jaq_core::data::JustLut;
    use jaq_core::load::{Arena, File, Loader};
    use jaq_core::{Compiler, Ctx, Vars, unwrap_valr};
    use jaq_json::{Val, read};

    let definitions = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let functions = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let arena = Arena::default();
    let modules = Loader::new(definitions).load(&arena, File { code: filter, path: () }).unwrap();
    let filter = Compiler::default().with_funs(functions).compile(modules).unwrap();
    let context = Ctx::<JustLut<Val>>::new(&filter.lut, Vars::new([]));
    let input = read::parse_single(input.to_string().as_bytes()).unwrap();
    let outputs = filter.id.run((context, input)).map(unwrap_valr);
    outputs.map(|output| serde_json::from_str(&output.unwrap().to_string()).unwrap()).collect()
}

/// Runs a command as curl would.
async fn curl(suite: &Suite, words: &[String]) -> ApiResponse {
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

/// Whether a response equals the printed one, except in ids, times and headers that vary.
fn is_as_printed(command: &Command, response: &ApiResponse) -> bool {
    let mut head = command.head.iter();
    let status = head.next().is_none_or(|line| line == &format!("HTTP/1.1 {}", response.status));
    let mut headers = head.map(|line| line.split_once(": ").unwrap());
    let body = match &command.filter {
        Some(filter) => jq(filter, &response.body),
        None => vec![response.body.clone()],
    };
    status
        && headers.all(|(name, shown)| {
            let varies = ["date", "content-length", "link"].contains(&name);
            varies || alike(&shown.into(), &response.header(name).into())
        })
        && alike(&command.body.clone().into(), &body.into())
}

/// Whether two responses differ only in ids and times.
fn alike(shown: &Value, returned: &Value) -> bool {
    let varies = |text: &str| {
        ulid::Ulid::from_string(text).is_ok() || (text.len() == 24 && text.starts_with("20") && text.ends_with('Z'))
    };
    match (shown, returned) {
        (Value::String(shown), Value::String(returned)) => shown == returned || (varies(shown) && varies(returned)),
        (Value::Array(shown), Value::Array(returned)) => {
            shown.len() == returned.len() && shown.iter().zip(returned).all(|(shown, returned)| alike(shown, returned))
        }
        (Value::Object(shown), Value::Object(returned)) => {
            shown.len() == returned.len()
                && shown.iter().all(|(name, shown)| returned.get(name).is_some_and(|returned| alike(shown, returned)))
        }
        (shown, returned) => shown == returned,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_readme_return_the_printed_output() {
    assert_as_printed("README.md", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_api_page_return_the_printed_output() {
    assert_as_printed("docs/api.md", 25).await;
}

/// The page must have at least this number of commands.
async fn assert_as_printed(page: &str, count: usize) {
    let suite = Suite::start().await;
    let commands = commands(page);
    assert!(commands.len() >= count, "{} {commands:?}", commands.len());
    for command in commands {
        // A message needs some time to reach the bus.
        let mut response = curl(&suite, &command.words).await;
        for _ in 0..200 {
            if is_as_printed(&command, &response) || !command.words.iter().any(|word| word.contains("/_dev/")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            response = curl(&suite, &command.words).await;
        }
        assert!(is_as_printed(&command, &response), "{command:?} returns\n{response:?}");
    }
}

#[test]
fn read_models_page_lists_a_projection_of_the_samples() {
    assert!(read("app/projections/src/orders_by_status.rs").contains(&rust("docs/read-models.md")));
}

#[test]
fn aggregates_page_lists_the_authorization_of_a_sample() {
    let page = read("docs/aggregates.md");
    let block =
        page.split("```rust\n").find(|block| block.starts_with("fn authorize")).unwrap().split("```").next().unwrap();
    let indented: String = block.lines().map(|line| format!("    {line}\n")).collect();
    assert!(read("app/aggregates/src/todo.rs").contains(&indented), "app/aggregates/src/todo.rs has not\n{indented}");
}

#[test]
fn aggregates_page_names_each_part_of_the_trait() {
    let (page, code) = (read("docs/aggregates.md"), read("crates/decider/src/aggregate.rs"));
    let items = code.split("pub trait Aggregate:").nth(1).unwrap().split("\n}\n").next().unwrap();
    let parts = items.lines().filter_map(|line| match line.strip_prefix("    const ") {
        Some(constant) => constant.split(':').next(),
        None => line.strip_prefix("    ").filter(|item| item.starts_with("fn "))?.split_inclusive('(').next(),
    });
    let (named, missing): (Vec<_>, Vec<_>) = parts.partition(|part| page.contains(part));
    assert!(named.len() > 15 && missing.is_empty(), "docs/aggregates.md lacks {missing:?}, and has {named:?}");
}

#[test]
fn api_page_describes_each_operation_of_the_document() {
    let page = read("docs/api.md");
    for (path, operations) in Document::get().json()["paths"].as_object().unwrap() {
        let segments: Vec<_> = path.split('/').skip(1).collect();
        let path = match segments[..] {
            [segment] if RESERVED_TYPES.contains(&segment) => path.clone(),
            // Each view has paths of its own.
            ["views", _] => "/views/{view}".to_owned(),
            ["views", _, "{key}"] => "/views/{view}/{key}".to_owned(),
            // Each aggregate type has paths of its own.
            [_] => "/{type}".to_owned(),
            [_, "{id}", ref rest @ ..] => [&["/{type}", "{id}"], rest].concat().join("/"),
            _ => panic!("{path}"),
        };
        for method in ["get", "put", "post", "delete"] {
            let described = page.contains(&format!("`{} {path}", method.to_uppercase()));
            assert!(operations.get(method).is_none() || described, "docs/api.md has no `{method} {path}`");
        }
    }
}

#[test]
fn api_page_lists_the_problems_of_the_document_with_their_statuses() {
    let schemas = Document::get().json()["components"]["schemas"].as_object().unwrap();
    let documented: BTreeSet<_> = schemas
        .values()
        .filter_map(|schema| {
            let problem_type = schema["properties"]["type"]["const"].as_str()?.strip_prefix("urn:daybook:problem:")?;
            Some((schema["properties"]["status"]["const"].to_string(), problem_type.to_owned()))
        })
        .collect();
    assert!(documented.len() > 20, "{documented:?}");
    let page = read("docs/api.md");
    let table =
        page.split("| status | `type` |").nth(1).unwrap().lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut listed = BTreeSet::new();
    for row in table {
        let [status, types] = row.split('|').skip(1).take(2).collect::<Vec<_>>()[..] else { panic!("{row}") };
        for problem_type in types.split(',') {
            let problem_type = problem_type.trim().trim_matches('`').to_owned();
            assert!(
                listed.insert((status.trim().to_owned(), problem_type)),
                "twice in the table of docs/api.md: {row}"
            );
        }
    }
    assert_eq!(listed, documented, "on the left the table of docs/api.md, on the right the document");
}

/// The first Rust block of a page, without its indentation.
fn rust(page: &str) -> String {
    let text = read(page);
    let (before, block) = text.split_once("```rust\n").unwrap();
    let indentation = &before[before.rfind('\n').unwrap() + 1..];
    let lines = block.lines().map(|line| line.strip_prefix(indentation).unwrap_or(line));
    lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect()
}

/// The README has the aggregate, and docs/aggregates.md has its tests.
#[test]
fn aggregate_of_the_readme_equals_the_tested_one() {
    let shown = format!("{}\n{}", rust("README.md"), rust("docs/aggregates.md"));
    assert_eq!(shown, read("tests/suite/counter.rs"));
}

#[test]
fn figures_of_the_readme_are_those_of_the_pages_that_it_names() {
    let pages = ["README.md", "docs/deploy.md", "docs/performance.md", "tests/campaign/schedules.rs"];
    let [readme, deploy, performance, schedules] = pages.map(read);
    for (figure, page, source) in [
        ("11.85 US dollars", &deploy, "| **together** | | | **11.85** |"),
        ("7.50 of them", &deploy, "| 7.50 |"),
        ("about 18 a month", &deploy, "about 18 a month"),
        ("1.07 a month", &deploy, "1.07 a month"),
        ("15 ms", &deploy, "× 15 ms"),
        ("about 50 commands a second", &deploy, "about 50 commands a second"),
        ("1.39 times the instructions", &performance, "1.39 times the instructions"),
        ("makes 4 calls", &performance, "| 10,000, snapshot 50 behind | Daybook | 1 | 0 | 1.42 | 1,041 k | 4 |"),
        ("1.92 ms", &performance, "| command-handler | 1.92 ms |"),
        ("0.96 ms", &performance, "| empty-http | 0.96 ms |"),
        ("includes 120 runs", &schedules, "const SCHEDULES: u64 = 120;"),
    ] {
        assert!(readme.contains(figure), "README.md has no {figure:?}");
        assert!(page.contains(source), "{source:?}, from which README.md has {figure:?}, has changed");
    }
    assert!(readme.lines().count() <= 150, "the README is meant to be read in a minute");
    assert!(rust("README.md").lines().count() <= 40, "the README's aggregate is meant to show how little one needs");
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
