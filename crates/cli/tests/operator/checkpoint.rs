//! Checkpoint files: a run that ended early is continued by the next one.

use std::path::Path;

use daybook_cli::operator::{ErrorExit, Exit};
use daybook_test_support::fault_proxy::InjectedFault;

use crate::support::{Printed, Setup};

/// Six to-dos, each without its first message, in two index partitions.
async fn setup() -> Setup {
    let setup = Setup::with(&[("EVENT_TYPE_SHARDS", "2"), ("SNAPSHOT_EVERY", "1")]).await;
    for id in 1..=6 {
        setup.todo(&id.to_string(), 1).await;
        setup.delete(&format!("todo/{id}"), "OUTBOX#000000000001#0").await;
    }
    setup
}

/// Runs a command until it is done. It is interrupted after each second line. Returns all lines but the summaries, and the
/// last summary.
async fn in_parts(setup: &Setup, line: &str, file: &Path) -> (Vec<String>, String) {
    let mut lines = Vec::new();
    for part in 0.. {
        let Printed { ended, lines: mut printed } = setup.daybook_until(line, 2).await;
        let summary = printed.pop().unwrap();
        lines.extend(printed);
        if ended.unwrap() != Exit::Interrupted {
            assert!(part > 0 && !file.exists());
            return (lines, summary);
        }
        assert!(file.exists());
        let next = format!("; stopped early, run it again with the same options: {} has the progress", file.display());
        assert!(summary.ends_with(&next), "{summary}");
    }
    unreachable!()
}

#[tokio::test]
async fn interrupted_walk_continues_from_its_checkpoint_and_counts_everything_once() {
    let setup = setup().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let with_file = format!("--rate 100000 --concurrency 1 --checkpoint {}", file.display());
    let mut all = setup.daybook("verify --rate 100000").await.expect(Exit::Findings);
    let summary = all.pop().unwrap();
    assert_eq!(in_parts(&setup, &format!("verify {with_file}"), &file).await, (all, summary));

    let (taken, summary) = in_parts(&setup, &format!("snapshot rebuild {with_file}"), &file).await;
    assert_eq!(taken.len(), 6);
    assert!(summary.starts_with("6 snapshots taken; 0 aggregates had a current one"), "{summary}");
}

#[tokio::test]
async fn interrupted_scan_continues_in_each_segment_and_leaves_out_nothing() {
    let setup = setup().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    // A page ends within the rows of an aggregate.
    let short_pages = || {
        for _ in 0..60 {
            setup.table.proxy.fail_next("Scan", InjectedFault::ShortPage { items: 1 });
        }
    };
    short_pages();
    let mut all = setup.daybook("verify --scan --rate 100000").await.expect(Exit::Findings);
    assert!(all.pop().unwrap().starts_with("verified 6 aggregates: 6 events"));
    short_pages();
    let line = format!("verify --scan --rate 100000 --concurrency 1 --checkpoint {}", file.display());
    let (mut found, summary) = in_parts(&setup, &line, &file).await;
    assert!(summary.starts_with("verified 6 aggregates: 6 events"), "{summary}");
    all.sort();
    found.sort();
    assert_eq!(found, all);
}

#[tokio::test]
async fn checkpoint_of_a_run_with_other_options_is_rejected() {
    let setup = setup().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress").display().to_string();
    let run = async |line: &str| setup.daybook_until(&format!("{line} --checkpoint {file}"), 1).await.ended;
    assert_eq!(run("verify --concurrency 1").await.unwrap(), Exit::Interrupted);
    for (line, reason) in [
        ("verify --type todo", r#"types was []; in this one it is ["todo"]"#),
        ("verify --scan", "scan was false; in this one it is true"),
        ("EVENT_TYPE_SHARDS=3 verify", "EVENT_TYPE_SHARDS was 2; in this one it is 3"),
        ("snapshot rebuild", r#"command was "verify"; in this one it is "snapshot rebuild""#),
    ] {
        let error = run(line).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    // The rate and the concurrency are not among the options that must be equal.
    assert_eq!(run("verify --rate 7").await.unwrap(), Exit::Interrupted);
}

/// The process ends without another write of its checkpoint.
#[tokio::test]
async fn walk_after_a_crash_repeats_results_and_leaves_out_none() {
    let setup = setup().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let mut all = setup.daybook("verify --rate 100000").await.expect(Exit::Findings);
    let summary = all.pop().unwrap();
    let line = format!("verify --concurrency 1 --checkpoint {}", file.display());
    setup.daybook_crashed(&line, 3).await;
    assert!(file.exists());
    let mut lines = setup.daybook(&line).await.expect(Exit::Findings);
    assert_eq!(lines.pop().unwrap(), summary);
    assert!(lines.len() >= all.len() - 3 && all.ends_with(&lines), "{lines:?}");
}

#[tokio::test]
async fn walk_after_a_failed_table_continues_from_its_checkpoint() {
    let setup = setup().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("progress");
    let line = format!("verify --scan --concurrency 1 --checkpoint {}", file.display());
    setup.table.proxy.fail_next("Scan", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let error = setup.daybook(&line).await.ended.unwrap_err();
    let expected = format!("stopped early, run it again with the same options: {} has the progress", file.display());
    assert_eq!((error.to_string(), error.exit_code()), (expected, 3));
    let summary = setup.daybook(&line).await.expect(Exit::Findings).pop().unwrap();
    assert!(summary.starts_with("verified 6 aggregates: 6 events"), "{summary}");
    assert!(!file.exists());
}
