//! `daybook check-deployment`: every check passes on the local stack as far as that models AWS, and fails when a service
//! behaves differently.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use daybook_cli::operator::Exit;
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::{Faults, Server};
use daybook_local_stack::LocalStack;
use serde_json::{Value, json};

use crate::load::local_stack;
use crate::support::{Printed, daybook_in};

/// What a proxy can change.
enum Passing<'a> {
    Request(&'a mut Value),
    Response(&'a mut u16, &'a mut Value),
}

/// A change of the request and the response of an operation.
type Change = fn(&str, Passing<'_>);

/// A proxy in front of a service, which changes requests and responses by operation.
async fn changed(endpoint: &str, change: Change) -> Server {
    let (endpoint, client) = (endpoint.to_owned(), reqwest::Client::new());
    let forward = async move |mut headers: HeaderMap, body: Bytes| {
        let target = headers["x-amz-target"].to_str().unwrap().to_owned();
        let operation = target.rsplit('.').next().unwrap();
        let mut request: Value = serde_json::from_slice(&body).unwrap();
        change(operation, Passing::Request(&mut request));
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        let response = client.post(&endpoint).headers(headers).body(request.to_string()).send().await.unwrap();
        let mut status = response.status().as_u16();
        let mut body: Value = response.json().await.unwrap_or_default();
        change(operation, Passing::Response(&mut status, &mut body));
        (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
    };
    Server::start(Router::new().fallback(forward)).await.unwrap()
}

/// The environment of an operator of a local stack, with other endpoints and settings.
fn environment(stack: &LocalStack, others: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
    let bus = stack.bus_url();
    let mut environment = BTreeMap::from([
        ("AWS_ENDPOINT_URL_DYNAMODB", stack.dynamodb_url().to_owned()),
        ("AWS_ENDPOINT_URL_EVENTBRIDGE", bus.to_owned()),
        ("AWS_ENDPOINT_URL_SQS", bus.to_owned()),
        ("TABLE_NAME", stack.table_name().to_owned()),
        ("EVENT_BUS_NAME", "daybook".to_owned()),
        ("EVENT_SOURCE", "com.example.daybook".to_owned()),
        ("DLQ_URL", format!("{bus}/000000000000/daybook-dlq")),
    ]);
    environment.extend(others.iter().map(|(name, value)| (*name, (*value).to_owned())));
    environment
}

async fn check(stack: &LocalStack, others: &[(&'static str, &str)], line: &str) -> Printed {
    daybook_in(environment(stack, others).into_iter().collect(), &format!("check-deployment {line}"), usize::MAX).await
}

/// Runs one check with `--timeout 2`, and returns its line.
pub(crate) async fn line_of(stack: &LocalStack, others: &[(&'static str, &str)], name: &str, exit: Exit) -> String {
    check(stack, others, &format!("{name} --yes --timeout 2")).await.expect(exit).remove(0)
}

/// The keys of the rows that checks have left in the table.
async fn left_rows(stack: &LocalStack) -> usize {
    let client = aws_sdk_dynamodb::Client::new(&aws_config_at(stack.dynamodb_url()));
    let scanned = client.scan().table_name(stack.table_name()).send().await.unwrap();
    scanned.items().iter().filter(|item| item["pk"].as_s().unwrap().contains("#__check#")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn local_stack_passes_each_check_that_it_models_and_nothing_is_left() {
    let stack = local_stack().await;
    let lines = check(&stack, &[], "--yes --timeout 30").await.expect(Exit::Clean);
    let results: Vec<_> = lines.iter().filter_map(|line| line.split_once(':')).map(|(result, _)| result).collect();
    for expected in [
        "not-modelled alarms",
        "not-modelled alarm-recipients",
        "not-modelled event-source-mappings",
        "not-modelled table-settings",
        "as-expected cancellation-codes",
        "as-expected cancelled-item",
        "not-modelled transaction-conflict",
        "as-expected idempotency-token",
        "as-expected consumed-units",
        "as-expected index-lag",
        "as-expected unknown-bus",
        "as-expected entry-errors",
        "as-expected message-delay",
        "as-expected stream-delivery",
        "as-expected only-new-outbox-rows",
        "as-expected dead-letter-queue",
    ] {
        assert!(results.contains(&expected), "{expected}: {lines:#?}");
    }
    assert!(lines.iter().filter(|line| line.starts_with("not-seen ")).count() > 5, "{lines:#?}");
    let summary = lines.last().unwrap();
    assert_eq!(
        summary,
        "11 checks as expected, 0 different, 0 could not be checked, 5 not modelled by the local stack; 0 things could not be deleted"
    );
    assert_eq!((left_rows(&stack).await, stack.bus().queued().len()), (0, 0));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_yes_the_checks_and_their_permissions_are_listed_and_nothing_is_written() {
    let stack = local_stack().await;
    let lines = check(&stack, &[], "--json --skip alarms").await.expect(Exit::Clean);
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let checks: Vec<_> = lines.iter().filter(|line| line["check"].is_string()).collect();
    assert_eq!(checks.len(), 15);
    for check in checks {
        assert!(check["reliesOn"].is_string() && check["documented"].is_string(), "{check}");
        assert!(!check["permissions"].as_array().unwrap().is_empty(), "{check}");
    }
    assert_eq!(lines.last().unwrap()["summary"]["dryRun"], true);
    assert!(stack.bus().put_events_calls().is_empty());
    let unknown = check(&stack, &[], "nothing").await.ended.unwrap_err();
    assert!(unknown.exit_code() == 2 && unknown.to_string().contains("the checks are alarms, "), "{unknown}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_the_table_fail_when_dynamodb_behaves_differently() {
    let stack = local_stack().await;
    let cases: [(&str, Change, &str); 7] = [
        (
            "cancellation-codes",
            |_, passing| {
                if let Passing::Response(400, body) = passing {
                    body["CancellationReasons"].as_array_mut().unwrap().reverse();
                    body["CancellationReasons"][0] = json!({"Code": "ConditionalCheckFailed"});
                }
            },
            "seen ConditionalCheckFailed, ConditionalCheckFailed, None; nothing was written",
        ),
        (
            "cancelled-item",
            |_, passing| {
                if let Passing::Response(400, body) = passing {
                    body["CancellationReasons"][1].as_object_mut().unwrap().remove("Item");
                }
            },
            "seen null",
        ),
        (
            "transaction-conflict",
            |operation, passing| {
                if let (Passing::Response(status, body), "TransactWriteItems") = (passing, operation) {
                    *status = 400;
                    *body = json!({"__type": "x#TransactionCanceledException", "CancellationReasons": [
                        {"Code": "TransactionConflict"}, {"Code": "None"},
                    ]});
                }
            },
            "seen TransactionConflict, None",
        ),
        (
            "idempotency-token",
            |_, passing| {
                if let Passing::Request(request) = passing {
                    request.as_object_mut().unwrap().remove("ClientRequestToken");
                }
            },
            "seen executed 2 times; with other content: executed",
        ),
        (
            "consumed-units",
            |operation, passing| {
                if let (Passing::Response(_, body), "TransactWriteItems") = (passing, operation) {
                    body["ConsumedCapacity"][0]["Table"]["CapacityUnits"] = json!(3.0);
                }
            },
            "seen append: 3 units of the table",
        ),
        (
            "index-lag",
            |operation, passing| {
                if let (Passing::Response(_, body), "Query") = (passing, operation) {
                    body["Count"] = json!(0);
                }
            },
            "seen not visible within 2000 ms",
        ),
        (
            "only-new-outbox-rows",
            |_, passing| {
                if let Passing::Request(request) = passing
                    && let Some("CHECK#OUTBOX#000000000002#0") = request["Item"]["sk"]["S"].as_str()
                {
                    request["Item"]["sk"]["S"] = json!("OUTBOX#000000000002#0");
                }
            },
            "expected messages 1; seen messages ",
        ),
    ];
    for (name, change, seen) in cases {
        let proxy = changed(stack.dynamodb_url(), change).await;
        let line = line_of(&stack, &[("AWS_ENDPOINT_URL_DYNAMODB", proxy.url())], name, Exit::Findings).await;
        assert!(line.starts_with(&format!("differs {name}: expected ")) && line.contains(seen), "{line}");
        assert!(line.contains("; the code relies on: ") && line.contains("; documented: "), "{line}");
    }
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_of_transactions_is_as_expected_when_dynamodb_reports_it() {
    let stack = local_stack().await;
    let proxy = changed(stack.dynamodb_url(), |operation, passing| {
        if let (Passing::Response(status, body), "TransactWriteItems") = (passing, operation) {
            *status = 400;
            *body = json!({"__type": "x#TransactionCanceledException", "CancellationReasons": [
                {"Code": "None"}, {"Code": "TransactionConflict"},
            ]});
        }
    })
    .await;
    let line =
        line_of(&stack, &[("AWS_ENDPOINT_URL_DYNAMODB", proxy.url())], "transaction-conflict", Exit::Clean).await;
    assert_eq!(line, "as-expected transaction-conflict: None, TransactionConflict");
    stack.stop().await;
}

/// The backups of a table, which the local stack does not have.
fn add_backups(operation: &str, passing: Passing<'_>) {
    if let (Passing::Response(status, body), "DescribeContinuousBackups") = (passing, operation) {
        *status = 200;
        *body = json!({"ContinuousBackupsDescription": {
            "ContinuousBackupsStatus": "ENABLED",
            "PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": "ENABLED", "RecoveryPeriodInDays": 35},
        }});
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn table_with_the_settings_of_a_restored_one_is_reported() {
    let stack = local_stack().await;
    let line = async |change: Change, exit: Exit| {
        let proxy = changed(stack.dynamodb_url(), change).await;
        line_of(&stack, &[("AWS_ENDPOINT_URL_DYNAMODB", proxy.url())], "table-settings", exit).await
    };
    let complete = line(add_backups, Exit::Clean).await;
    let expected = "stream with new images yes, index of all attributes yes, TTL yes, point-in-time recovery yes";
    assert_eq!(complete, format!("as-expected table-settings: {expected}"));
    let restored: Change = |operation, passing| match (operation, passing) {
        ("DescribeTable", Passing::Response(_, body)) => {
            body["Table"].as_object_mut().unwrap().remove("StreamSpecification");
        }
        ("DescribeTimeToLive", Passing::Response(_, body)) => {
            *body = json!({"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}});
        }
        ("DescribeContinuousBackups", Passing::Response(status, body)) => {
            *status = 200;
            *body = json!({"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED"}});
        }
        _ => {}
    };
    let seen = "stream with new images no, index of all attributes yes, TTL no, point-in-time recovery no";
    let line = line(restored, Exit::Findings).await;
    assert!(line.starts_with(&format!("differs table-settings: expected {expected}; seen {seen}; ")), "{line}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_the_bus_fail_when_eventbridge_behaves_differently() {
    let stack = local_stack().await;
    let cases: [(&str, Change, &str); 4] = [
        (
            "unknown-bus",
            |operation, passing| {
                if let (Passing::Response(_, body), "PutEvents") = (passing, operation) {
                    *body = json!({"FailedEntryCount": 1, "Entries": [{"ErrorCode": "NoSuchBus"}]});
                }
            },
            "seen PutEvents: 1 failed: NoSuchBus; DescribeEventBus: ResourceNotFoundException",
        ),
        (
            "unknown-bus",
            |operation, passing| {
                if let (Passing::Response(status, _), "DescribeEventBus") = (passing, operation) {
                    *status = 200;
                }
            },
            "DescribeEventBus: found",
        ),
        (
            "entry-errors",
            |operation, passing| {
                if let (Passing::Response(_, body), "PutEvents") = (passing, operation) {
                    body["Entries"].as_array_mut().unwrap().swap(0, 1);
                }
            },
            "seen 1 failed: MalformedDetail, accepted, accepted",
        ),
        (
            "stream-delivery",
            |operation, passing| {
                if let (Passing::Response(_, body), "ReceiveMessage") = (passing, operation) {
                    for message in body["Messages"].as_array_mut().into_iter().flatten() {
                        let text = message["Body"].as_str().unwrap().replace("9007199254740991", "9007199254740992");
                        message["Body"] = text.into();
                    }
                }
            },
            "\"amount\":9007199254740992",
        ),
    ];
    for (name, change, seen) in cases {
        let proxy = changed(stack.bus_url(), change).await;
        let endpoints = [("AWS_ENDPOINT_URL_EVENTBRIDGE", proxy.url()), ("AWS_ENDPOINT_URL_SQS", proxy.url())];
        let line = line_of(&stack, &endpoints, name, Exit::Findings).await;
        assert!(line.starts_with(&format!("differs {name}: expected ")) && line.contains(seen), "{line}");
    }
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_of_the_relay_fail_when_messages_do_not_arrive() {
    let stack = local_stack().await;
    let faults = |faults: Value| stack.bus().set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    faults(json!({"entries": [{"containing": "DeploymentChecked", "code": "InvalidArgument"}]}));
    let line = line_of(&stack, &[], "stream-delivery", Exit::Findings).await;
    assert!(line.contains("expected a message within 2s; seen no message"), "{line}");
    stack.stop().await;

    // Another relay: this one has seen a rejection, and two more without a delivery would open its breaker.
    let stack = local_stack().await;
    let faults = |faults: Value| stack.bus().set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    faults(json!({"entries": [{"containing": "DeploymentChecked", "code": "InvalidArgument"}]}));
    let line = line_of(&stack, &[], "dead-letter-queue", Exit::Findings).await;
    assert!(line.contains("seen the whole message with InvalidArgument; no later message is delivered"), "{line}");
    faults(json!({"messages": [{"containing": "", "code": "AccessDenied"}]}));
    let line = line_of(&stack, &[], "dead-letter-queue", Exit::Findings).await;
    assert!(line.contains("seen no dead-letter message within 2s"), "{line}");
    assert_eq!(left_rows(&stack).await, 0);
    faults(json!({}));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_whose_calls_are_not_allowed_is_not_checked_and_the_status_is_3() {
    let stack = local_stack().await;
    let proxy = changed(stack.dynamodb_url(), |operation, passing| {
        if let (Passing::Response(status, body), "TransactWriteItems") = (passing, operation) {
            (*status, *body) = (400, json!({"__type": "x#AccessDeniedException", "message": "not you"}));
        }
    })
    .await;
    let others = [("AWS_ENDPOINT_URL_DYNAMODB", proxy.url())];
    let line = line_of(&stack, &others, "consumed-units", Exit::Incomplete).await;
    assert_eq!(line, "not-checked consumed-units: TransactWriteItems: 400 AccessDeniedException not you");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_deleted_are_printed() {
    let stack = local_stack().await;
    let proxy = changed(stack.dynamodb_url(), |operation, passing| {
        if let (Passing::Response(status, body), "DeleteItem") = (passing, operation) {
            (*status, *body) = (400, json!({"__type": "x#AccessDeniedException"}));
        }
    })
    .await;
    let others = [("AWS_ENDPOINT_URL_DYNAMODB", proxy.url())];
    let lines = check(&stack, &others, "idempotency-token --yes").await.expect(Exit::Findings);
    let left = lines.iter().filter(|line| line.starts_with("left-over the row AGGREGATE#__check#")).count();
    assert_eq!(left, 2, "{lines:#?}");
    assert!(lines.last().unwrap().ends_with("; 2 things could not be deleted"), "{lines:#?}");
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_check_deletes_what_it_has_created() {
    let stack = local_stack().await;
    // No message arrives, so the second check waits until it is interrupted.
    let faults = json!({"entries": [{"containing": "DeploymentChecked", "code": "InternalFailure"}]});
    stack.bus().set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    let line = "check-deployment entry-errors stream-delivery --yes --timeout 600";
    let printed = daybook_in(environment(&stack, &[]).into_iter().collect(), line, 1).await;
    let lines = printed.expect(Exit::Interrupted);
    assert!(lines[0].starts_with("as-expected entry-errors"), "{lines:#?}");
    assert!(lines.last().unwrap().contains("; stopped early, run it again"), "{lines:#?}");
    assert_eq!((left_rows(&stack).await, stack.bus().queued().len()), (0, 0));
    stack.bus().set_faults(Faults::default());
    stack.stop().await;
}
