//! `daybook deadlines rebuild`, and deadlines in `daybook verify` and `daybook import`.

use aggregates::Reservation;
use daybook_cli::operator::Exit;
use daybook_table::{AggregateKey, DeadlineCause, DeadlineItem, keys};
use daybook_test_support::clock::now;
use daybook_test_support::row::{sealed, text};
use jiff::Timestamp;
use serde_json::json;
use ulid::Ulid;

use crate::support::Setup;

async fn reserve(setup: &Setup, id: &str) {
    setup.command(&format!("reservation/{id}"), "Reserve", json!({"concert": "fidelio", "seats": 2})).await;
}

async fn pay(setup: &Setup, id: &str) {
    setup.command(&format!("reservation/{id}"), "Pay", json!({"amount": 8_000})).await;
}

/// The times of the deadlines of a reservation.
async fn due(setup: &Setup, id: &str) -> Vec<String> {
    let rows = setup.table.rows(&AggregateKey::new("reservation", id), keys::DEADLINE_PREFIX).await;
    rows.iter().map(|row| text(row, "due").to_owned()).collect()
}

#[tokio::test]
async fn rebuild_sets_missing_deadlines_and_drops_surplus_ones() {
    let setup = Setup::of::<Reservation>().await;
    for id in ["1", "2", "3", "4"] {
        reserve(&setup, id).await;
    }
    pay(&setup, "2").await;
    let (before, moved) = (due(&setup, "1").await, due(&setup, "3").await);
    setup.delete("reservation/1", "DEADLINE#hold").await;
    let cause = DeadlineCause { seq_num: 1, event_id: Ulid::nil(), correlation_id: None };
    for id in ["2", "3"] {
        let (of, deadline) = (AggregateKey::new("reservation", id), ("hold", Timestamp::UNIX_EPOCH));
        let row = DeadlineItem::new(&of, deadline, cause.clone(), 1, now());
        setup.table.put(sealed(serde_dynamo::to_item(row).unwrap())).await;
    }

    let lines = setup.daybook("verify --type reservation").await.expect(Exit::Findings);
    let missing = "reservation/1 DEADLINE#hold deadline: the state has it, due";
    assert!(lines.iter().any(|line| line.starts_with(missing)), "{lines:?}");
    assert!(lines.contains(&"reservation/2 DEADLINE#hold deadline: it is not in the state".to_owned()), "{lines:?}");

    let mut lines = setup.daybook("deadlines rebuild reservation").await.expect(Exit::Clean);
    lines.sort();
    let expected = [
        "2 deadlines would be set, 1 would be deleted; 0 aggregates cannot be read".to_owned(),
        format!("reservation/1: would be set: hold, due {}", before[0]),
        "reservation/2: would be deleted: hold".to_owned(),
        format!("reservation/3: would be set: hold, due {}", moved[0]),
    ];
    assert_eq!(lines, expected);
    assert_eq!(due(&setup, "1").await, [""; 0]);
    let lines = setup.daybook("deadlines rebuild reservation --yes").await.expect(Exit::Clean);
    assert_eq!(lines.last().unwrap(), "2 deadlines set, 1 deleted; 0 aggregates cannot be read");
    assert_eq!((due(&setup, "1").await, due(&setup, "2").await, due(&setup, "3").await), (before, vec![], moved));
    setup.daybook("verify").await.expect(Exit::Clean);
    setup.table.proxy.take_calls();
    setup.daybook("deadlines rebuild reservation --yes").await.expect(Exit::Clean);
    assert!(!setup.table.operations().contains(&"TransactWriteItems".to_owned()));
}

#[tokio::test]
async fn import_sets_the_deadlines_of_the_last_state_alone() {
    let from = Setup::of::<Reservation>().await;
    for id in ["1", "2"] {
        reserve(&from, id).await;
    }
    pay(&from, "2").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("before").display().to_string();
    from.daybook(&format!("export {path}")).await.expect(Exit::Clean);

    let to = Setup::of::<Reservation>().await;
    to.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Clean);
    assert_eq!((due(&to, "1").await, due(&to, "2").await), (due(&from, "1").await, vec![]));
    to.daybook("verify --scan").await.expect(Exit::Clean);

    // Events that follow those in the table drop its deadlines, and an import that ended before that is continued.
    pay(&from, "1").await;
    let path = folder.path().join("after").display().to_string();
    from.daybook(&format!("export {path}")).await.expect(Exit::Clean);
    let row = to.table.rows(&AggregateKey::new("reservation", "1"), keys::DEADLINE_PREFIX).await.remove(0);
    to.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Clean);
    assert_eq!(due(&to, "1").await, [""; 0]);
    to.table.put(row).await;
    to.daybook(&format!("import {path} --no-publish --yes")).await.expect(Exit::Clean);
    assert_eq!(due(&to, "1").await, [""; 0]);
    to.daybook("verify --scan").await.expect(Exit::Clean);
}
