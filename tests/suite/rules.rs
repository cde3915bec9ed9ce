//! `daybook dev --rule`: events of the bus reach queues and functions, which are served as in AWS.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, RowKey, Rows};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::server::Server;
use daybook_local_stack::{DevArgs, DevError, LocalStack};
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::{PATIENCE, Suite, workspace};
use tempfile::TempDir;
use tokio::time::Instant;

/// A program with a name and a log of its own.
struct Program {
    folder: TempDir,
    name: &'static str,
}

impl Program {
    fn new(name: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_test-function"), folder.path().join(name)).unwrap();
        Self { folder, name }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    /// What it got for to-dos of this title, in order.
    fn got(&self, title: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(self.path().with_extension("log")).unwrap_or_default();
        // The program may be writing the last line.
        let lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"]["detail"]["data"]["title"] == title).collect()
    }

    /// Waits until it got this number of events for a title.
    async fn expect(&self, title: &str, events: usize) -> Vec<Value> {
        let give_up = Instant::now() + PATIENCE;
        while self.got(title).len() < events {
            assert!(Instant::now() < give_up, "{title}: {events} were expected, there are {:?}", self.got(title));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.got(title)
    }
}

async fn start(rules: &[String]) -> Suite {
    Suite::with_rules(workspace().join("template.yaml"), rules).await
}

async fn create(suite: &Suite, title: &str) {
    suite.post("/todo", &json!({"title": title, "message": ""})).await.expect(201);
}

async fn set_faults(suite: &Suite, faults: Value) {
    suite
        .send(Method::PUT, "/_dev/faults", &[("content-type", "application/json")], Some(&faults.to_string()))
        .await
        .expect(204);
}

/// Calls SQS at the stack's endpoint.
async fn sqs(suite: &Suite, operation: &str, request: Value) -> Value {
    let call = reqwest::Client::new().post(suite.stack.bus_url());
    let call = call.header("x-amz-target", format!("AmazonSQS.{operation}")).body(request.to_string());
    let response = call.send().await.unwrap();
    assert_eq!(response.status(), 200, "{operation}");
    response.json().await.unwrap()
}

/// The events in the messages that a queue returns, after it was waited for one.
async fn receive(suite: &Suite, queue: &str) -> Vec<Value> {
    let url = format!("http://localhost/000000000000/{queue}");
    let request = json!({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 10});
    let received = sqs(suite, "ReceiveMessage", request).await;
    let messages = received["Messages"].as_array().cloned().unwrap_or_default();
    messages.iter().map(|message| serde_json::from_str(message["Body"].as_str().unwrap()).unwrap()).collect()
}

/// Waits until the stack shows this of its first rule.
async fn expect_rule(suite: &Suite, is_expected: impl Fn(&Value) -> bool) -> Value {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let rule = suite.get("/_dev/rules").await.expect(200).body[0].take();
        if is_expected(&rule) {
            return rule;
        }
        assert!(Instant::now() < give_up, "{rule}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_matches_a_rule_is_received_from_its_queue() {
    let suite =
        start(&[r#"{"detail-type": [{"prefix": "Todo"}], "detail": {"data": {"title": ["TODO"]}}} -> queue:seen"#
            .to_owned()])
        .await;
    create(&suite, "other").await;
    create(&suite, "TODO").await;
    let events = receive(&suite, "seen").await;
    assert_eq!(events.len(), 1, "{events:?}");
    let published = &suite.stack.bus().delivered()[1];
    let detail: Value = serde_json::from_str(&published.detail).unwrap();
    assert_eq!((&events[0]["detail-type"], &events[0]["detail"]), (&json!("TodoCreated"), &detail));
    assert_eq!(events[0]["resources"], json!(published.resources));
    let rule = expect_rule(&suite, |_| true).await;
    assert_eq!((&rule["queue"], &rule["visible"], &rule["hidden"]), (&json!("seen"), &json!(0), &json!(1)));
    // It is no dead-letter message of the relay.
    assert_eq!(suite.get("/_dev/dlq").await.body, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn function_is_invoked_with_each_event_until_it_succeeds() {
    let program = Program::new("billing");
    let suite = start(&[format!("TodoCreated, TodoUpdated -> function:{}", program.path().display())]).await;
    for title in ["TODO", "fail 1", "exit 1", "hang 1"] {
        create(&suite, title).await;
    }
    let once = program.expect("TODO", 1).await;
    assert_eq!(once[0]["ofBatch"], 1);
    assert_eq!(once[0]["arn"], "arn:aws:lambda:us-east-1:000000000000:function:billing");
    assert_eq!(once[0]["sqs"], suite.stack.bus_url());
    let failed = program.expect("fail 1", 2).await;
    assert_eq!(failed[0]["event"], failed[1]["event"]);
    // A program that ended or hung is started again.
    for title in ["exit 1", "hang 1"] {
        let again = program.expect(title, 2).await;
        assert_ne!(again[0]["process"], again[1]["process"], "{title}");
    }
    let rule = expect_rule(&suite, |rule| rule["visible"] == 0 && rule["hidden"] == 0).await;
    assert_eq!(
        rule["function"],
        json!({"name": "billing", "invocations": 7, "failures": 3, "lastError": rule["function"]["lastError"]})
    );
    assert_eq!(rule["deadLetters"], 0);
    assert_eq!(program.got("TODO").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn function_finds_a_table_for_a_consumer() {
    let program = Program::new("billing");
    let rules = [
        format!("TodoCreated -> queue:work -> function:{}", program.path().display()),
        "TodoDeleted -> function:http://localhost:1/functions/mails/invocations".to_owned(),
        "TodoDeleted -> queue:seen".to_owned(),
    ];
    let suite = start(&rules).await;
    create(&suite, "TODO").await;
    let request = json!({"detail": {"data": {"title": "TODO"}}});
    suite.post("/_dev/functions/billing", &request).await.expect(200);
    assert_eq!(program.expect("TODO", 2).await[0]["table"], "consumer-billing");
    let config = aws_config_at(suite.stack.dynamodb_url());
    for table in ["consumer-billing", "consumer-mails"] {
        let consumer = ConsumerFunction::new(Counted, &config, table);
        let published = &suite.stack.bus().delivered()[0];
        let detail: Value = serde_json::from_str(&published.detail).unwrap();
        let event = json!({"detail-type": published.detail_type, "detail": detail});
        consumer.handle(event, Instant::now() + PATIENCE).await.unwrap();
        assert_eq!(consumer.table().row(&key()).await.unwrap(), Some(json!("TodoCreated")), "{table}");
    }
    // The queue without a function, and the stack's own tables.
    let tables = aws_sdk_dynamodb::Client::new(&config).list_tables().send().await.unwrap();
    let expected = ["consumer-billing", "consumer-mails", "daybook-dev", "daybook-dev-keys", "daybook-dev-views"];
    assert_eq!(tables.table_names(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn function_has_the_moved_clock() {
    let program = Program::new("billing");
    let suite = start(&[format!("TodoCreated -> function:{}", program.path().display())]).await;
    create(&suite, "before").await;
    program.expect("before", 1).await;
    let moved =
        suite.send(Method::PUT, "/_dev/clock", &[("content-type", "application/json")], Some(r#"{"forwardBy": "1d"}"#));
    moved.await.expect(200);
    create(&suite, "after").await;
    let [before, after] =
        [&program.got("before")[0], &program.expect("after", 1).await[0]].map(|line| line["now"].to_owned());
    let [before, after] = [before, after].map(|now| now.as_str().unwrap().parse::<jiff::Timestamp>().unwrap());
    let hours = after.duration_since(before).as_hours();
    assert_eq!(hours, 24, "{before} {after}");
}

fn key() -> RowKey {
    RowKey::new("last", "message")
}

/// A consumer that stores the name of the last message.
struct Counted;

impl Consumer for Counted {
    const NAME: &'static str = "counted";

    fn reads(&self, _: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
        Ok(Vec::new())
    }

    fn handle(&self, message: &BusMessage, _: &Rows<'_>) -> Result<Changes, HandleError> {
        let mut changes = Changes::none();
        changes.put(key(), &message.form().0)?;
        Ok(changes)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_a_function_fails_three_times_goes_to_the_dead_letter_queue() {
    let program = Program::new("billing");
    let suite = start(&[format!("* -> function:{}", program.path().display())]).await;
    create(&suite, "fail 9").await;
    let rule = expect_rule(&suite, |rule| rule["deadLetters"] == 1).await;
    assert_eq!(rule["deadLetterQueue"], "billing-invocations-dlq");
    assert_eq!(program.got("fail 9").len(), 3);
    assert_eq!(rule["function"]["lastError"].as_str().unwrap().matches("the event asks for it").count(), 1, "{rule}");
    let dead = receive(&suite, "billing-invocations-dlq").await;
    assert_eq!(dead[0]["detail"]["data"]["title"], "fail 9");
}

#[tokio::test(flavor = "multi_thread")]
async fn function_of_a_queue_gets_batches_and_only_the_failed_messages_again() {
    let program = Program::new("billing");
    let rule = format!("* -> queue:work -> function:{}", program.path().display());
    let suite = start(&[rule]).await;
    // While the function hangs, the messages of the next batch arrive.
    create(&suite, "hang 1").await;
    program.expect("hang 1", 1).await;
    for title in ["a", "fail 1", "b"] {
        create(&suite, title).await;
    }
    program.expect("fail 1", 2).await;
    let rule = expect_rule(&suite, |rule| rule["visible"] == 0 && rule["hidden"] == 0).await;
    for title in ["a", "b"] {
        let processed = program.got(title);
        assert_eq!((processed.len(), &processed[0]["ofBatch"]), (1, &json!(3)), "{title}");
    }
    assert_eq!(program.got("fail 1").len(), 2);
    assert_eq!(rule["function"]["failures"], 1, "only the time-out is a failure of the function: {rule}");
    assert_eq!(rule["function"]["lastError"], "it reported 1 messages in batchItemFailures");

    // A function that ends has processed nothing.
    create(&suite, "exit 1").await;
    let again = program.expect("exit 1", 2).await;
    assert_ne!(again[0]["process"], again[1]["process"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_faults_duplicate_delay_and_fail_deliveries_and_invocations() {
    let program = Program::new("billing");
    let suite = start(&[format!("* -> function:{}", program.path().display()), "* -> queue:seen".to_owned()]).await;
    set_faults(
        &suite,
        json!({
            "deliveries": [
                {"containing": "twice", "duplicate": true, "times": 1},
                {"containing": "late", "delayMs": 1500},
                {"containing": "lost", "fail": true, "times": 3},
            ],
            "invocations": [
                {"containing": "before", "times": 1},
                {"containing": "after", "function": "billing", "times": 1, "acceptThenDrop": true},
                {"containing": "after", "function": "other"},
            ],
        }),
    )
    .await;
    let begin = Instant::now();
    for title in ["late", "twice", "lost", "before", "after"] {
        create(&suite, title).await;
    }
    let twice = program.expect("twice", 2).await;
    assert_eq!(twice[0]["event"], twice[1]["event"]);
    program.expect("late", 1).await;
    assert!(begin.elapsed() >= Duration::from_millis(1500), "{:?}", begin.elapsed());
    // The function ran twice only where its first response was lost.
    program.expect("after", 2).await;
    program.expect("before", 1).await;
    // The three failed attempts are those of the first target.
    let rule = expect_rule(&suite, |rule| rule["deadLetters"] == 1 && rule["hidden"] == 0).await;
    assert_eq!(rule["function"]["failures"], 2, "{rule}");
    assert_eq!((program.got("lost").len(), program.got("before").len(), program.got("after").len()), (0, 1, 2));
    assert_eq!(receive(&suite, "billing-invocations-dlq").await[0]["detail"]["data"]["title"], "lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn function_at_a_url_gets_events_and_may_fail() {
    let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
    let received = bodies.clone();
    let invoked = post(async move |body: String| {
        let mut received = received.lock().unwrap();
        received.push(serde_json::from_str(&body).unwrap());
        match received.len() {
            1 => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
            // As an emulator of Lambda reports the error of a function.
            2 => (StatusCode::OK, json!({"errorType": "Error", "errorMessage": "no"}).to_string()),
            _ => (StatusCode::OK, "null".to_owned()),
        }
    });
    let router = Router::new().route("/2015-03-31/functions/bill/invocations", invoked);
    let server = Server::start(router).await.unwrap();
    let suite = start(&[format!("* -> function:{}/2015-03-31/functions/bill/invocations", server.url())]).await;
    create(&suite, "TODO").await;
    let rule = expect_rule(&suite, |rule| rule["function"]["invocations"] == 3 && rule["hidden"] == 0).await;
    assert_eq!((&rule["function"]["name"], &rule["function"]["failures"]), (&json!("bill"), &json!(2)));
    let bodies = bodies.lock().unwrap().clone();
    assert!(bodies.iter().all(|body| body["detail-type"] == "TodoCreated"), "{bodies:?}");
    assert_eq!(bodies.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_cannot_be_started_is_reported() {
    let suite = start(&["* -> function:/nowhere/billing".to_owned()]).await;
    create(&suite, "TODO").await;
    let rule = expect_rule(&suite, |rule| rule["function"]["failures"] == 1).await;
    let error = rule["function"]["lastError"].as_str().unwrap();
    assert!(error.starts_with("cannot start /nowhere/billing: No such file"), "{error}");
}

#[tokio::test]
async fn two_functions_of_one_queue_are_an_error() {
    let rules = ["A -> queue:q -> function:a", "B -> queue:q"].map(|rule| rule.parse().unwrap());
    let args = DevArgs {
        port: 0,
        dynamodb_port: 0,
        bus_port: 0,
        host: std::net::Ipv4Addr::LOCALHOST.into(),
        data: None,
        template: workspace().join("template.yaml"),
        otlp: None,
        rules: rules.into(),
        function_timeout: 2,
    };
    let error = LocalStack::start(args, suite_tests::SAMPLES).await.err();
    assert!(matches!(&error, Some(DevError::TwoFunctions { queue }) if queue == "q"), "{error:?}");
}
