//! `daybook projection switch` and `drop`: which version of a view readers get, and which versions there are.

use std::time::Duration;

use daybook_cli::operator::Exit;
use daybook_view_store::View;

use crate::projection::{REBUILD, five_accounts, json_of};
use crate::support::{Setup, key};
use crate::views::{version_1, version_2, versions_1_and_2};

#[tokio::test(flavor = "multi_thread")]
async fn switch_rejects_a_version_that_is_not_filled_and_a_second_switch_within_minutes() {
    let setup = five_accounts(versions_1_and_2).await;
    let worker = setup.worker(versions_1_and_2(), setup.table.engine.url());
    let api = setup.api(versions_1_and_2()).await;
    let lines = setup.daybook("projection switch totals 2 --json").await.expect(Exit::Findings);
    assert!(json_of(&lines[0])["rejected"].as_str().unwrap().starts_with("it is not filled"), "{lines:?}");
    assert_eq!(json_of(&lines[1])["summary"]["read"], 1);
    assert_eq!(
        setup.daybook("projection switch totals 1").await.expect(Exit::Clean),
        ["readers of totals get version 1 already"]
    );
    for (line, text) in [
        ("projection switch totals 7", "this code does not register version 7 of \"totals\", only 1, 2"),
        ("projection switch sums 1", "there is no projection \"sums\" in this code; known: totals"),
        ("projection rebuild sums", "there is no projection \"sums\""),
        ("projection status sums", "there is no projection \"sums\""),
    ] {
        let error = setup.daybook(line).await.ended.unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(text), "{error}");
    }

    setup.daybook(&format!("{REBUILD} --version 1")).await.expect(Exit::Clean);
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    setup.daybook("projection switch totals 2").await.expect(Exit::Clean);
    let lines = setup.daybook("projection switch totals 1").await.expect(Exit::Findings);
    assert!(lines[0].contains("rejected: the last switch was less than 5 minutes ago; wait until 20"), "{lines:?}");
    assert_eq!(api.row("total").await.unwrap().version, 2);
    setup.age_switch().await;
    setup.daybook("projection switch totals 1").await.expect(Exit::Clean);
    assert_eq!(api.row("total").await.unwrap().version, 1);
    setup.daybook("projection switch totals 2 --force").await.expect(Exit::Clean);
    assert_eq!(api.row("total").await.unwrap().version, 2);
    worker.stop().await;
}

impl Setup {
    /// Fills both versions. Then an instance of the previous release folds an event into version 1, as after a rollback.
    async fn fill_and_roll_back(&self, before_the_rollback: &[&str]) {
        let worker = self.worker(versions_1_and_2(), self.table.engine.url());
        self.daybook(&format!("{REBUILD} --version 1")).await.expect(Exit::Clean);
        self.daybook(REBUILD).await.expect(Exit::Clean);
        for line in before_the_rollback {
            self.daybook(line).await.expect(Exit::Clean);
            self.age_switch().await;
        }
        worker.stop().await;
        let previous = self.worker(version_1(), self.table.engine.url());
        self.deposit("a", 1).await;
        self.notify_projector("a").await;
        while self.view(1).await["total"].events < 16 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        previous.stop().await;
        assert_eq!(self.view(2).await["total"].events, 15);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_after_a_rollback_is_rejected_until_the_version_is_rebuilt() {
    let setup = five_accounts(versions_1_and_2).await;
    setup.fill_and_roll_back(&[]).await;
    let worker = setup.worker(versions_1_and_2(), setup.table.engine.url());
    let api = setup.api(versions_1_and_2()).await;
    assert_eq!(api.row("total").await.map(|row| (row.version, row.events)), Some((1, 16)));
    let lines = setup.daybook("projection switch totals 2").await.expect(Exit::Findings);
    let cause = "it may lack events, because a release without it has folded events since 20";
    assert!(lines[0].starts_with(&format!("totals@2 rejected: {cause}")), "{lines:?}");
    assert!(lines[0].ends_with("run `daybook projection rebuild totals --version 2` first"), "{lines:?}");
    let lines = setup.daybook("projection status totals").await.expect(Exit::Clean);
    assert!(lines[1].starts_with("totals@2 is not read, not filled, may lack events since 20"), "{lines:?}");

    let lines = setup.daybook(REBUILD).await.expect(Exit::Clean);
    assert!(lines[0].contains("; 1 sent in 1 messages;"), "{lines:?}");
    setup.daybook("projection switch totals 2").await.expect(Exit::Clean);
    assert_eq!(api.row("total").await.map(|row| (row.version, row.events)), Some((2, 16)));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_that_was_read_before_a_rollback_is_not_read_again_before_it_is_rebuilt() {
    let setup = five_accounts(versions_1_and_2).await;
    setup.fill_and_roll_back(&["projection switch totals 2"]).await;
    setup.daybook("projection switch totals 1").await.expect(Exit::Clean);
    assert_eq!(setup.mark(2).await.leads_since, None);
    setup.age_switch().await;
    let lines = setup.daybook("projection switch totals 2").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("totals@2 rejected: it may lack events, because"), "{lines:?}");
}

/// The next release registers another version too, and lets readers be switched between them.
#[tokio::test(flavor = "multi_thread")]
async fn switch_rejects_a_filled_version_that_does_not_lead_and_rebuild_lets_an_only_version_lead() {
    let mut setup = five_accounts(version_2).await;
    let worker = setup.worker(version_2(), setup.table.engine.url());
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    worker.stop().await;
    assert!(setup.mark(2).await.leads_since.is_some());
    setup.projections = versions_1_and_2;
    setup.daybook("projection switch totals 2").await.expect(Exit::Clean);
    setup.age_switch().await;
    setup.daybook("projection switch totals 1").await.expect(Exit::Clean);
    setup.age_switch().await;
    // As an earlier release has filled it.
    let views = setup.table.direct_views();
    views.begin_rebuild(&View::new("totals", 2), "{}", jiff::Timestamp::now()).await.unwrap();
    setup.set_filled(2).await;
    let lines = setup.daybook("projection switch totals 2").await.expect(Exit::Findings);
    let cause = "it may show events later than the version that readers get";
    assert!(lines[0].starts_with(&format!("totals@2 rejected: {cause}; run")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_rejects_the_version_that_is_read_and_a_version_that_the_code_registers() {
    let mut setup = five_accounts(versions_1_and_2).await;
    let worker = setup.worker(versions_1_and_2(), setup.table.engine.url());
    setup.daybook(&format!("{REBUILD} --version 1")).await.expect(Exit::Clean);
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    let lines = setup.daybook("projection drop totals 1 --yes").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("totals@1 rejected: this code registers it; deploy"), "{lines:?}");
    setup.daybook("projection switch totals 2").await.expect(Exit::Clean);
    // This code does not register version 2.
    setup.projections = version_1;
    let lines = setup.daybook("projection drop totals 2 --yes").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("totals@2 rejected: readers get this version; run"), "{lines:?}");
    assert_eq!((setup.view(1).await.len(), setup.view(2).await.len()), (6, 6));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_that_is_interrupted_is_repeated() {
    let mut setup = five_accounts(version_1).await;
    let worker = setup.worker(version_1(), setup.table.engine.url());
    setup.daybook(REBUILD).await.expect(Exit::Clean);
    worker.stop().await;
    setup.projections = version_2;
    let printed =
        setup.daybook_interrupted("projection drop totals 1 --yes --rate 1", Duration::from_millis(300)).await;
    let lines = printed.expect(Exit::Interrupted);
    assert!(lines[0].ends_with("items of totals@1 deleted; stopped early, run it again"), "{lines:?}");
    let status = setup.daybook("projection status").await.expect(Exit::Clean);
    assert!(status[0].starts_with("totals@1 is not read, is not registered by this code, filled at"), "{status:?}");
    setup.daybook("projection drop totals 1 --yes").await.expect(Exit::Clean);
    assert!(setup.view(1).await.is_empty());
    assert_eq!(setup.table.direct_views().projection_versions("totals").await.unwrap().marks.len(), 0);
    let position = setup.table.direct_views().positions(&View::new("totals", 1), &[key("account/a")].into()).await;
    assert!(position.unwrap().is_empty());
}
