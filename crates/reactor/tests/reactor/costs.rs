//! What docs/deadlines.md says about costs.

use daybook_reactor::ReactorEvent;
use daybook_table::DueDeadlines;
use jiff::Timestamp;

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

/// Timers that are due in the same minute, beside some that are pending: the units of a tick for one that is due, the messages,
/// and the table's and the index's units of a firing.
async fn units_of_many(due: u32) -> (f64, usize, f64, f64) {
    let setup = Setup::new().await;
    let begin = setup.after(0).as_millisecond();
    for id in 0..due {
        let at = Timestamp::from_millisecond(begin + i64::from(id) * 60_000 / i64::from(due)).unwrap();
        setup.start(&id.to_string(), &[("ring", at)]).await;
    }
    for id in 0..20 {
        setup.start(&format!("later-{id}"), &[("ring", setup.after(3_600))]).await;
    }
    setup.advance(60);
    let reactor = setup.reactor();
    setup.table.proxy.take_calls();
    setup.tick(&reactor).await;
    let [(_, _, tick)] = calls(&setup)[..] else { panic!("a tick of few is one query") };
    let messages = setup.queued().len();
    assert_eq!(setup.deliver(&reactor).await, 0);
    let (table, index) = calls(&setup).iter().fold((0.0, 0.0), |sum, (_, table, index)| (sum.0 + table, sum.1 + index));
    setup.tick(&reactor).await;
    assert_eq!((setup.queued().len(), calls(&setup).len()), (0, 1));
    (tick / f64::from(due), messages, table / f64::from(due), index / f64::from(due))
}

#[tokio::test]
async fn many_deadlines_of_one_minute_cost_as_much_each_as_few() {
    for due in [100, 200] {
        let (tick, messages, table, index) = units_of_many(due).await;
        assert!((0.02..0.04).contains(&tick), "{due}: {tick}");
        assert_eq!((messages, table, index), (due as usize / DueDeadlines::MAX, 13.0, 2.0), "{due}");
    }
}
