//! Concurrent writers of one aggregate.

use lambda_http::{Context, RequestExt};
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::Suite;

use crate::instance::{Instance, request};
use crate::outages::in_a_hurry;

const WRITERS: i64 = 64;

#[tokio::test(flavor = "multi_thread")]
async fn each_accepted_command_of_racing_writers_appends_exactly_one_event() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "hot"})).await.expect(201);

    let write = async |amount: i64| {
        let command = json!({"command": "RecordTransaction", "data": {"desc": format!("#{amount}"), "amount": amount}});
        loop {
            let key = format!("k-{amount}");
            let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str())];
            let response =
                suite.send(Method::POST, "/account/hot/commands", &headers, Some(&command.to_string())).await;
            // On a slow machine the time may end before every writer has succeeded.
            if response.status != 503 {
                return response;
            }
        }
    };
    let responses = futures_util::future::join_all((1..=WRITERS).map(write)).await;
    for response in &responses {
        assert_eq!(response.status, 200, "{}", response.body);
    }

    let events = suite.get("/account/hot/events?limit=1000").await.expect(200);
    let events = events.body["events"].as_array().unwrap();
    let numbers: Vec<_> = events.iter().map(|event| event["seqNum"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let mut amounts: Vec<_> = events.iter().filter_map(|event| event["data"]["amount"].as_i64()).collect();
    amounts.sort_unstable();
    assert_eq!(amounts, (1..=WRITERS).collect::<Vec<_>>());

    // Each response contains its own event, with its stored number.
    for response in &responses {
        let returned = &response.body["events"][0];
        let at = usize::try_from(returned["seqNum"].as_u64().unwrap()).unwrap() - 1;
        assert_eq!(returned, &events[at]);
    }
    for path in ["/account/hot", "/account/hot?rebuild=true"] {
        let state: Value = suite.get(path).await.expect(200).body;
        assert_eq!(state["version"], 1 + WRITERS);
        assert_eq!(state["state"]["balance"], WRITERS * (WRITERS + 1) / 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_to_the_local_stack_share_transactions() {
    const COMMANDS: i64 = 4 * WRITERS;
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "hot"})).await.expect(201);
    let transactions = async || {
        let usage = suite.get("/_dev/usage").await.expect(200);
        usage.body["calls"]["TransactWriteItems"].as_i64().unwrap()
    };
    let before = transactions().await;
    // All at once, so that many wait for the same transaction, even on a busy machine.
    let write = async |_| {
        let command = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}});
        suite.post("/account/hot/commands", &command).await.expect(200);
    };
    futures_util::future::join_all((0..COMMANDS).map(write)).await;
    let transactions = transactions().await - before;
    assert!(transactions <= COMMANDS / 8, "{transactions} transactions for {COMMANDS} commands");
    assert_eq!(suite.get("/account/hot").await.expect(200).body["version"], 1 + COMMANDS);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_creations_succeed_exactly_once() {
    let suite = Suite::start().await;
    let create = async |_| suite.post("/account", &json!({"id": "1"})).await.status.as_u16();
    let mut responses = futures_util::future::join_all((0..16).map(create)).await;
    responses.sort_unstable();
    assert_eq!(responses[0], 201);
    assert!(responses[1..].iter().all(|&status| status == 409), "{responses:?}");
    assert_eq!(suite.get("/account/1").await.expect(200).body["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_with_the_same_if_match_succeed_exactly_once() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let write = async |amount: i64| {
        let command = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
        suite.post_if_match("/account/1/commands", &command, Some("\"1\"")).await
    };
    let responses = futures_util::future::join_all((1..=16).map(write)).await;
    let won = responses.iter().filter(|response| response.status == 200).count();
    assert_eq!(won, 1);
    for lost in responses.into_iter().filter(|response| response.status != 200) {
        let lost = lost.expect_problem(409, "version-conflict");
        assert_eq!((&lost.body["expected"], &lost.body["actual"]), (&json!(1), &json!(2)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contended_aggregate_with_little_time_gets_a_503_and_never_a_wrong_response() {
    let instance = Instance::start().await;
    instance.post("/account", json!({"id": "hot"})).await.expect(201);
    let write = async |amount: i64, time_left: Option<Context>| -> Option<Value> {
        let command = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
        let key = format!("k-{amount}");
        let headers = [("idempotency-key", key.as_str())];
        let mut request = request(Method::POST, "/account/hot/commands", &headers, Some(command));
        if let Some(time_left) = time_left {
            request = request.with_lambda_context(time_left);
        }
        let mut response = instance.ask(request).await;
        if response.status == 200 {
            return Some(response.body["events"][0].take());
        }
        assert_eq!(response.expect(503).header("retry-after"), "1");
        None
    };
    // All writers begin at once with little time. Those that get a 503 retry with the same key and more time.
    let mut waiting: Vec<i64> = (1..=16).collect();
    let (mut done, mut turned_away) = (Vec::new(), 0);
    while !waiting.is_empty() {
        let time_left = || (turned_away == 0).then(in_a_hurry);
        let responses = waiting.iter().map(|&amount| write(amount, time_left()));
        let responses = futures_util::future::join_all(responses).await;
        let mut again = Vec::new();
        for (amount, response) in waiting.into_iter().zip(responses) {
            match response {
                Some(event) => done.push(event),
                None => again.push(amount),
            }
        }
        turned_away += again.len();
        waiting = again;
    }
    assert!(turned_away > 0, "no writer got a 503");
    // Each writer has appended exactly the event in its response.
    done.sort_by_key(|event| event["seqNum"].as_u64());
    assert_eq!(instance.get("/account/hot/events?after=1").await.body["events"], Value::from(done));
}
