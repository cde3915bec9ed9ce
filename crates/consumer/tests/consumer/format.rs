//! The stored format: items of earlier releases must stay readable. `tests/golden-rows` has those of each release.

use std::collections::BTreeSet;

use daybook_test_support::golden_rows::{assert_format, releases};

use crate::journal::{Setup, first, noted};

const FILE: &str = "consumer.json";

#[tokio::test(start_paused = true)]
async fn this_release_writes_the_format_of_the_newest_golden_items() {
    let setup = Setup::new(1).await;
    setup.deliver([&noted("note/1", 1), &noted("note/1", 3)]).await;
    assert_format(FILE, setup.database.items());
}

#[tokio::test(start_paused = true)]
async fn golden_items_have_every_kind_of_item() {
    let (_, items) = releases(FILE).pop().unwrap();
    let key =
        |item: &serde_json::Value| ["pk", "sk"].map(|name| item[name]["S"].as_str().unwrap().to_owned()).join(" ");
    let keys: BTreeSet<_> = items.iter().map(key).collect();
    let expected = [
        "INCOMPLETE#journal note/1",
        "POSITION#journal#note#1 #POSITION",
        "POSITION#journal#note#1 WAITING#0000000001#00000000000000000003",
        "ROW#journal#note/1 #LIST",
        "ROW#journal#note/1 note-1-1-1",
        "ROW#journal#total #TOTAL",
    ];
    assert_eq!(keys, expected.map(str::to_owned).into());
}

#[tokio::test(start_paused = true)]
async fn items_of_each_release_are_read_and_continued() {
    for (release, items) in releases(FILE) {
        let setup = Setup::new(1).await;
        for item in &items {
            setup.database.show(item);
        }
        assert_eq!((setup.applied("note/1").await, setup.total().await), (first(1), 1), "{release}");
        assert_eq!(setup.report().await["total"], 1, "{release}: incomplete aggregates");
        // The first message is known, and the second one ends the wait of the third.
        setup.deliver([&noted("note/1", 1), &noted("note/1", 2)]).await;
        assert_eq!((setup.applied("note/1").await, setup.total().await), (first(3), 3), "{release}");
        setup.deliver([&noted("note/1", 4)]).await;
        assert_eq!(setup.applied("note/1").await, first(4), "{release}");
        assert_eq!(setup.report().await["total"], 0, "{release}");
    }
}
