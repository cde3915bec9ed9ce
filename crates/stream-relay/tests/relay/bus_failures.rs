//! Failures of single messages and failures of the bus: one message must not stop a shard, and a failing bus must not
//! drain the stream into the dead-letter queue.

use std::sync::Arc;
use std::time::Duration;

use daybook_stream_relay::{BatchResponse, RetryPolicy, StreamBatch};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{
    Setup, insert, insert_detail, lambda_config, quick, relay_with, setup, setup_with_retries, take_log,
};

/// One message of each of `count` aggregates.
fn messages(count: u64) -> Vec<Value> {
    (1..=count).map(|n| insert(n, &format!("other{n}"), 1)).collect()
}

/// A relay that gives a message up when it has failed alone for this time.
async fn patient_for(milliseconds: u64, faults: Value) -> Setup {
    setup_with_retries(RetryPolicy { alone: Duration::from_millis(milliseconds), ..quick() }, faults).await
}

async fn within(setup: &Setup, milliseconds: u64, records: &[Value]) -> Option<String> {
    let response = setup.relay_within(Duration::from_millis(milliseconds), records).await.unwrap();
    response.checkpoint().map(|number| number.as_str().to_owned())
}

fn codes(setup: &Setup) -> Vec<String> {
    setup.dead_letters().iter().map(|dead_letter| dead_letter["error"]["code"].as_str().unwrap().to_owned()).collect()
}

// Failures of one message.

#[tokio::test]
async fn message_that_fails_while_others_succeed_is_dead_lettered() {
    let setup = patient_for(100, json!({"entries": [{"containing": "p-1", "code": "InternalFailure"}]})).await;
    let mut records = messages(50);
    records.insert(0, insert(100, "p", 1));
    records.push(insert(101, "p", 2));
    assert_eq!(within(&setup, 10_000, &records).await, None);
    assert_eq!((setup.delivered().len(), setup.delivered().contains(&"p-2".to_owned())), (51, true));
    let [dead_letter] = setup.dead_letters().try_into().unwrap();
    assert_eq!(
        (&dead_letter["message"]["messageId"], &dead_letter["error"]["code"]),
        (&json!("p-1"), &json!("InternalFailure"))
    );
    assert!(dead_letter["attempts"].as_u64().unwrap() >= 5, "{dead_letter}");
}

#[tokio::test]
async fn message_is_retried_until_the_deadline_until_it_is_given_up() {
    let setup = setup(json!({"entries": [{"containing": "p-1", "code": "InternalFailure"}]})).await;
    let mut records = messages(50);
    records.push(insert(100, "p", 1));
    let start = Instant::now();
    assert_eq!(within(&setup, 1_000, &records).await.as_deref(), Some("100"));
    assert!(start.elapsed() >= Duration::from_millis(900), "the relay did not retry until the deadline");
    assert_eq!((setup.delivered().len(), codes(&setup)), (50, vec![]));
}

#[tokio::test]
async fn throttled_message_is_not_dead_lettered_while_others_succeed() {
    for fault in [json!("ThrottlingException"), json!("ThrottledException"), json!("SlowDown")] {
        let setup = patient_for(0, json!({"entries": [{"containing": "p-1", "code": fault}]})).await;
        let mut records = messages(10);
        records.push(insert(100, "p", 1));
        for _ in 0..2 {
            assert_eq!(within(&setup, 200, &records).await.as_deref(), Some("100"), "{fault}");
        }
        assert_eq!((setup.delivered().len(), codes(&setup)), (10, vec![]), "{fault}");
    }
}

#[tokio::test]
async fn messages_are_not_dead_lettered_when_the_bus_accepts_nothing() {
    for fault in [
        json!({"entries": [{"containing": "", "code": "InternalFailure"}]}),
        json!({"putEvents": [{"http": 503, "forever": true}]}),
    ] {
        let setup = patient_for(0, fault).await;
        for records in [vec![insert(1, "p", 1)], messages(50)] {
            assert_eq!(within(&setup, 500, &records).await.as_deref(), Some("1"));
        }
        assert_eq!((setup.delivered().len(), codes(&setup)), (0, vec![]));
    }
}

#[tokio::test]
async fn messages_are_not_dead_lettered_when_an_outage_begins() {
    let setup = patient_for(0, json!({})).await;
    let record = |number| insert(number, "a", number);
    assert_eq!(within(&setup, 10_000, &[record(1), record(2)]).await, None);
    // The first call of the next batch is accepted, and no other.
    setup.fail(json!({"putEvents": [{}, {"http": 503, "forever": true}]}));
    let records = [record(3), record(4), record(5)];
    for _ in 0..3 {
        assert_eq!(within(&setup, 300, &records).await.as_deref(), Some("4"));
    }
    assert_eq!((setup.delivered(), codes(&setup)), (vec!["a-1".into(), "a-2".into(), "a-3".into()], vec![]));
}

#[tokio::test]
async fn message_that_failed_while_others_succeeded_is_dead_lettered_later_when_it_is_alone() {
    let setup = patient_for(500, json!({"entries": [{"containing": "p-1", "code": "InternalFailure"}]})).await;
    // All are in one request: the bus accepts the others when it fails this one.
    let mut records = messages(9);
    records.push(insert(100, "p", 1));
    assert_eq!(within(&setup, 300, &records).await.as_deref(), Some("100"));
    assert_eq!((within(&setup, 10_000, &[insert(100, "p", 1)]).await, codes(&setup).len()), (None, 1));
    // Those of all invocations, with one that the deadline may have cut off.
    let (attempts, sent) =
        (setup.dead_letters()[0]["attempts"].as_u64(), setup.calls().iter().sum::<usize>() as u64 - 9);
    assert!(attempts == Some(sent) || attempts == Some(sent + 1), "{attempts:?}, {sent}");
}

#[tokio::test]
async fn throttled_backlog_is_not_dead_lettered() {
    // Each message fails at least as often as the limit for a single message, and then succeeds.
    let rules: Vec<_> = (1..=40)
        .map(|n| json!({"containing": format!("other{n}-1"), "code": "ThrottlingException", "times": 5 + n % 5}))
        .collect();
    let setup = patient_for(0, json!({ "entries": rules })).await;
    let mut records = messages(40);
    records.extend((100..110).map(|n| insert(n, &n.to_string(), 1)));
    assert_eq!(within(&setup, 30_000, &records).await, None);
    assert_eq!((setup.delivered().len(), codes(&setup)), (50, vec![]));
}

// Failures of every message.

#[tokio::test]
async fn code_that_hits_every_entry_sends_nothing_to_the_dead_letter_queue() {
    for fault in [
        json!({"entries": [{"containing": "", "code": "InvalidArgument"}]}),
        json!({"entries": [{"containing": "", "code": "RedactionFailure"}]}),
        json!({"entries": [{"containing": "", "code": "MalformedDetail"}]}),
        json!({"entries": [{"containing": "", "code": "SomethingNew"}]}),
        json!({"putEvents": [{"code": "ValidationException", "forever": true}]}),
        json!({"putEvents": [{"http": 413, "forever": true}]}),
    ] {
        let setup = setup(fault.clone()).await;
        take_log();
        assert_eq!(within(&setup, 20_000, &messages(100)).await.as_deref(), Some("1"), "{fault}");
        assert_eq!((setup.delivered().len(), codes(&setup)), (0, vec![]), "{fault}");
        let expected = "the bus rejects several messages and accepts none, left them unsettled";
        assert!(take_log().iter().any(|line| line["message"] == expected && line["level"] == "ERROR"), "{fault}");

        // Once the bus accepts messages again, all are sent.
        setup.fail(json!({}));
        assert_eq!(within(&setup, 20_000, &messages(100)).await, None, "{fault}");
        assert_eq!((setup.delivered().len(), codes(&setup)), (100, vec![]), "{fault}");
    }
}

#[tokio::test]
async fn code_that_hits_every_entry_does_not_drain_batches_of_one() {
    for code in ["InvalidArgument", "SomethingNew"] {
        let setup = setup(json!({"entries": [{"containing": "", "code": code}]})).await;
        let mut unsettled = 0;
        for record in messages(30) {
            unsettled += usize::from(setup.checkpoint(&[record]).await.is_some());
        }
        assert_eq!((codes(&setup).len(), unsettled), (2, 28), "{code}");
    }
}

#[tokio::test]
async fn rejected_messages_that_stay_in_their_shard_do_not_count_as_dead_lettered() {
    let setup = setup(json!({"entries": [{"containing": "", "code": "InvalidArgument"}]})).await;
    let records = messages(3);
    assert!(setup.checkpoint(&records).await.is_some());
    // The mapping splits the batch.
    let mut unsettled = Vec::new();
    for record in records {
        unsettled.push(setup.checkpoint(&[record]).await.is_some());
    }
    assert_eq!(unsettled, [false, false, true]);
}

#[tokio::test]
async fn acceptance_ends_the_count_of_rejections_of_earlier_batches() {
    let setup = setup(json!({"entries": [{"containing": "poison", "code": "InvalidArgument"}]})).await;
    for (number, id) in [(1, "poison1"), (2, "poison2"), (3, "a"), (4, "poison3")] {
        assert_eq!(setup.checkpoint(&[insert(number, id, 1)]).await, None, "{id}");
    }
    assert_eq!(codes(&setup), vec!["InvalidArgument"; 3]);
}

#[tokio::test]
async fn one_rejected_message_is_dead_lettered_at_once() {
    for code in ["MalformedDetail", "InvalidArgument"] {
        let setup = setup(json!({"entries": [{"containing": "p-1", "code": code}]})).await;
        assert_eq!(setup.checkpoint(&[insert(1, "p", 1)]).await, None);
        assert_eq!((setup.calls().len(), codes(&setup)), (1, vec![code.to_owned()]));
    }
    let setup = setup(json!({"putEvents": [{"http": 413, "body": ""}]})).await;
    assert_eq!(setup.checkpoint(&[insert(1, "p", 1)]).await, None);
    assert_eq!(codes(&setup), ["OversizedEntry"]);
}

#[tokio::test]
async fn malformed_messages_in_batches_of_one_are_all_dead_lettered() {
    let setup = setup(json!({})).await;
    for n in 1..=10 {
        assert_eq!(setup.checkpoint(&[insert_detail(n, &n.to_string(), 1, "{")]).await, None);
    }
    assert_eq!(codes(&setup), vec!["MalformedDetail"; 10]);
}

#[tokio::test]
async fn many_rejected_messages_are_dead_lettered_while_others_succeed() {
    let setup = setup(json!({"entries": [{"containing": "\"bad", "code": "InvalidArgument"}]})).await;
    let mut records: Vec<_> = (1..=50).map(|n| insert(n, &format!("bad{n}"), 1)).collect();
    records.push(insert(100, "good", 1));
    take_log();
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!((setup.delivered(), codes(&setup).len()), (vec!["good-1".to_owned()], 50));
    assert!(take_log().iter().all(|line| line["level"] != "ERROR"), "the breaker is open");
}

#[tokio::test]
async fn message_behind_many_rejected_ones_closes_the_breaker() {
    let setup = setup(json!({"entries": [{"containing": "\"bad", "code": "InvalidArgument"}]})).await;
    let mut records: Vec<_> = (1..=300).map(|n| insert(n, &format!("bad{n}"), 1)).collect();
    records.push(insert(1_000, "good", 1));
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!((setup.delivered(), codes(&setup).len()), (vec!["good-1".to_owned()], 300));
}

#[tokio::test]
async fn open_breaker_lets_each_message_be_sent_once() {
    let rejected = setup(json!({"entries": [{"containing": "", "code": "InvalidArgument"}]})).await;
    assert_eq!(rejected.checkpoint(&messages(1_000)).await.as_deref(), Some("1"));
    assert_eq!((rejected.calls().len(), codes(&rejected).len()), (100, 0));

    // A request that is rejected as a whole is split: each of its messages is sent alone.
    let too_large = setup(json!({"putEvents": [{"http": 413, "forever": true}]})).await;
    assert_eq!(within(&too_large, 20_000, &messages(1_000)).await.as_deref(), Some("1"));
    assert!((200..220).contains(&too_large.calls().len()), "{}", too_large.calls().len());
}

// Unreadable responses, and connections.

#[tokio::test]
async fn unreadable_response_is_transient() {
    for response in [
        json!({"http": 408, "body": ""}),
        json!({"http": 400, "body": ""}),
        json!({"http": 400, "body": "{\"__type\": \"Valida"}),
        json!({"http": 403, "body": "<html>blocked</html>"}),
        json!({"http": 502, "body": "<html>Bad Gateway</html>"}),
        json!({"http": 302, "body": "<html>moved</html>"}),
        json!({"body": "<html>OK</html>"}),
        json!({"body": "{\"FailedEntryCount\": 0, \"Entr"}),
        json!({"body": ""}),
    ] {
        let setup = setup(json!({"putEvents": [response, response]})).await;
        take_log();
        assert_eq!(setup.checkpoint(&[insert(1, "a", 1), insert(2, "b", 1)]).await, None, "{response}");
        assert_eq!((setup.calls(), setup.delivered().len(), codes(&setup).len()), (vec![2; 3], 2, 0), "{response}");
        assert!(take_log().iter().all(|line| line["level"] == "INFO"), "{response}");
    }
}

#[tokio::test]
async fn log_contains_the_beginning_of_an_unreadable_response() {
    let setup =
        setup(json!({"putEvents": [{"http": 403, "body": "<html>blocked by the proxy", "forever": true}]})).await;
    take_log();
    assert_eq!(within(&setup, 200, &messages(1)).await.as_deref(), Some("1"));
    let lines = take_log();
    let line = lines.iter().find(|line| line["message"] == "unsettled, will be retried").unwrap();
    assert_eq!(
        (&line["code"], &line["text"]),
        (&json!("UnreadableResponse"), &json!("status 403, \"<html>blocked by the proxy\""))
    );
}

async fn handle(relay: &daybook_stream_relay::Relay, records: &[Value]) -> BatchResponse {
    let batch: StreamBatch = serde_json::from_str(&json!({ "Records": records }).to_string()).unwrap();
    relay.handle(batch, Instant::now() + Duration::from_millis(1_500)).await.unwrap()
}

#[tokio::test]
async fn tls_failure_is_named_in_the_log() {
    // The server speaks no TLS.
    let setup = setup(json!({})).await;
    let retry = RetryPolicy { margin: Duration::from_millis(10), ..RetryPolicy::default() };
    let config = lambda_config(&setup.url().replace("http://", "https://"), &[]).await;
    let relay = relay_with(&config, retry);
    take_log();
    assert_eq!(handle(&relay, &messages(1)).await.checkpoint().unwrap().as_str(), "1");
    let lines = take_log();
    assert!(lines.iter().any(|line| line["message"] == "no TLS connection to the bus"), "{lines:#?}");
    let line = lines.iter().find(|line| line["message"] == "unsettled, will be retried").unwrap();
    assert_eq!(line["code"], "TlsFailure", "{line}");
}

/// A server with a certificate of the root in `tests/tls/root.pem`, which forwards to the bus. Returns its URL.
async fn tls_server(setup: &Setup) -> String {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("../tls/server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/server-key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, bus) = (format!("https://{}", listener.local_addr().unwrap()), setup.url().replace("http://", ""));
    tokio::spawn(async move {
        while let Ok((accepted, _)) = listener.accept().await {
            let (acceptor, bus) = (acceptor.clone(), bus.clone());
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(accepted).await else { return };
                let mut bus = TcpStream::connect(bus).await.unwrap();
                drop(copy_bidirectional(&mut client, &mut bus).await);
            });
        }
    });
    url
}

#[tokio::test]
async fn certificate_of_an_unknown_root_is_named_and_the_root_is_a_setting() {
    let setup = setup(json!({})).await;
    let url = tls_server(&setup).await;
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/root.pem");
    let retry = RetryPolicy { margin: Duration::from_millis(10), ..RetryPolicy::default() };

    take_log();
    let relay = relay_with(&lambda_config(&url, &[]).await, retry);
    assert_eq!(handle(&relay, &messages(1)).await.checkpoint().unwrap().as_str(), "1");
    let lines = take_log();
    let line = lines.iter().find(|line| line["message"] == "unsettled, will be retried").unwrap();
    assert_eq!(
        (&line["code"], &line["text"]),
        (&json!("TlsFailure"), &json!("invalid peer certificate: UnknownIssuer"))
    );

    let relay = relay_with(&lambda_config(&url, &[("AWS_CA_BUNDLE", root)]).await, retry);
    assert!(handle(&relay, &messages(1)).await.checkpoint().is_none());
    assert_eq!(setup.delivered(), ["other1-1"]);
}

#[tokio::test]
async fn slow_request_does_not_delay_ready_messages_of_other_aggregates() {
    let setup = setup(json!({"putEvents": [{"delayMs": 3_000}]})).await;
    let mut records = messages(15);
    records.push(insert(100, "other1", 2));
    let start = Instant::now();
    let relaying = setup.relay(&records);
    let others_arrive = async {
        while setup.delivered().len() < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        start.elapsed()
    };
    let (response, elapsed) = tokio::join!(relaying, others_arrive);
    assert!(response.unwrap().checkpoint().is_none());
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    assert_eq!(setup.delivered()[..5], [11, 12, 13, 14, 15].map(|n| format!("other{n}-1")));
    assert_eq!(setup.delivered().len(), 16);
}

#[tokio::test]
async fn eight_slow_requests_do_not_delay_the_others() {
    let setup = setup(json!({"putEvents": vec![json!({"delayMs": 4_000}); 8]})).await;
    let start = Instant::now();
    let records = messages(120);
    let others_arrive = async {
        while setup.delivered().len() < 40 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        start.elapsed()
    };
    let (response, elapsed) = tokio::join!(setup.relay(&records), others_arrive);
    assert!(response.unwrap().checkpoint().is_none());
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
}
