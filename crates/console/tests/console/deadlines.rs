//! The deadlines on the pages, the dispatches, and the positions of processes.

use daybook_decider::{Caller, DecisionInput};
use daybook_event_store::{DeadlineMark, PositionMove};
use daybook_table::{AggregateKey, PositionItem};
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::execute;
use daybook_test_support::subject::Subject;
use serde_json::{Value, json};

use crate::Bench;

async fn command(bench: &Bench, id: &str, command: &str, data: Value) -> AggregateKey {
    let key = AggregateKey::new("reservation", id);
    let (store, model) = (bench.table.direct_store(), bench.registry.get("reservation").unwrap());
    execute(&store, model, &key, &[(command, data)]).await.unwrap();
    key
}

#[tokio::test]
async fn aggregate_has_the_deadlines_of_the_shown_version_and_their_states_at_the_latest() {
    let bench = Bench::start().await;
    let key = command(&bench, "1", "Reserve", json!({"concert": "fidelio", "seats": 2})).await;
    let path = "/_console/aggregates/reservation/1";
    let stored = bench.table.direct_store().deadline(&key, "hold").await.unwrap().unwrap();
    let due = format!("<td>hold</td><td><time datetime=\"{:.3}\" title=\"{:.3}\">in ", stored.due, stored.due);
    bench.operations();
    let page = bench.get(path).await.body;
    assert!(page.contains(&due) && page.contains("<td><code>Expire</code></td><td>pending</td>"), "{page}");
    // The last version, a page of events, two reads for the state, and the deadlines; the messages.
    assert_eq!(bench.operations(), "BatchGetItem 1, GetItem 1, Query 4");

    let store = bench.table.direct_store();
    assert!(store.mark_deadline(&stored, DeadlineMark::Failed("<b>a bug</b>")).await.unwrap());
    let page = bench.get(path).await.body;
    assert!(page.contains("<span class=\"bad\">failed</span>") && page.contains("&lt;b&gt;a bug&lt;/b&gt;"), "{page}");

    command(&bench, "1", "Pay", json!({"amount": 8_000})).await;
    bench.operations();
    let page = bench.get(path).await.body;
    assert!(!page.contains("Deadlines"), "{page}");
    // Those of two states, and no deadlines.
    assert_eq!(bench.operations(), "BatchGetItem 1, GetItem 2, Query 4");
    let page = bench.get(&format!("{path}?version=1")).await.body;
    assert!(page.contains(&due) && page.contains("<td><code>Expire</code></td><td></td>"), "{page}");
}

#[tokio::test]
async fn stream_lists_the_next_deadlines_after_those_that_have_failed() {
    let bench = Bench::start().await;
    let page = bench.get("/_console/stream").await.body;
    assert!(page.contains("None is pending, and none has failed."), "{page}");
    let store = bench.table.direct_store();
    for id in 1..=22 {
        let key = command(&bench, &id.to_string(), "Reserve", json!({"concert": "fidelio", "seats": 2})).await;
        if id == 22 {
            let stored = store.deadline(&key, "hold").await.unwrap().unwrap();
            assert!(store.mark_deadline(&stored, DeadlineMark::Failed("a bug")).await.unwrap());
        }
    }
    let page = bench.get("/_console/stream").await.body;
    let link = |id: usize| page.find(&format!(">reservation/{id}</a>"));
    assert!(link(22) < link(1) && link(1) < link(20) && link(22).is_some() && link(21).is_none(), "{page}");
    assert!(page.contains("a bug") && page.contains("The earliest 20 of each state."), "{page}");
}

#[tokio::test]
async fn process_has_its_dispatches_beside_its_deadlines_at_no_further_call() {
    let bench = Bench::start().await;
    let (store, fulfilment) = (bench.table.direct_store(), Subject::shipped("fulfilment", "1"));
    let by_system = DecisionInput { caller: Caller::system(), ..next_input() };
    fulfilment.command_under(&by_system, &store, "BeginFulfilment", json!({"total": 4500})).await;
    bench.operations();
    let page = bench.get("/_console/aggregates/fulfilment/1").await.body;
    let dispatch = "<td>request-payment</td><td>at once</td><td><code>RequestPayment</code> to \
                    <a href=\"/_console/aggregates/payment/1\">payment/1</a></td><td>";
    assert!(page.contains("<h3>Deadlines and dispatches</h3>") && page.contains(dispatch), "{page}");
    assert_eq!(bench.operations(), "BatchGetItem 1, GetItem 1, Query 4");
}

#[tokio::test]
async fn stream_lists_the_suspended_positions_of_processes() {
    let bench = Bench::start().await;
    let page = bench.get("/_console/stream").await.body;
    assert!(page.contains("None is suspended."), "{page}");
    let store = bench.table.direct_store();
    for id in 1..=21 {
        let mut position = store.position(&AggregateKey::new("order", id.to_string()), "fulfilment").await.unwrap();
        assert!(
            store
                .move_position(&mut position, PositionMove::Suspend(PositionItem::ALL, 3, "<b>a bug</b>"))
                .await
                .unwrap()
        );
    }
    let page = bench.get("/_console/stream").await.body;
    let row = "<td><a href=\"/_console/aggregates/order/1/events/4\">order/1 4</a></td><td>fulfilment</td>";
    assert!(page.contains(row) && page.contains("&lt;b&gt;a bug&lt;/b&gt;"), "{page}");
    assert!(page.contains("/order/20/events/4") && !page.contains("/order/21/events/4"), "{page}");
}
