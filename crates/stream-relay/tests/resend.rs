//! Rows that are sent again, against a bus over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::pending;
use std::num::NonZeroU32;
use std::time::Duration;

use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_stream_relay::{EntryError, RelaySettings, Resend, ResendOutcome, RetryPolicy, Waits, clients};
use daybook_table::OutboxItem;
use serde_json::{Value, json};

struct Setup {
    bus: Bus,
    resend: Resend,
    _server: Server,
}

async fn setup(faults: Value) -> Setup {
    setup_at_rate(1_000_000, faults).await
}

async fn setup_at_rate(per_second: u32, faults: Value) -> Setup {
    let bus = Bus::with("main", "dlq");
    bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    let server = Server::start(bus.router()).await.unwrap();
    let retry = RetryPolicy {
        waits: Waits { first: Duration::from_millis(1), longest: Duration::from_millis(4) },
        ..RetryPolicy::default()
    };
    let settings =
        RelaySettings { event_bus_name: "main".into(), event_source: "daybook".into(), dlq_url: String::new(), retry };
    let client = clients::eventbridge(&daybook_function_runtime::aws_config_at(server.url()));
    let resend = Resend::new(client, settings, NonZeroU32::new(per_second).unwrap());
    Setup { bus, resend, _server: server }
}

fn row(id: &str, seq: u64) -> OutboxItem {
    OutboxItem {
        pk: format!("AGGREGATE#todo#{id}"),
        sk: format!("OUTBOX#{seq:012}#0"),
        message_id: format!("{id}-{seq}"),
        message_type: "TodoUpdated".to_owned(),
        message_seq: seq,
        detail: format!(r#"{{ "metadata": {{"messageId": "{id}-{seq}"}}, "amount": 1.0 }}"#),
        occurred_at: "2026-11-21T01:02:03.456Z".to_owned(),
        seq_num: seq,
        ttl: 7,
        trace_header: None,
    }
}

fn delivered(setup: &Setup) -> Vec<String> {
    let id = |detail: &str| serde_json::from_str::<Value>(detail).unwrap()["metadata"]["messageId"].clone();
    setup.bus.delivered().iter().map(|entry| id(&entry.detail).as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn rows_are_sent_unchanged_and_in_order() {
    let mut setup = setup(json!({})).await;
    let rows = vec![row("a", 3), row("b", 1), row("a", 1), row("a", 2)];
    let outcomes = setup.resend.send(rows, pending()).await;
    assert_eq!(outcomes, vec![ResendOutcome::Sent; 4]);
    let of_a: Vec<_> = delivered(&setup).into_iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a-1", "a-2", "a-3"]);
    let entry = &setup.bus.delivered()[0];
    assert_eq!(entry.resources.len(), 1);
    assert!(entry.detail.contains(r#""amount": 1.0 }"#));
    assert_eq!((entry.event_bus_name.as_str(), entry.source.as_str()), ("main", "daybook"));
}

#[tokio::test]
async fn row_is_sent_as_often_as_an_operator_sends_it() {
    let mut setup = setup(json!({})).await;
    for times in 1..=2 {
        assert_eq!(setup.resend.send(vec![row("a", 1)], pending()).await, [ResendOutcome::Sent]);
        assert_eq!(delivered(&setup).len(), times);
    }
}

#[tokio::test]
async fn many_aggregates_share_requests() {
    let mut setup = setup(json!({})).await;
    let rows = (0..25).map(|id| row(&id.to_string(), 1)).collect();
    assert_eq!(setup.resend.send(rows, pending()).await, vec![ResendOutcome::Sent; 25]);
    assert_eq!(setup.bus.put_events_calls().len(), 3);
}

#[tokio::test]
async fn only_failed_rows_are_sent_again_and_rejected_rows_are_reported() {
    let faults = json!({
        "putEvents": [{"http": 500}, {"failEntries": [{"index": 1, "code": "InternalFailure"}]}],
        "entries": [{"containing": "c-1", "code": "MalformedDetail"}],
    });
    let mut setup = setup(faults).await;
    let unreadable = OutboxItem { pk: "todo/d".to_owned(), ..row("d", 1) };
    let rows = vec![row("a", 1), row("b", 1), row("c", 1), row("c", 2), unreadable];
    let outcomes = setup.resend.send(rows, pending()).await;
    let rejected =
        |code: &str, text: &str| ResendOutcome::Rejected(EntryError { code: code.into(), text: text.into() });
    assert_eq!(
        outcomes,
        [
            ResendOutcome::Sent,
            ResendOutcome::Sent,
            rejected("MalformedDetail", "injected fault"),
            ResendOutcome::Sent,
            rejected("UnreadableRow", "pk is \"todo/d\""),
        ]
    );
    let mut delivered = delivered(&setup);
    delivered.sort();
    assert_eq!(delivered, ["a-1", "b-1", "c-2"]);
    assert!(setup.bus.dead_letters().is_empty());
}

#[tokio::test]
async fn sending_ends_when_the_last_row_is_rejected() {
    let setup = setup(json!({"entries": [{"containing": "a-1", "code": "MalformedDetail"}]})).await;
    // With no row left, sending ends at once, however long the bus may fail.
    let mut resend = setup.resend.with_patience(Duration::from_secs(24 * 60 * 60));
    let sending = resend.send(vec![row("a", 1)], pending());
    let outcomes = tokio::time::timeout(Duration::from_secs(60), sending).await.unwrap();
    assert!(matches!(&outcomes[0], ResendOutcome::Rejected(error) if error.code == "MalformedDetail"));
}

#[tokio::test]
async fn an_error_of_the_deployment_ends_sending() {
    let mut setup =
        setup(json!({"putEvents": [{"http": 403, "code": "AccessDeniedException", "forever": true}]})).await;
    let rows = (0..25).map(|id| row(&id.to_string(), 1)).collect();
    let outcomes = setup.resend.send(rows, pending()).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, ResendOutcome::Unsent(_))));
    assert!(matches!(&outcomes[0], ResendOutcome::Unsent(Some(error)) if error.code == "AccessDeniedException"));
    assert!(setup.bus.put_events_calls().len() <= 3);
}

#[tokio::test]
async fn sending_ends_when_the_bus_only_fails_for_too_long() {
    let setup = setup(json!({"putEvents": [{"http": 500, "forever": true}]})).await;
    let mut resend = setup.resend.with_patience(Duration::from_millis(200));
    let outcomes = resend.send(vec![row("a", 1), row("a", 2)], pending()).await;
    assert!(matches!(&outcomes[0], ResendOutcome::Unsent(Some(error)) if error.code == "InternalFailure"));
    assert_eq!(outcomes[1], ResendOutcome::Unsent(None));
}

#[tokio::test]
async fn sending_continues_while_the_bus_accepts_some_messages() {
    let (failure, success) = (json!({"http": 500}), json!({"delayMs": 150}));
    let setup = setup(json!({"putEvents": [failure, success, failure, success, failure, success]})).await;
    // The first failure and the third are further apart, but a success is between them.
    let mut resend = setup.resend.with_patience(Duration::from_millis(200));
    let outcomes = resend.send(vec![row("a", 1), row("a", 2), row("a", 3)], pending()).await;
    assert_eq!(outcomes, vec![ResendOutcome::Sent; 3]);
}

#[tokio::test]
async fn waiting_for_the_rate_does_not_count_as_failing() {
    let setup = setup_at_rate(100, json!({})).await;
    let mut resend = setup.resend.with_patience(Duration::from_millis(1));
    let rows = (0..25).map(|id| row(&id.to_string(), 1)).collect();
    assert_eq!(resend.send(rows, pending()).await, vec![ResendOutcome::Sent; 25]);
}

/// At one message a second, a request of ten messages delays the next request by ten seconds. A stop in the meantime
/// ends sending.
#[tokio::test]
async fn rate_limited_rows_are_unsent_when_sending_is_stopped() {
    let mut setup = setup_at_rate(1, json!({})).await;
    let rows = (0..25).map(|id| row(&id.to_string(), 1)).collect();
    let bus = setup.bus.clone();
    let stop = async {
        while bus.delivered().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let outcomes = setup.resend.send(rows, stop).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == ResendOutcome::Sent).count(), 10);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == ResendOutcome::Unsent(None)).count(), 15);
}
