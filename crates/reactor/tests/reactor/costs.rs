//! What docs/deadlines.md says about costs.

use daybook_reactor::ReactorEvent;

use crate::setup::{Setup, message, soon};

/// The calls of the reactor since the last time, each with its units of the table and of the index.
fn calls(setup: &Setup) -> Vec<(String, f64, f64)> {
    let calls = setup.table.proxy.take_calls();
    calls.into_iter().map(|call| (call.operation, call.table_units, call.index_units)).collect()
}

#[tokio::test]
async fn firing_costs_two_reads_a_key_and_the_drop_or_the_mark_of_its_row_beside_its_events() {
    let setup = Setup::new().await;
    let due = setup.after(1);
    for name in ["ring", "keep", "idle"] {
        setup.start(name, &[(name, due)]).await;
    }
    setup.advance(2);
    let reactor = setup.reactor();
    setup.table.proxy.take_calls();
    // The row, and the load of the aggregate.
    let read = [("GetItem", 1.0, 0.0), ("GetItem", 1.0, 0.0), ("Query", 1.0, 0.0)];
    for (name, writes) in [
        // An event with its message takes 6 and 1, the key 2, and the row 2 and 1.
        ("ring", [("TransactWriteItems", 10.0, 2.0)].as_slice()),
        ("keep", &[("TransactWriteItems", 8.0, 1.0), ("PutItem", 1.0, 1.0)]),
        // Without events, the key is read.
        ("idle", &[("GetItem", 1.0, 0.0), ("PutItem", 1.0, 1.0)]),
    ] {
        assert!(!message(&reactor, &[(name, name, due)]).await);
        let expected: Vec<_> =
            read.iter().chain(writes).map(|(name, table, index)| ((*name).to_owned(), *table, *index)).collect();
        assert_eq!(calls(&setup), expected, "{name}");
    }
    reactor.handle(ReactorEvent::Tick { tick: true }, soon()).await;
    assert_eq!(calls(&setup), [("Query".to_owned(), 0.0, 0.5)]);
}
