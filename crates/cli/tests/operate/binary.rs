//! The binary itself: what it ends with, and what it says where.

use std::process::{Command, Output};

use serde_json::json;

use crate::bench::Bench;

async fn daybook(bench: Option<&Bench>, words: &'static [&'static str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(words).env_clear();
    if let Some(bench) = bench {
        command.envs(bench.environment());
    }
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_what_scripts_go_by() {
    let bench = Bench::new().await;
    bench.command("account/1", "OpenAccount", json!({})).await;
    let clean = daybook(Some(&bench), &["verify"]).await;
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean.stderr));
    assert!(text(&clean.stdout).starts_with("verified 1 aggregates: 1 events"), "{}", text(&clean.stdout));
    assert_eq!(text(&clean.stderr), "");

    bench.delete("account/1", "#METADATA").await;
    let findings = daybook(Some(&bench), &["verify", "account/1"]).await;
    assert_eq!(findings.status.code(), Some(1));
    assert!(text(&findings.stdout).starts_with("account/1 #METADATA missing: there is no metadata\n"));

    let usage = daybook(Some(&bench), &["verify", "account"]).await;
    assert_eq!(usage.status.code(), Some(2));
    assert!(text(&usage.stderr).contains("TYPE/ID"), "{}", text(&usage.stderr));

    let nowhere = daybook(None, &["republish", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"]).await;
    assert_eq!(nowhere.status.code(), Some(2));
    let expected = "daybook: environment variable TABLE_NAME is missing; the stack's output OperatorEnvironment has it, or give \
                    --table\n";
    assert_eq!(text(&nowhere.stderr), expected);
}

/// Nothing listens there: it must end before it looks.
#[test]
fn at_a_deployed_stack_what_decides_has_no_default() {
    let window = ["republish", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"];
    let rebuild = ["snapshot", "rebuild"];
    for (words, missing, option) in [
        (["verify"].as_slice(), "EVENT_TYPE_SHARDS", ", or give --event-type-shards"),
        (&window, "EVENT_TYPE_SHARDS", ", or give --event-type-shards"),
        (&rebuild, "EVENT_TYPE_SHARDS", ", or give --event-type-shards"),
        (&rebuild, "SNAPSHOT_EVERY", ""),
        (&rebuild, "SNAPSHOT_KEEP", ""),
    ] {
        let all =
            [("TABLE_NAME", "daybook"), ("EVENT_TYPE_SHARDS", "4"), ("SNAPSHOT_EVERY", "9"), ("SNAPSHOT_KEEP", "3")];
        let output = Command::new(env!("CARGO_BIN_EXE_daybook"))
            .args(words)
            .env_clear()
            .env("AWS_ENDPOINT_URL_DYNAMODB", "https://dynamodb.invalid")
            .envs(all.into_iter().filter(|(name, _)| *name != missing))
            .output()
            .unwrap();
        let expected = format!(
            "daybook: environment variable {missing} is missing; the stack's output OperatorEnvironment has it{option}\n"
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), expected), "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_verb_explains_itself() {
    let verbs: [&[&str]; 6] = [
        &["verify", "--help"],
        &["dlq", "list", "--help"],
        &["dlq", "show", "--help"],
        &["dlq", "redrive", "--help"],
        &["republish", "--help"],
        &["snapshot", "rebuild", "--help"],
    ];
    for words in verbs {
        let help = text(&daybook(None, words).await.stdout);
        for expected in ["AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000", "OperatorEnvironment", "Exit status: 0"] {
            assert!(help.contains(expected), "{words:?}: {help}");
        }
    }
}
