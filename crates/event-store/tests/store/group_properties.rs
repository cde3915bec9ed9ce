//! Requests of one process that are appended together have the results of requests that are appended one after the other.

use daybook_event_store::{TransactError, Transacted};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::TestTable;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::group::{Request, Sent, assert_stored, send_together};
use crate::support::{Subject, ledger, state};

/// What a request sends.
#[derive(Clone, Debug)]
struct Sample {
    command: &'static str,
    data: Value,
    expected_version: Option<u64>,
    key: Option<(&'static str, &'static str)>,
}

impl Sample {
    fn request<'a>(&self, account: &'a Subject) -> Request<'a> {
        let Self { command, data, expected_version, key } = self.clone();
        Request::new(account, command, data).with(expected_version, key)
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let text = |bytes: usize| "A".repeat(bytes);
    let command = prop_oneof![
        6 => (-1_500..500_i64).prop_map(|amount| ("RecordTransaction", json!({"desc": "", "amount": amount}))),
        1 => Just(("RecordTransaction", json!({"desc": text(350 * 1024), "amount": 1}))),
        1 => Just(("RecordTransaction", json!({"desc": text(500 * 1024), "amount": 1}))),
        1 => Just(("OpenAccount", json!({}))),
        2 => Just(("UpdateOwner", json!({"ownerFirst": "A", "ownerLast": "B"}))),
    ];
    let key = (prop_oneof![Just("k1"), Just("k2")], prop_oneof![3 => Just("d1"), 1 => Just("d2")]);
    let options = (proptest::option::weighted(0.3, 1..8_u64), proptest::option::weighted(0.4, key));
    (command, options).prop_map(|((command, data), (expected_version, key))| Sample {
        command,
        data,
        expected_version,
        key,
    })
}

/// An error of a call that writes nothing. (If the response to a call that writes is lost, a request of the group that
/// appends nothing is decided on the state after the group.)
fn fault() -> impl Strategy<Value = InjectedFault> {
    let cancelled = |code| InjectedFault::Cancel { codes: vec!["None", code, "None"] };
    prop_oneof![
        Just(InjectedFault::BreakBefore),
        Just(cancelled("TransactionConflict")),
        Just(cancelled("ThrottlingError")),
        Just(InjectedFault::Refuse { status: 500, code: "InternalServerError" }),
    ]
}

/// A result without what differs from one decision to the next.
fn summary(sent: &Sent) -> String {
    match sent {
        Ok(Transacted::Decided(response)) => format!("decided {} {}", response.status, response.version),
        Ok(Transacted::Replayed(response)) => format!("replayed {} {}", response.status, response.version),
        Err(TransactError::TooLarge { limit, .. }) => limit.to_string(),
        Err(error) => format!("{error:?}"),
    }
}

/// Sends the samples in two ways, each to a new account: one after the other, and together while calls fail.
async fn assert_same_results(samples: Vec<Sample>, faults: Vec<InjectedFault>) {
    let mut results = Vec::new();
    for together in [false, true] {
        let table = TestTable::new().await;
        let store = table.store();
        let account = ledger(&store, "1", 1).await;
        let requests: Vec<_> = samples.iter().map(|sample| sample.request(&account)).collect();
        let sent = if together {
            send_together(&table, &store, &requests, &faults).await.0
        } else {
            Request::payment(&account, 1).send(&store).await.unwrap();
            let mut sent = Vec::new();
            for request in &requests {
                sent.push(request.send(&store).await);
            }
            sent
        };
        table.proxy.take_faults();
        let loaded = account.load(&table.direct_store()).await;
        assert_stored(&table, &account, &sent, loaded.version()).await;
        results.push((sent.iter().map(summary).collect::<Vec<_>>(), loaded.version(), state(&loaded)));
    }
    // A refused request reads the response under its key after it has left the queue. A later request may have stored
    // one by then.
    let [(in_order, ..), (together, ..)] = &mut results[..] else { unreachable!("two ways") };
    for (number, sample) in samples.iter().enumerate().filter(|(_, sample)| sample.key.is_some()) {
        let is_refused = in_order[number].starts_with("Conflict") || in_order[number].starts_with("Decide");
        let finds_a_response = together[number] == "KeyReused" || together[number].starts_with("replayed");
        let key = |sample: &Sample| sample.key.map(|(key, _)| key);
        let is_used_later = samples[number + 1..].iter().any(|later| key(later) == key(sample));
        if is_refused && finds_a_response && is_used_later {
            together[number] = in_order[number].clone();
        }
    }
    assert_eq!(results[0], results[1], "one after the other, and together");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn requests_together_have_the_results_of_requests_one_after_the_other(
        samples in vec(sample(), 1..8),
        faults in vec(fault(), 0..3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(assert_same_results(samples, faults));
    }
}
