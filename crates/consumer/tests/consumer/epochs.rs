//! After a restore of the suite's table, numbers come again in a higher epoch.

use daybook_test_support::log;
use fastrand::Rng;
use serde_json::json;

use crate::journal::{Setup, noted};

/// Messages 1 to 5 of epoch 1; the table is restored to the time after message 3; messages 4 to 6 of epoch 2.
#[tokio::test(start_paused = true)]
async fn epoch_begins_with_its_first_message_in_any_order_of_arrival() {
    let before = [1, 2, 3, 4, 5].map(|number| noted("note/1", number));
    let after =
        [(4, Some(1)), (5, None), (6, None)].map(|(number, previous)| noted("note/1", number).in_epoch(2, previous));
    let mut rng = Rng::with_seed(1);
    for seed in 0..60 {
        let setup = Setup::new(seed).await;
        // Some lost messages were never delivered.
        let delivered = rng.usize(3..=5);
        let mut messages: Vec<_> = before[..delivered].iter().chain(&after).collect();
        rng.shuffle(&mut messages);
        for message in messages {
            setup.deliver([message]).await;
        }
        let applied = setup.applied("note/1").await;
        let epoch_1 = applied.len() - 3;
        assert!((3..=delivered).contains(&epoch_1), "{seed}: {applied:?}");
        assert_eq!(applied[..epoch_1], (1..=epoch_1 as u64).map(|number| (1, number)).collect::<Vec<_>>(), "{seed}");
        assert_eq!(applied[epoch_1..], [(2, 4), (2, 5), (2, 6)], "{seed}");
        assert_eq!(setup.report().await["total"], 0, "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn applied_messages_of_lost_events_are_logged() {
    log::take("daybook_consumer");
    let setup = Setup::new(1).await;
    setup.deliver(&[1, 2, 3, 4, 5].map(|number| noted("note/1", number))).await;
    setup.deliver([&noted("note/1", 4).in_epoch(2, Some(1))]).await;
    let lines = log::take("daybook_consumer");
    let line = lines.iter().find(|line| line["message"].as_str().unwrap().contains("lost")).unwrap();
    assert_eq!((&line["aggregate"], &line["lost"], &line["last"]), (&json!("note/1"), &json!(2), &json!(5)));
    // What arrives of them later is ignored.
    setup.deliver([&noted("note/1", 6), &noted("note/1", 5)]).await;
    assert_eq!(setup.applied("note/1").await.last(), Some(&(2, 4)));
}

#[tokio::test(start_paused = true)]
async fn message_of_an_epoch_whose_beginning_is_unknown_waits() {
    let setup = Setup::new(1).await;
    setup.deliver(&[1, 2].map(|number| noted("note/1", number))).await;
    setup.deliver([&noted("note/1", 3).in_epoch(2, None)]).await;
    let report = setup.report().await;
    assert_eq!(report["aggregates"][0]["missing"], json!([{"epoch": 2, "from": null, "to": 2}]));
    setup.request(json!({"request": "skip", "aggregate": "note/1", "epoch": 2, "through": 2})).await;
    assert_eq!(setup.applied("note/1").await, [(1, 1), (1, 2), (2, 3)]);
}
