//! `daybook console`.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Client, Response, StatusCode};
use serde_json::json;

use daybook_cli::operator::Exit;
use daybook_operations::health::all_alarm_names;

use crate::dlq;
use crate::projection::{REBUILD, five_accounts};
use crate::relay_status::{Aws, healthy, stack};
use crate::support::Setup;
use crate::views::versions_1_and_4;

const SERVE: &str = "console --port 0";

async fn get(address: &str) -> Response {
    Client::new().get(address).send().await.unwrap()
}

/// The page at an address.
async fn page(address: &str) -> String {
    let response = get(address).await;
    let (status, page) = (response.status(), response.text().await.unwrap());
    assert!(status.is_success(), "{address}: {status} {page}");
    page
}

async fn post(address: &str, form: String) -> Response {
    let request = Client::new().post(address).header("content-type", "application/x-www-form-urlencoded");
    request.body(form).send().await.unwrap()
}

/// Sends a form with the token of the console. Returns the page that it shows.
async fn submit(console: &str, fields: &str) -> String {
    submit_to(console, "/dead-letters", "/dead-letters", fields).await
}

/// The same, with a form of one page that is sent to another.
async fn submit_to(console: &str, from: &str, to: &str, fields: &str) -> String {
    let form = page(&format!("{console}{from}")).await;
    let token = form.split_once("name=\"token\" value=\"").unwrap().1.split('"').next().unwrap().to_owned();
    post(&format!("{console}{to}"), format!("token={token}&{fields}")).await.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_deployed_stack_read_and_change_nothing() {
    let (setup, first, _) = dlq::setup().await;
    setup.table.proxy.take_calls();
    setup
        .served(SERVE, async |console| {
            for (path, expected) in [
                ("", "href=\"/_console/aggregates/todo/1\""),
                ("", "on AWS · read-only"),
                ("?type=todo", "todo/2"),
                ("/search?q=2", "todo/2"),
                ("/aggregates/todo/1", "3 of 3"),
                ("/aggregates/todo/1", ">in the outbox</span>"),
                ("/aggregates/todo/1?version=2", "<ins><code class=\"line\">&quot;1/1&quot;</code></ins>"),
                ("/aggregates/todo/1/events/1", "EVENT#000000000001"),
                ("/aggregates/todo/1/test?version=2", "given::&lt;Subject&gt;"),
                ("/aggregates/todo/none", "There is no such aggregate."),
                ("/events?type=todo", "href=\"/_console/aggregates/todo/1?version=3\">todo/1 3</a>"),
                ("/events?type=todo", "<strong>TodoUpdated</strong>"),
                ("/dead-letters", "<dt>messages in the queue</dt><dd>6</dd>"),
                ("/stream", "<code>dlq</code></td><td class=\"number\">6</td>"),
            ] {
                let page = page(&format!("{console}{path}")).await;
                assert!(page.contains(expected), "{path} has no {expected:?}: {page}");
                // Nothing leads to a page that this console does not have, and nothing sends a form but the search.
                for absent in [
                    "data-live",
                    "/_console/bus",
                    "/_console/command",
                    "/_console/correlation",
                    "/_console/faults",
                    "method=\"post\"",
                ] {
                    assert!(!page.contains(absent), "{path} has {absent}: {page}");
                }
            }
        })
        .await;
    let operations: BTreeSet<_> = setup.table.proxy.take_calls().into_iter().map(|call| call.operation).collect();
    let reads = ["BatchGetItem", "GetItem", "Query"].map(str::to_owned);
    assert!(operations.is_subset(&reads.into()), "{operations:?}");
    let received: Vec<_> = setup.bus.waiting_dead_letters().iter().map(|message| message.receives).collect();
    assert_eq!((received, setup.sent()), (vec![0; 6], vec![]));
    assert_eq!(setup.outbox("todo/1").await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_write_do_not_exist_without_the_option() {
    let (setup, ..) = dlq::setup().await;
    setup
        .served(SERVE, async |console| {
            let origin = console.trim_end_matches("/_console").to_owned();
            for path in ["/command/todo", "/samples", "/faults", "/bus", "/correlation", "/dead-letters/1"] {
                assert_eq!(get(&format!("{console}{path}")).await.status(), StatusCode::NOT_FOUND, "{path}");
                let posted = post(&format!("{console}{path}"), "action=redrive&id=1".to_owned()).await.status();
                assert!([StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&posted), "{path}: {posted}");
            }
            let posted = post(&format!("{console}/dead-letters"), "action=delete&id=1".to_owned()).await.status();
            assert_eq!(posted, StatusCode::METHOD_NOT_ALLOWED);
            let posted = post(&format!("{console}/projections"), "aggregate=todo/1".to_owned()).await.status();
            assert!([StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&posted), "{posted}");
            for path in ["/_dev/queues", "/_dev/dlq/redrive", "/todo/1"] {
                assert_eq!(get(&format!("{origin}{path}")).await.status(), StatusCode::NOT_FOUND, "{path}");
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_sent_again_and_deleted_only_with_allow_writes() {
    let (setup, first, others) = dlq::setup().await;
    let id_of = |message_id: &str| {
        let waiting = setup.bus.waiting_dead_letters();
        waiting
            .iter()
            .find(|found| found.message.body.contains(message_id))
            .map(|found| found.message.message_id.clone())
    };
    let (sent, deleted) = (id_of(&first[0].message_id).unwrap(), id_of(&others[0].message_id).unwrap());
    let unsendable = id_of("UnreadableRecord").unwrap();
    setup
        .served(&format!("{SERVE} --allow-writes"), async |console| {
            let list = page(&format!("{console}/dead-letters")).await;
            assert!(
                list.contains("MalformedDetail") && list.contains("TodoUpdated") && !list.contains("read-only"),
                "{list}"
            );
            assert!(!list.contains("redrive-all"), "{list}");
            let whole = page(&format!("{console}/dead-letters/{unsendable}")).await;
            assert!(whole.contains("\"UnreadableRecord\""), "{whole}");

            submit(&console, "action=redrive").await;
            assert_eq!((setup.sent().len(), setup.bus.waiting_dead_letters().len()), (0, 6));
            let after = submit(&console, &format!("action=redrive&id={sent}")).await;
            assert!(after.contains("1 message was sent again."), "{after}");
            assert_eq!(setup.sent(), [first[0].message_id.clone()]);
            let after = submit(&console, &format!("action=delete&id={deleted}")).await;
            assert!(after.contains("1 message was deleted."), "{after}");
            let after = submit(&console, &format!("action=redrive&id={unsendable}&id={sent}")).await;
            assert!(
                after.contains("<strong>unsendable</strong>") && after.contains("no longer in the queue"),
                "{after}"
            );
        })
        .await;
    assert_eq!((setup.sent().len(), setup.bus.waiting_dead_letters().len()), (1, 4));
    assert_eq!(setup.bus.message_counts("dlq"), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_aggregates_are_resumed_only_with_allow_writes() {
    let setup = five_accounts(versions_1_and_4).await;
    setup.deposit("b", 13).await;
    let worker = setup.worker(versions_1_and_4(), setup.table.engine.url());
    setup.daybook(REBUILD).await.expect(Exit::Findings);
    worker.stop().await;
    let listed = "account/b/events/4\">account/b 4</a>";
    let stream = setup.served(SERVE, async |console| page(&format!("{console}/stream")).await).await;
    assert!(stream.contains(listed) && !stream.contains("method=\"post\""), "{stream}");
    setup
        .served(&format!("{SERVE} --allow-writes"), async |console| {
            let stream = page(&format!("{console}/stream")).await;
            assert!(stream.contains(listed) && stream.contains("Resume the selected"), "{stream}");
            // Without the token, nothing is resumed.
            let posted = post(&format!("{console}/projections"), "aggregate=account/b".to_owned()).await.status();
            assert_eq!(posted, StatusCode::FORBIDDEN);
            assert_eq!(setup.bus.message_counts("changes"), (0, 0));
            let resumed = submit_to(&console, "/stream", "/projections", "aggregate=account%2Fb").await;
            assert!(resumed.contains("1 aggregate was resumed.") && !resumed.contains(listed), "{resumed}");
        })
        .await;
    let waiting = setup.bus.queued().into_iter().map(|message| message.body).collect::<Vec<_>>();
    // One before, because nothing is resumed if none can be sent.
    assert_eq!(waiting, ["{\"changed\":[[\"account\",\"b\",4]]}"; 2]);
    setup.daybook("projection suspended").await.expect(Exit::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_shows_the_relay_and_says_what_cannot_be_read() {
    let (setup, _server) = stack(&healthy()).await;
    setup
        .served(SERVE, async |console| {
            let page = page(&format!("{console}/stream")).await;
            assert!(page.contains("<td>Enabled</td><td>OK</td>") && page.contains("<strong>1.2 s</strong>"), "{page}");
        })
        .await;
    let setup = Setup::new().await;
    setup
        .served(SERVE, async |console| {
            let page = page(&format!("{console}/stream")).await;
            assert!(page.contains("STREAM_RELAY_NAME is missing") && page.contains("<code>dlq</code>"), "{page}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn console_on_another_address_than_loopback_requires_the_token_that_it_prints() {
    let setup = Setup::new().await;
    setup.command("todo/1", "CreateTodo", json!({"title": "t", "message": ""})).await;
    setup
        .served(&format!("{SERVE} --host 0.0.0.0"), async |address| {
            let (console, _token) = address.split_once("?token=").unwrap();
            let console = console.replace("0.0.0.0", "127.0.0.1");
            assert_eq!(get(&console).await.status(), StatusCode::UNAUTHORIZED);
        })
        .await;
    setup
        .served(SERVE, async |console| {
            assert!(console.starts_with("http://127.0.0.1:") && console.ends_with("/_console"), "{console}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_events_reads_a_page_of_each_partition_and_continues_where_it_ends() {
    let setup = Setup::new().await;
    setup.todo("many", 300).await;
    let read_units = async |path: &str| {
        setup
            .served(SERVE, async |console| {
                setup.table.proxy.take_calls();
                let page = page(&format!("{console}{path}")).await;
                let calls = setup.table.proxy.take_calls();
                (page, calls.iter().map(|call| call.table_units + call.index_units).sum::<f64>())
            })
            .await
    };
    let (first, units) = read_units("/events?type=todo").await;
    assert!(first.contains("version=300\">") && !first.contains("version=250\">"), "{first}");
    assert!(units < 60.0, "{units}");
    let older = first.split_once("rel=\"next\" href=\"/_console").unwrap().1.split('"').next().unwrap();
    let (second, _) = read_units(&older.replace("&amp;", "&")).await;
    assert!(
        second.contains("version=250\">") && second.contains("version=201\">") && !second.contains("version=300\">")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn health_shows_what_the_alarms_watch_and_those_that_are_raised_first_and_the_requests_of_the_last_hour() {
    let of_metric = json!({
        "AlarmName": "prod-messages-late", "AlarmDescription": "Messages are late.", "StateValue": "OK", "StateReason": "",
        "Namespace": "AWS/Lambda", "MetricName": "IteratorAge", "Dimensions": [{"Name": "FunctionName", "Value": "f"}],
        "Statistic": "Maximum", "Period": 60, "Threshold": 60000.0, "ComparisonOperator": "GreaterThanThreshold",
    });
    let of_api =
        json!({"Namespace": "AWS/ApiGateway", "MetricName": "Count", "Dimensions": [{"Name": "ApiId", "Value": "a"}]});
    let expression = json!([{"Id": "e", "Expression": "FILL(m, 0)"}, {"Id": "m", "ReturnData": false, "MetricStat": {"Metric": of_api}}]);
    let of_expression = json!({
        "AlarmName": "prod-records-retried", "AlarmDescription": "<b>Retried</b>.", "StateValue": "ALARM",
        "StateReason": "3 datapoints", "Metrics": expression, "Threshold": 0.0,
        "ComparisonOperator": "GreaterThanThreshold",
    });
    // The minute before the current one, and an earlier one. Another minute may begin meanwhile.
    let minutes = [1, 30].map(|ago| (Timestamp::now().as_second() / 60 - ago) * 60);
    let traffic = json!([
        {"Id": "count", "Timestamps": minutes, "Values": [7.0, 40.0]},
        {"Id": "latency", "Timestamps": minutes, "Values": [12.5, 31.0]},
    ]);
    let aws = Aws { alarms: json!([of_metric, of_expression]), traffic, ..healthy() };
    let (mut setup, _server) = stack(&aws).await;
    setup
        .served(SERVE, async |console| {
            let page = page(&format!("{console}/health")).await;
            assert!(page.contains("the name of the stack is not known; use --stack or set STACK"), "{page}");
        })
        .await;
    setup.settings.push(("STACK", "prod".to_owned()));
    aws.calls.lock().unwrap().clear();
    let page = setup.served(SERVE, async |console| page(&format!("{console}/health")).await).await;
    assert!(page.contains("<strong>2</strong> alarms, <strong class=\"bad\">1 raised</strong>"), "{page}");
    assert!(page.find("records-retried").unwrap() < page.find("messages-late").unwrap(), "{page}");
    assert!(page.contains("<strong>1200</strong><span class=\"hint\"> raised at &gt; 60000</span>"), "{page}");
    assert!(page.contains("<p>3 datapoints</p>") && page.contains("&lt;b&gt;Retried&lt;/b&gt;"), "{page}");

    let calls: Vec<_> = aws.calls.lock().unwrap().iter().map(|(_, _, request)| request.clone()).collect();
    let names = calls[0]["AlarmNames"].as_array().unwrap();
    let expected: Vec<_> = all_alarm_names().map(|name| json!(format!("prod-{name}"))).collect();
    assert_eq!(names, &expected);
    assert!(names.contains(&json!("prod-messages-late")), "{names:?}");
    let mut queries: Vec<_> = calls[1..].iter().map(|request| request["MetricDataQueries"].clone()).collect();
    let of_requests = queries.pop().unwrap();
    for (query, name, statistic) in [(&of_requests[0], "Count", "Sum"), (&of_requests[1], "Latency", "p50")] {
        let metric = json!({"Namespace": "AWS/ApiGateway", "MetricName": name, "Dimensions": of_api["Dimensions"]});
        assert_eq!(query["MetricStat"], json!({"Metric": metric, "Period": 60, "Stat": statistic}));
    }
    let chart = |name: &str, most: &str| {
        let chart = page.split_once(&format!("<figcaption>{name}: ")).unwrap().1.split("</figure>").next().unwrap();
        assert!(chart.contains(&format!("most <strong>{most}</strong>")), "{chart}");
        // The other minutes have no requests.
        assert_eq!((chart.matches("<rect").count(), chart.matches("height=\"0\"").count()), (60, 58), "{chart}");
    };
    chart("Per minute", "40");
    chart("Median milliseconds", "31");
    queries.sort_by_key(|queries| queries[0]["Id"] != "e");
    assert_eq!(queries[0], expression);
    assert_eq!(queries[1][0]["MetricStat"]["Metric"]["Dimensions"][0]["Value"], "f");
    assert_eq!((&queries[1][0]["MetricStat"]["Stat"], calls.len()), (&json!("Maximum"), 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_messages_are_visible_when_ctrl_c_has_ended_the_console() {
    let (setup, first, _) = dlq::setup().await;
    let waiting = setup.bus.waiting_dead_letters();
    let wanted = waiting.iter().find(|found| found.message.body.contains(&first[0].message_id)).unwrap();
    setup.fail(json!({"putEvents": [{"delayMs": 3000}]}));
    setup
        .served(&format!("{SERVE} --allow-writes"), async |console| {
            let sent = format!("action=redrive&id={}", wanted.message.message_id);
            let sending = tokio::spawn(async move { submit(&console, &sent).await });
            // The list, whose page has the token, puts all messages back. The command hides one while it sends it.
            while setup.bus.message_counts("dlq") != (5, 1) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // The call to the bus begins, and takes longer than the end of the server.
            tokio::time::sleep(Duration::from_millis(300)).await;
            sending.abort();
        })
        .await;
    let (visible, hidden) = setup.bus.message_counts("dlq");
    assert_eq!((setup.sent().len() + visible, hidden), (6, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_a_page_does_not_show_is_not_needed_for_it() {
    let (setup, _, _) = dlq::setup().await;
    let (mut healthy_setup, _server) = stack(&healthy()).await;
    healthy_setup.settings.retain(|(name, _)| *name != "STREAM_RELAY_LOGS");
    healthy_setup
        .served(SERVE, async |console| {
            let page = page(&format!("{console}/stream")).await;
            assert!(page.contains("<td>Enabled</td><td>OK</td>"), "{page}");
        })
        .await;
    let changes = setup.queue_url().replace("dlq", "none");
    let line = format!("CHANGES_QUEUE_URL={changes} {SERVE}");
    setup
        .served(&line, async |console| {
            let stream = page(&format!("{console}/stream")).await;
            assert!(stream.contains("The specified queue does not exist."), "{stream}");
            let dead_letters = page(&format!("{console}/dead-letters")).await;
            assert!(dead_letters.contains("<dt>messages in the queue</dt><dd>6</dd>"), "{dead_letters}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_another_machine_is_an_error_that_names_the_option() {
    let setup = Setup::new().await;
    for (host, address) in [("192.0.2.1", "192.0.2.1:3100"), ("2001:db8::1", "[2001:db8::1]:3100")] {
        let error = setup.daybook(&format!("console --host {host}")).await.ended.unwrap_err();
        let expected = format!("cannot listen on {address}; choose another port with --port, or check --host");
        assert_eq!((error.to_string(), error.exit_code()), (expected, 3));
    }
}
