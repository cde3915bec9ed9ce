//! `daybook load`: rate and latencies, commands, units and costs, authentication, and the end by Ctrl-C.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregates::Order;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use clap::Parser;
use daybook_cli::commands::DaybookArgs;
use daybook_cli::operator::Exit;
use daybook_local_aws::messaging::Server;
use daybook_local_stack::{DevArgs, LocalStack};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::binary::DEV;
use crate::support::{Printed, SAMPLES, Setup};

#[derive(Parser)]
struct DevLine {
    #[command(flatten)]
    dev: DevArgs,
}

pub(crate) async fn local_stack() -> LocalStack {
    LocalStack::start(DevLine::parse_from(DEV).dev, SAMPLES).await.unwrap()
}

/// Runs `daybook load` with these settings, on a stack without a local table.
async fn load(setup: &Setup, line: &str) -> Printed {
    setup.daybook(&format!("load {line}")).await
}

/// The report, which is the only line of the output.
fn report(printed: &Printed) -> Value {
    assert_eq!(printed.lines.len(), 1, "{printed:?}");
    serde_json::from_str::<Value>(&printed.lines[0]).unwrap()["summary"].clone()
}

/// The number of requests that were sent: on a slow machine, fewer than planned.
fn sent(report: &Value) -> u64 {
    let requests = report["requests"].as_u64().unwrap();
    assert!(requests > 0, "{report}");
    requests
}

/// An API that responds with `respond`, on all addresses: 0.0.0.0 is not a loopback address, so the API counts as deployed.
async fn api<R: IntoResponse>(respond: impl Fn(HeaderMap) -> R + Clone + Send + Sync + 'static) -> (Server, String) {
    let router = Router::new().fallback(async move |request: Request| respond(request.headers().clone()));
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (Server::serve(listener, router).unwrap(), url)
}

#[tokio::test(flavor = "multi_thread")]
async fn load_of_a_local_stack_reports_latencies_responses_counted_units_and_costs() {
    let (stack, setup) = (local_stack().await, Setup::new().await);
    let options = "--type todo --rate 50 --duration 1s --reads 20 --json";
    let printed = load(&setup, &format!("--url {} {options}", stack.api_url())).await;
    let report = report(&printed);
    assert_eq!(printed.ended.as_ref().ok(), Some(&Exit::Clean), "{report}");
    let requests = sent(&report);
    assert_eq!(requests + report["notSent"].as_u64().unwrap(), 50, "{report}");
    assert_eq!((&report["failures"], &report["responses"]["201"]), (&json!(0), &report["aggregates"]));
    let commands = report["latencies"]["commands"]["requests"].as_u64().unwrap();
    let reads = report["latencies"]["reads"]["requests"].as_u64().unwrap();
    // The last read becomes a command if no aggregate exists at that time.
    assert!(commands + reads == requests && reads <= 10, "{report}");
    // An aggregate gets all its commands before the next is created, unless responses are slow.
    assert!(report["aggregates"].as_u64().unwrap() <= commands, "{report}");
    // Each command of a to-do has one event and one message.
    let used = &report["used"];
    assert_eq!((&used["counted"], &used["messages"]), (&json!(true), &json!(commands as f64)));
    assert_eq!(used["writeUnits"], 7.0 * commands as f64);
    assert!(used["readUnits"].as_f64().unwrap() > 0.0 && report["totalUsd"].as_f64().unwrap() > 0.0, "{report}");
    // The ids have the prefix, and the aggregates stay.
    let prefix = report["idPrefix"].as_str().unwrap();
    assert!(prefix.starts_with("load-"), "{prefix}");
    let listed =
        reqwest::get(format!("{}/todo?limit=100", stack.api_url())).await.unwrap().json::<Value>().await.unwrap();
    let ids: Vec<_> = listed["aggregates"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(report["aggregates"], ids.len());
    assert!(ids.iter().all(|id| id.starts_with(prefix)), "{ids:?}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_aggregate_gets_the_examples_of_its_type_in_an_order_that_its_rules_accept() {
    let (stack, setup) = (local_stack().await, Setup::of::<Order>().await);
    let options = "--rate 15 --duration 3s --reads 0 --concurrency 1 --json --type account --type order --type todo";
    let report = report(&load(&setup, &format!("--url {} {options}", stack.api_url())).await);
    assert_eq!(report["failures"], 0, "{report}");
    let prefix = report["idPrefix"].as_str().unwrap();
    for (aggregate, expected) in [
        (format!("account/{prefix}-0"), &["AccountOpened", "OwnerUpdated", "TransactionAccepted"][..]),
        (
            format!("order/{prefix}-1"),
            &["OrderPlaced", "PaymentProcessed", "OrderShipped", "OrderDelivered", "OrderRefunded"],
        ),
        // Without the example that deletes it.
        (format!("todo/{prefix}-2"), &["TodoCreated", "TodoUpdated"]),
    ] {
        let url = format!("{}/{aggregate}/events", stack.api_url());
        let page = reqwest::get(url).await.unwrap().json::<Value>().await.unwrap();
        let events: Vec<_> =
            page["events"].as_array().unwrap().iter().map(|event| event["eventType"].as_str().unwrap()).collect();
        assert_eq!(events, expected, "{aggregate}: {report}");
    }
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn estimated_costs_use_the_prices_and_quantities_of_the_deployment_document() {
    let setup = Setup::new().await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deploy.md");
    let document = std::fs::read_to_string(path).unwrap();
    let cell = |begins: &str, column: usize| -> f64 {
        let row = document.lines().find(|line| line.starts_with(&format!("| {begins}"))).unwrap();
        row.split('|').nth(column).unwrap().split_whitespace().next().unwrap().parse().unwrap()
    };
    let (price, of_a_million) = (|row| cell(row, 3), |row| cell(row, 4));
    let costs = async |reads: u32| {
        let million = "--url http://api.example.com --header 'authorization: x' --rate 1000 --duration 1000s --json";
        report(&load(&setup, &format!("{million} --reads {reads}")).await)["costsUsd"].clone()
    };
    let expected = [
        ("API Gateway", of_a_million("API Gateway")),
        ("Lambda", of_a_million("Lambda, command handler") + of_a_million("Lambda, relay") + 0.01),
        ("DynamoDB writes", 7.0 * price("DynamoDB, writes")),
        ("DynamoDB reads", of_a_million("DynamoDB, reads")),
        ("EventBridge", of_a_million("EventBridge, messages")),
        ("logs and archive", of_a_million("Logs") + of_a_million("EventBridge, archive")),
    ];
    let of_commands = costs(0).await;
    assert_eq!(of_commands.as_object().unwrap().len(), expected.len(), "{of_commands}");
    for (name, expected) in expected {
        assert!((of_commands[name].as_f64().unwrap() - expected).abs() < 1e-6, "{name}: {of_commands}");
    }
    let of_reads = costs(100).await;
    let expected = 20.0 * price("DynamoDB, reads");
    assert!((of_reads["DynamoDB reads"].as_f64().unwrap() - expected).abs() < 1e-6, "{of_reads}");
    let prose = document.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in ["bytes of data take 7 units", "20 units with 50 events since the snapshot"] {
        assert!(prose.contains(text), "{text:?} is not in the document");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn latency_is_measured_from_the_planned_time_of_a_request() {
    let setup = Setup::new().await;
    let requests = Arc::new(AtomicUsize::new(0));
    let (_server, url) = api(move |_| {
        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(600));
        }
        (StatusCode::OK, "{}".to_owned())
    })
    .await;
    // Only the first request is slow, but the requests that are planned meanwhile have to wait for it.
    let options = "--yes --header 'authorization: x' --rate 100 --duration 1s --concurrency 1 --reads 0 --json";
    let report = report(&load(&setup, &format!("--url {url} {options}")).await);
    let all = &report["latencies"]["all"];
    assert!(all["p50Ms"].as_f64().unwrap() > 50.0, "{report}");
    assert!(all["maxMs"].as_f64().unwrap() >= 600.0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_slow_api_leaves_unsent_and_errors_are_findings() {
    let setup = Setup::new().await;
    let (_server, url) = api(|_| {
        std::thread::sleep(Duration::from_millis(100));
        let problem = json!({"type": "urn:daybook:problem:unavailable", "status": 503});
        (StatusCode::SERVICE_UNAVAILABLE, problem.to_string())
    })
    .await;
    let options = "--yes --header 'authorization: x' --rate 100 --duration 1s --concurrency 1";
    let lines = load(&setup, &format!("--url {url} {options}")).await.expect(Exit::Findings);
    let has = |text: &str| assert!(lines.iter().any(|line| line.contains(text)), "{text}: {lines:#?}");
    has("responses 503 unavailable");
    has("planned requests were not sent before the end");
    has("estimated from the documented units per request");
}

#[tokio::test(flavor = "multi_thread")]
async fn deployed_api_gets_signed_requests_only_with_yes() {
    let mut setup = Setup::new().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let (_server, url) = api(move |headers| {
        record.lock().unwrap().push(headers);
        (StatusCode::OK, "{}".to_owned())
    })
    .await;
    let options = format!("--url {url} --rate 10 --duration 1s");
    let lines = load(&setup, &format!("{options} --header 'authorization: Bearer t'")).await.expect(Exit::Clean);
    assert!(lines[0].starts_with("would send 10 requests") && lines[0].contains("--yes"), "{lines:?}");
    assert!(seen.lock().unwrap().is_empty());

    load(&setup, &format!("{options} --yes --header 'authorization: Bearer t'")).await.expect(Exit::Clean);
    let taken = || std::mem::take(&mut *seen.lock().unwrap());
    assert!(taken().iter().all(|headers| headers["authorization"] == "Bearer t"));

    // The endpoint variable of the API makes the operator's credentials local ones.
    setup.settings.push(("AWS_ENDPOINT_URL_EXECUTE_API", url.clone()));
    load(&setup, &format!("{options} --yes")).await.expect(Exit::Clean);
    let signed = taken();
    assert_eq!(signed.len(), 10);
    for headers in signed {
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=local/"), "{authorization}");
        assert!(authorization.contains("/us-east-1/execute-api/aws4_request, SignedHeaders="), "{authorization}");
        assert!(headers.contains_key("x-amz-date"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn load_of_an_api_that_does_not_respond_ends_with_an_error() {
    let setup = Setup::new().await;
    // While the socket holds the port, no server listens there.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let printed = load(&setup, &format!("--url http://{}", held.local_addr().unwrap())).await;
    let error = printed.ended.unwrap_err();
    assert!(error.exit_code() == 3 && error.to_string().ends_with("; check --url"), "{error}");
    let wrong = load(&setup, "--url localhost").await.ended.unwrap_err();
    assert!(wrong.exit_code() == 2 && wrong.to_string().contains("expected http://HOST:PORT"), "{wrong}");
    let unknown = load(&setup, "--type nothing").await.ended.unwrap_err();
    assert!(
        unknown.exit_code() == 2 && unknown.to_string().contains("is not registered; registered types: "),
        "{unknown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_load_reports_what_was_sent_and_ends_with_status_130() {
    let stack = local_stack().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(["load", "--url", stack.api_url(), "--rate", "50", "--duration", "1h"]).env_clear();
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let usage = format!("{}/_dev/usage", stack.api_url());
    while reqwest::get(&usage).await.unwrap().json::<Value>().await.unwrap()["apiRequests"] == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", running.id())]).status().unwrap();
    assert!(sent.success());
    let output = tokio::task::spawn_blocking(|| running.wait_with_output()).await.unwrap().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stdout}");
    let last = stdout.lines().last().unwrap();
    assert!(last.ends_with("0 failures; stopped early by Ctrl-C") && !last.starts_with("0 requests"), "{stdout}");
    stack.stop().await;
}

#[test]
fn wrong_options_of_load_are_usage_errors() {
    for words in [["load", "--reads", "120"], ["load", "--duration", "5"], ["load", "--header", "x"]] {
        assert!(DaybookArgs::try_parse_from(["daybook"].into_iter().chain(words)).is_err(), "{words:?}");
    }
}
