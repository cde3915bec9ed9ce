//! `daybook projection`: rebuild, suspended and resume. `projection_versions` tests the other commands.

use std::time::Duration;

use daybook_cli::operator::Exit;
use daybook_local_aws::messaging::Faults;
use daybook_table::ChangedAggregates;
use daybook_test_support::fault_proxy::{FaultProxy, InjectedFault};
use serde_json::{Value, json};

use crate::rebuild::open_accounts;
use crate::support::Setup;
use crate::views::{Registered, invoke, version_1, version_2, versions_1_and_2, versions_1_and_4};

pub(crate) const REBUILD: &str = "projection rebuild totals --rate 100000 --send-again-after 1 --wait-for-projector 0";

pub(crate) fn json_of(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

pub(crate) async fn five_accounts(projections: fn() -> Registered) -> Setup {
    let setup = Setup::with_views(projections).await;
    for id in ["a", "b", "c", "d", "e"] {
        setup.quiet_account(id, &[10, 20]).await;
    }
    setup.table.proxy.take_calls();
    setup
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_switch_and_drop_replace_a_version_by_the_next_one() {
    let mut setup = five_accounts(versions_1_and_2).await;
    let worker = setup.worker(versions_1_and_2(), setup.table.engine.url());
    let api = setup.api(versions_1_and_2()).await;
    assert_eq!(api.row("total").await, None);
    let lines = setup.daybook(&format!("{REBUILD} --version 1")).await.expect(Exit::Clean);
    assert!(
        lines[0].starts_with("totals@1 is filled: 5 of 5 aggregates checked; 5 sent in 1 messages; 0 suspended"),
        "{lines:?}"
    );
    assert_eq!(api.row("total").await.map(|row| (row.version, row.events)), Some((1, 15)));

    let lines = setup.daybook(&format!("{REBUILD} --json")).await.expect(Exit::Clean);
    let summary = &json_of(&lines[0])["summary"];
    assert_eq!(
        (&summary["version"], &summary["filled"], &summary["counts"]["checked"]),
        (&json!(2), &json!(true), &json!(5))
    );
    assert_eq!(setup.view(2).await["total"].balance, 150);
    assert_eq!(api.row("total").await.map(|row| row.version), Some(1));

    let lines = setup.daybook("projection status totals").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("totals@1 is read, filled at 20"), "{lines:?}");
    assert!(lines[1].starts_with("totals@2 is not read, filled at 20"), "{lines:?}");
    assert_eq!(lines[2], "2 versions; 0 messages wait for the projector, 0 are in work");

    let lines = setup.daybook("projection switch totals 2").await.expect(Exit::Clean);
    assert_eq!(lines, ["readers of totals get version 2 from now on, instead of 1"]);
    // The same instance of the API.
    assert_eq!(api.row("total").await.map(|row| (row.version, row.events)), Some((2, 15)));
    worker.stop().await;

    // The next release.
    setup.projections = version_2;
    let api = setup.api(version_2()).await;
    assert_eq!(api.row("total").await.map(|row| row.version), Some(2));
    let lines = setup.daybook("projection drop totals 1").await.expect(Exit::Clean);
    // The rate limits deletions, not what is only counted.
    let slow = setup.daybook_interrupted("projection drop totals 1 --rate 1", Duration::from_secs(8)).await;
    assert_eq!(slow.expect(Exit::Clean), lines);
    let items: usize =
        lines[0].strip_suffix(" items of totals@1 would be deleted; run it with --yes").unwrap().parse().unwrap();
    // A row and a position for each account, and one to five parts of the total.
    assert!((11..=15).contains(&items), "{items}");
    assert_eq!(setup.view(1).await.len(), 6);
    let lines = setup.daybook("projection drop totals 1 --yes --json").await.expect(Exit::Clean);
    assert_eq!(json_of(&lines[0]), json!({"summary": {"dryRun": false, "items": items}}));
    assert!(setup.view(1).await.is_empty());
    assert_eq!(setup.view(2).await.len(), 6);
    let lines = setup.daybook("projection status --json").await.expect(Exit::Clean);
    let status = json_of(&lines[0]);
    assert_eq!((&status["version"], &status["read"], &status["registered"]), (&json!(2), &json!(true), &json!(true)));
    assert_eq!(lines.len(), 2);
}

/// An instance of the previous release takes messages and does not know the new version: nothing may be lost.
#[tokio::test(flavor = "multi_thread")]
async fn rebuild_waits_until_the_view_shows_each_aggregate_and_sends_it_again() {
    let setup = five_accounts(versions_1_and_2).await;
    let previous = setup.worker(version_1(), setup.table.engine.url());
    let current = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(setup.view(1).await["total"].events, 15);
        assert!(setup.view(2).await.is_empty());
        let status = setup.daybook("projection status totals").await.expect(Exit::Clean);
        assert!(status[1].contains("not filled, may lack events since 20"), "{status:?}");
        assert!(status[1].contains("; rebuild since 20"), "{status:?}");
        previous.stop().await;
        setup.worker(versions_1_and_2(), setup.table.engine.url())
    };
    let (printed, current) = tokio::join!(setup.daybook(REBUILD), current);
    let lines = printed.expect(Exit::Clean);
    assert!(lines[0].starts_with("totals@2 is filled: 5 of 5 aggregates checked;"), "{lines:?}");
    assert_eq!(setup.view(2).await["total"].events, 15);
    current.stop().await;
}

/// A batch whose messages are lost again and again must not delay the other batches.
#[tokio::test(flavor = "multi_thread")]
async fn rebuild_fills_all_other_aggregates_while_messages_about_some_are_lost() {
    const ACCOUNTS: usize = 1_000;
    let setup = Setup::with_views(version_1).await;
    open_accounts(&setup, ACCOUNTS).await;
    let projector = setup.projector(version_1(), setup.table.engine.url());
    let (sqs, url) = (setup.sqs(), setup.changes_url());
    let losing = async {
        let (mut lost, mut is_filled) = (0, false);
        while lost < 3 || !is_filled {
            let receive =
                sqs.receive_message().queue_url(&url).wait_time_seconds(1).visibility_timeout(setup.hidden_seconds);
            for message in receive.send().await.unwrap().messages.unwrap_or_default() {
                if message.body.as_ref().unwrap().contains("\"a000000\"") {
                    assert!(lost < 60, "only {} rows are filled", setup.view(1).await.len());
                    sqs.delete_message()
                        .queue_url(&url)
                        .receipt_handle(message.receipt_handle.unwrap())
                        .send()
                        .await
                        .unwrap();
                    lost += 1;
                } else {
                    invoke(&projector, (&sqs, &url), vec![message], setup.hidden_seconds).await;
                }
            }
            // The other batches: a row for each account, and the total.
            is_filled = setup.view(1).await.len() > ACCOUNTS - ChangedAggregates::MAX;
        }
        setup.worker(version_1(), setup.table.engine.url())
    };
    let (printed, worker) = tokio::join!(setup.daybook(REBUILD), losing);
    let lines = printed.expect(Exit::Clean);
    assert!(lines[0].starts_with("totals@1 is filled: 1001 of 1001 aggregates checked;"), "{lines:?}");
    assert_eq!(setup.view(1).await["total"].events, 1_001);
    worker.stop().await;
}

/// Between the passes, an instance of the previous release took the message of an aggregate that the first pass had done.
#[tokio::test(flavor = "multi_thread")]
async fn second_pass_of_a_rebuild_finds_events_that_only_the_previous_release_has_seen() {
    let setup = five_accounts(versions_1_and_2).await;
    let current = setup.worker(versions_1_and_2(), setup.table.engine.url());
    let rebuild = REBUILD.replace("--wait-for-projector 0", "--wait-for-projector 2");
    let late = async {
        while setup.mark(2).await.leads_since.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Nobody tells the projector.
        setup.deposit("c", 5).await;
    };
    let (printed, ()) = tokio::join!(setup.daybook(&rebuild), late);
    assert!(printed.expect(Exit::Clean)[0].contains("; 6 sent in 2 messages;"));
    assert_eq!(setup.view(2).await["account:c"].events, 4);
    current.stop().await;
}

/// The same on the local stack, which shows whether an invocation is running.
#[tokio::test(flavor = "multi_thread")]
async fn second_pass_of_a_rebuild_on_the_local_stack_waits_until_no_message_is_at_the_projector() {
    let setup = five_accounts(versions_1_and_2).await;
    let (sqs, url) = (setup.sqs(), setup.changes_url());
    setup.notify_projector("c").await;
    let received = sqs.receive_message().queue_url(&url).visibility_timeout(600).send().await.unwrap();
    let handle = received.messages()[0].receipt_handle().unwrap();
    let current = setup.worker(versions_1_and_2(), setup.table.engine.url());
    let late = async {
        while setup.mark(2).await.leads_since.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Only the invocation that is running takes the message.
        setup.deposit("c", 5).await;
        sqs.delete_message().queue_url(&url).receipt_handle(handle).send().await.unwrap();
    };
    let rebuild = REBUILD.replace("--wait-for-projector 0", "");
    let (printed, ()) = tokio::join!(setup.daybook(&rebuild), late);
    assert!(printed.expect(Exit::Clean)[0].contains("; 6 sent in 2 messages;"));
    assert_eq!(setup.view(2).await["account:c"].events, 4);
    current.stop().await;
}

/// The same, if the code registers the new version only: an instance of the previous release may still be running.
#[tokio::test(flavor = "multi_thread")]
async fn second_pass_of_a_rebuild_of_an_only_version_waits_for_the_previous_release() {
    let setup = five_accounts(version_2).await;
    let current = setup.worker(version_2(), setup.table.engine.url());
    let rebuild = REBUILD.replace("--wait-for-projector 0", "--wait-for-projector 3");
    let late = async {
        while setup.mark(2).await.leads_since.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The previous release takes the message.
        setup.deposit("c", 5).await;
    };
    let (printed, ()) = tokio::join!(setup.daybook(&rebuild), late);
    assert!(printed.expect(Exit::Clean)[0].contains("; 6 sent in 2 messages;"));
    assert_eq!(setup.view(2).await["account:c"].events, 4);
    current.stop().await;
}

/// An instance of the previous release makes the projector's version fall behind again, after it began to lead.
#[tokio::test(flavor = "multi_thread")]
async fn rebuild_does_not_end_if_the_previous_release_folds_events_meanwhile() {
    let setup = five_accounts(versions_1_and_2).await;
    let worker = setup.worker(versions_1_and_2(), setup.table.engine.url());
    let rebuild = REBUILD.replace("--wait-for-projector 0", "--wait-for-projector 4");
    let late = async {
        while setup.mark(2).await.leads_since.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.stop().await;
        let previous = setup.worker(version_1(), setup.table.engine.url());
        setup.notify_projector("c").await;
        while setup.mark(2).await.missed_since.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        previous.stop().await;
    };
    let (printed, ()) = tokio::join!(setup.daybook(&rebuild), late);
    let lines = printed.expect(Exit::Findings);
    assert!(lines[0].starts_with("totals@2 is not filled: 5 of 5 aggregates checked;"), "{lines:?}");
    assert!(lines[0].ends_with("run it again after all instances of the release without this version have ended"));
    setup.daybook("projection switch totals 2").await.expect(Exit::Findings);
    // The second pass begins anew.
    let lines = setup.daybook(REBUILD).await.expect(Exit::Clean);
    assert!(lines[0].starts_with("totals@2 is filled: 5 of 5 aggregates checked;"), "{lines:?}");
    setup.daybook("projection switch totals 2").await.expect(Exit::Clean);
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_makes_one_call_of_each_kind_for_a_hundred_aggregates() {
    let setup = Setup::with_views(version_1).await;
    for id in 0..150 {
        setup.quiet_account(&id.to_string(), &[]).await;
    }
    let worker = setup.worker(version_1(), setup.table.engine.url());
    // A busy machine may need longer than a second, after which messages would be sent again.
    let rebuild = REBUILD.replace("--send-again-after 1", "--send-again-after 600");
    let lines = setup.daybook(&format!("{rebuild} --json")).await.expect(Exit::Clean);
    let summary = &json_of(&lines[0])["summary"];
    assert_eq!(summary["counts"]["filled"], 150);
    assert_eq!(summary["counts"]["messages"], 2, "{summary}");
    // Two batches: metadata and positions before, probes, positions after; and the second pass.
    let calls = |operation: &str| summary["usage"]["calls"][operation].as_u64().unwrap_or_default();
    assert!(calls("BatchGetItem") < 40, "{summary}");
    assert_eq!(calls("SendMessage"), 2);
    assert!(calls("GetItem") + calls("UpdateItem") < 12, "{summary}");
    // One for each possible index partition, to check EVENT_TYPE_SHARDS once, and one for each page of both passes.
    assert!(calls("Query") < 80, "{summary}");
    assert!(summary["usage"]["readUnits"].as_f64().unwrap() >= 5.0 * 150.0, "{summary}");

    // A view that is filled already costs reads only.
    let lines = setup.daybook(&format!("{REBUILD} --json")).await.expect(Exit::Clean);
    let summary = &json_of(&lines[0])["summary"];
    assert_eq!((&summary["counts"]["sent"], &summary["counts"]["filled"]), (&json!(0), &json!(150)));
    worker.stop().await;
}

/// What a rebuild costs the projector, which also checks whether the version that readers get is up to date.
#[tokio::test(flavor = "multi_thread")]
async fn projector_folds_a_rebuild_with_few_calls_and_units_for_each_aggregate() {
    const ACCOUNTS: usize = 500;
    let mut setup = Setup::with_views(versions_1_and_2).await;
    // However slow the machine is, no message is received twice.
    setup.hidden_seconds = 3_600;
    open_accounts(&setup, ACCOUNTS - 1).await;
    let rebuild = REBUILD.replace("--send-again-after 1", "--send-again-after 600");
    let previous = setup.worker(version_1(), setup.table.engine.url());
    setup.daybook(&format!("{rebuild} --version 1")).await.expect(Exit::Clean);
    previous.stop().await;
    let proxy = FaultProxy::to(setup.table.engine.url()).await.unwrap();
    let worker = setup.worker(versions_1_and_2(), proxy.url());
    setup.daybook(&rebuild).await.expect(Exit::Clean);
    worker.stop().await;
    let calls = proxy.take_calls();
    let usage = |operation: &str| {
        let calls = calls.iter().filter(|call| call.operation == operation);
        calls.fold((0, 0.0), |(count, units), call| (count + 1, units + call.table_units))
    };
    let (reads, queries, writes) = (usage("BatchGetItem"), usage("Query"), usage("TransactWriteItems"));
    let figures = format!("BatchGetItem {reads:?}, Query {queries:?}, TransactWriteItems {writes:?}");
    // The events after the position in each version, and the marks of the versions in each invocation.
    assert!((2 * ACCOUNTS..=2 * ACCOUNTS + 10).contains(&queries.0), "{figures}");
    // The positions in both versions, and the row of the account in version 2.
    assert!((3.0..3.2).contains(&(reads.1 / ACCOUNTS as f64)), "{figures}");
    // The row, the position, and the parts of the total.
    assert!((4.0..4.25).contains(&(writes.1 / ACCOUNTS as f64)), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_that_is_interrupted_or_fails_goes_on_where_it_ended() {
    let setup = five_accounts(version_1).await;
    // No projector is running: the rebuild waits.
    let (interrupted, ()) = tokio::join!(
        setup.daybook_interrupted(REBUILD, Duration::from_millis(300)),
        tokio::time::sleep(Duration::from_millis(10))
    );
    let lines = interrupted.expect(Exit::Interrupted);
    assert!(
        lines[0].contains("totals@1 is not filled: 0 aggregates filled;")
            && lines[0].ends_with("; stopped early, run it again"),
        "{lines:?}"
    );
    setup.fail(json!({"sendMessage": [{"code": "AccessDenied", "http": 403, "forever": true}]}));
    let failed = setup.daybook(REBUILD).await;
    assert_eq!(failed.ended.unwrap_err().exit_code(), 3);
    setup.bus.set_faults(Faults::default());
    setup.table.proxy.fail_next("BatchGetItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let failed = setup.daybook(REBUILD).await;
    assert!(failed.ended.unwrap_err().to_string().contains("run it again to go on"));
    let worker = setup.worker(version_1(), setup.table.engine.url());
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    assert_eq!(setup.view(1).await["total"].events, 15);
    worker.stop().await;
}

// suspended and resume

#[tokio::test(flavor = "multi_thread")]
async fn suspended_aggregate_leaves_the_version_unfilled_until_it_is_resumed() {
    let mut setup = five_accounts(versions_1_and_4).await;
    setup.deposit("b", 13).await;
    setup.deposit("b", 1).await;
    let broken = setup.worker(versions_1_and_4(), setup.table.engine.url());
    let lines = setup.daybook(REBUILD).await.expect(Exit::Findings);
    assert!(lines[0].starts_with("totals@4 account/b suspended: advance of totals panicked"), "{lines:?}");
    assert!(lines[1].starts_with("totals@4 is not filled: 5 of 5 aggregates checked;"), "{lines:?}");
    // The version that is read goes on.
    assert_eq!(setup.view(1).await["account:b"].events, 5);
    let lines = setup.daybook("projection switch totals 4").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("totals@4 rejected: it is not filled; run"), "{lines:?}");
    let lines = setup.daybook("projection suspended --json").await.expect(Exit::Findings);
    let found = json_of(&lines[0]);
    assert_eq!((&found["aggregate"], &found["version"], &found["seqNum"]), (&json!("account/b"), &json!(4), &json!(3)));
    broken.stop().await;

    // A release that can fold the event, with the same version.
    setup.projections = repaired;
    let worker = setup.worker(repaired(), setup.table.engine.url());
    let without_queue = format!("CHANGES_QUEUE_URL={}-none projection resume", setup.changes_url());
    assert!(setup.daybook(&without_queue).await.ended.is_err());
    let lines = setup.daybook("projection resume").await.expect(Exit::Clean);
    assert_eq!(lines, ["totals@4 account/b resumed", "1 resumed"]);
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    setup.daybook("projection suspended").await.expect(Exit::Clean);
    assert_eq!(setup.daybook("projection resume account/b").await.expect(Exit::Clean), ["0 resumed"]);
    setup.daybook("projection switch totals 4").await.expect(Exit::Clean);
    worker.stop().await;
}

/// Version 4 without its error.
fn repaired() -> Registered {
    version_1()?.with::<crate::views::RepairedTotals>()
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_views_table_is_reported() {
    let mut setup = five_accounts(version_1).await;
    setup.settings.push(("VIEWS_TABLE_NAME", "not-there".to_owned()));
    for line in
        ["projection status", "projection suspended", "projection switch totals 1", "projection drop totals 9", REBUILD]
    {
        let error = setup.daybook(line).await.ended.unwrap_err();
        let text = error.to_string();
        assert!(
            error.exit_code() == 3 && text.contains("the views table does not exist: check VIEWS_TABLE_NAME"),
            "{line}: {text}"
        );
    }
}
