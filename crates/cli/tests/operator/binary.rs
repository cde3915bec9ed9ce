//! The exit status and the output of the binary.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::documents::operator_commands;
use crate::support::Setup;

pub(crate) const DEV: [&str; 9] = [
    "dev",
    "--port",
    "0",
    "--dynamodb-port",
    "0",
    "--bus-port",
    "0",
    "--template",
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../template.yaml"),
];

async fn daybook<W: AsRef<std::ffi::OsStr>>(setup: Option<&Setup>, words: impl IntoIterator<Item = W>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    // Not in the folder of a project, whose local stack may be running.
    command.args(words).env_clear().current_dir(std::env::temp_dir());
    if let Some(setup) = setup {
        command.envs(setup.environment());
    }
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_status_is_0_when_clean_1_for_findings_and_2_for_usage() {
    let setup = Setup::new().await;
    setup.command("account/1", "OpenAccount", json!({})).await;
    let clean = daybook(Some(&setup), &["verify"]).await;
    assert_eq!(clean.status.code(), Some(0), "{}", text(&clean.stderr));
    assert!(text(&clean.stdout).starts_with("verified 1 aggregates: 1 events"), "{}", text(&clean.stdout));
    assert_eq!(text(&clean.stderr), "");

    setup.delete("account/1", "#METADATA").await;
    let findings = daybook(Some(&setup), &["verify", "account/1"]).await;
    assert_eq!(findings.status.code(), Some(1));
    assert!(text(&findings.stdout).starts_with("account/1 #METADATA missing: there is no metadata\n"));

    let usage = daybook(Some(&setup), &["verify", "account"]).await;
    assert_eq!(usage.status.code(), Some(2));
    assert!(text(&usage.stderr).contains("TYPE/ID"), "{}", text(&usage.stderr));

    let nowhere = daybook(None, &["republish", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"]).await;
    assert_eq!(nowhere.status.code(), Some(2));
    let expected =
        "daybook: environment variable TABLE_NAME is missing; the stack's output OperatorEnvironment has it\n";
    assert_eq!(text(&nowhere.stderr), expected);
}

/// No server listens at the endpoint: the command must end before any call.
#[test]
fn commands_at_a_deployed_stack_require_the_settings_that_decide_their_result() {
    let window = ["republish", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"];
    let rebuild = ["snapshot", "rebuild"];
    let import = ["import", "/dev/null", "--publish"];
    for (words, missing) in [
        (["verify"].as_slice(), "EVENT_TYPE_SHARDS"),
        (&["verify"], "EPOCH"),
        (&window, "EVENT_TYPE_SHARDS"),
        (&window, "FEED_DELAY_MS"),
        (&["feed"], "EVENT_TYPE_SHARDS"),
        (&["console"], "EVENT_TYPE_SHARDS"),
        (&["feed"], "FEED_DELAY_MS"),
        (&rebuild, "EVENT_TYPE_SHARDS"),
        (&["export", "-"], "EVENT_TYPE_SHARDS"),
        (&import, "EVENT_TYPE_SHARDS"),
        (&import, "SNAPSHOT_EVERY"),
        (&import, "EPOCH"),
        (&["import", "/dev/null", "--no-publish"], "EPOCH"),
        (&import, "OUTBOX_TTL_DAYS"),
        (&rebuild, "SNAPSHOT_EVERY"),
        (&["projection", "rebuild", "orders-by-day"], "EVENT_TYPE_SHARDS"),
        (&["projection", "suspended"], "VIEWS_TABLE_NAME"),
    ] {
        let all = [
            ("TABLE_NAME", "daybook"),
            ("EVENT_TYPE_SHARDS", "4"),
            ("FEED_DELAY_MS", "10000"),
            ("EPOCH", "2"),
            ("SNAPSHOT_EVERY", "9"),
            ("OUTBOX_TTL_DAYS", "7"),
        ];
        let output = Command::new(env!("CARGO_BIN_EXE_daybook"))
            .args(words)
            .env_clear()
            .env("AWS_ENDPOINT_URL_DYNAMODB", "https://dynamodb.invalid")
            .envs(all.into_iter().filter(|(name, _)| *name != missing))
            .output()
            .unwrap();
        let expected = format!(
            "daybook: environment variable {missing} is missing; the stack's output OperatorEnvironment has it\n"
        );
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), expected), "{words:?}");
    }
}

/// The metadata service of EC2 is disabled, because outside of EC2 the request for credentials takes seconds.
#[test]
fn commands_without_region_or_credentials_end_before_any_call() {
    let stack = [
        ("TABLE_NAME", "daybook"),
        ("EVENT_TYPE_SHARDS", "4"),
        ("EPOCH", "1"),
        ("EVENT_BUS_NAME", "main"),
        ("EVENT_SOURCE", "daybook"),
        ("DLQ_URL", "https://sqs.invalid/000000000000/dlq"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ];
    for words in [["verify", "account/1"].as_slice(), &["dlq", "list"], &["dlq", "redrive"], &["console"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command.args(words).env_clear().envs(stack);
        for (region, begins) in [
            (None, "daybook: no region is set: set AWS_REGION"),
            (Some("eu-central-1"), "daybook: no AWS credentials: set AWS_ACCESS_KEY_ID"),
        ] {
            let output = command.envs(region.map(|region| ("AWS_REGION", region))).output().unwrap();
            let stderr = text(&output.stderr);
            assert!(stderr.starts_with(begins) && !stderr.contains(['{', '\u{1b}']), "{words:?}: {stderr}");
            assert_eq!(output.status.code(), Some(2));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_error_names_the_argument_or_the_variable_that_was_set() {
    let setup = Setup::new().await;
    let wrong: [(&'static [&'static str], &str); 3] = [
        (&["dlq", "list", "--aggregate", "acme"], "TYPE/ID, as in account/123"),
        (&["dlq", "redrive", "--aggregate", "acme"], "TYPE/ID, as in account/123"),
        (&["verify", "--type", "todo", "account/1"], "cannot be used with"),
    ];
    for (words, expected) in wrong {
        let output = daybook(Some(&setup), words).await;
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(expected), "{words:?}: {}", text(&output.stderr));
    }
    let mut setup = setup;
    setup.settings.push(("EVENT_TYPE_SHARDS", "0".to_owned()));
    let output = daybook(Some(&setup), &["verify"]).await;
    assert!(text(&output.stderr).starts_with("daybook: environment variable EVENT_TYPE_SHARDS is \"0\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_local_stack_before_a_command_are_not_ignored() {
    for command in ["dev", "openapi", "verify"] {
        let output = daybook(None, ["--port", "4000", command]).await;
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(text(&output.stderr).contains(command), "{}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_a_closed_pipe_as_output_ends_silently() {
    let setup = Setup::new().await;
    let dev = DEV.as_slice();
    for words in [["verify"].as_slice(), &["openapi"], &["schemas"], &["completions", "bash"], dev] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command.args(words).env_clear().current_dir(std::env::temp_dir()).stdout(writer).stderr(Stdio::piped());
        if words != dev {
            command.envs(setup.environment());
        }
        let output = tokio::task::spawn_blocking(move || command.spawn()?.wait_with_output()).await.unwrap().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(141), String::new()), "{words:?}");
    }
}

#[test]
fn stack_prints_queue_and_table_of_each_rule_and_warns_of_unknown_names() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(DEV).env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.current_dir(std::env::temp_dir());
    for rule in [
        "order/* -> queue:work -> function:./nowhere",
        "ordr/* -> queue:seen",
        "* -> function:sh",
        "* -> function:http://127.0.0.1:9/web",
    ] {
        command.args(["--rule", rule]);
    }
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (sender, printed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        lines.skip_while(|line| !line.starts_with("  Bus, DLQ")).try_for_each(|line| sender.send(line))
    });
    // Long, because the machine may be busy.
    let mut printed = std::iter::from_fn(|| printed.recv_timeout(Duration::from_secs(30)).ok());
    let bus = printed.next().unwrap().split_whitespace().nth(2).unwrap().to_owned();
    let printed: Vec<_> = printed.take(11).collect();
    running.kill().unwrap();
    running.wait().unwrap();
    let expected = [
        "  Rule      order/* -> queue:work -> function:./nowhere".to_owned(),
        format!("            queue {bus}/000000000000/work"),
        "            table consumer-nowhere, which the function finds in TABLE_NAME".to_owned(),
        "  Rule      ordr/* -> queue:seen".to_owned(),
        format!("            queue {bus}/000000000000/seen"),
        "  Rule      * -> function:sh".to_owned(),
        "            table consumer-sh, which the function finds in TABLE_NAME".to_owned(),
        "  Rule      * -> function:http://127.0.0.1:9/web".to_owned(),
        "            table consumer-web; set TABLE_NAME to it where the function runs".to_owned(),
        "  Warning   --rule 'order/* -> queue:work -> function:./nowhere' names a program that does not exist yet; build \
         ./nowhere"
            .to_owned(),
        "  Warning   --rule 'ordr/* -> queue:seen' names an unknown aggregate type \"ordr\"; known: account, course, customer, \
         fulfilment, order, payment, reservation, shipment, student, subscription, todo"
            .to_owned(),
    ];
    assert_eq!(printed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn help_of_each_operator_command_explains_stack_and_exit_status() {
    for words in operator_commands() {
        let help = text(&daybook(None, words.iter().map(String::as_str).chain(["--help"])).await.stdout);
        assert!(help.contains("Exit status: 0"), "{words:?}: {help}");
        // It deploys a stack, so there is none to select.
        let of_stack = ["localhost:3000/_dev/environment", "in another shell", "OperatorEnvironment"];
        assert!(words == ["deploy"] || of_stack.iter().all(|text| help.contains(text)), "{words:?}: {help}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_above_the_last_id_does_not_restart_a_listing() {
    let output = daybook(None, ["verify", "--after", "TodoCreated/80000000000000000000000000"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected a cursor that an earlier run printed"), "{}", text(&output.stderr));
}

/// The commands that read the table, each with what it needs.
const TABLE_COMMANDS: [&[&str]; 8] = [
    &["get", "account/1"],
    &["events", "account/1"],
    &["feed"],
    &["verify"],
    &["republish", "--from", "2026-01-01T00:00:00Z", "--to", "2027-01-02T00:00:00Z"],
    &["snapshot", "rebuild"],
    &["export", "-"],
    &["import", "/dev/null", "--no-publish"],
];

#[tokio::test(flavor = "multi_thread")]
async fn missing_table_is_reported_with_table_region_and_endpoint() {
    let mut setup = Setup::new().await;
    let endpoint = setup.table.proxy.url().to_owned();
    setup.settings.push(("AWS_REGION", "eu-central-1".to_owned()));
    for words in TABLE_COMMANDS {
        let output = daybook(Some(&setup), words.iter().chain(&["--table", "not-there"])).await;
        let stderr = text(&output.stderr);
        for expected in ["\"not-there\" does not exist", "region ", &endpoint] {
            assert!(stderr.starts_with("daybook: ") && stderr.contains(expected), "{words:?}: {stderr}");
        }
        assert_eq!((stderr.lines().count(), output.status.code()), (1, Some(3)), "{words:?}: {stderr}");
    }
}

#[test]
fn exit_status_is_3_when_a_service_cannot_be_reached() {
    // While the socket holds the port, no server listens there.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", held.local_addr().unwrap());
    let queue_commands: [&[&str]; 5] =
        [&["dlq", "list"], &["dlq", "show", "1"], &["dlq", "stats"], &["dlq", "redrive"], &["dlq", "delete", "1"]];
    let start = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command.args(words).env_clear().env("TABLE_NAME", "daybook-dev").env("EVENT_BUS_NAME", "b");
        command.env("EVENT_SOURCE", "s").env("DLQ_URL", format!("{url}/000000000000/dlq"));
        for service in ["DYNAMODB", "EVENTBRIDGE", "SQS"] {
            command.env(format!("AWS_ENDPOINT_URL_{service}"), &url);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = TABLE_COMMANDS.into_iter().chain(queue_commands).map(|words| (words, start(words))).collect();
    for (words, process) in running {
        let output = process.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), String::new()), "{words:?}");
        assert!(text(&output.stderr).starts_with("daybook: "), "{words:?}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_ends_a_command_over_aggregates_with_status_130_and_how_to_go_on() {
    let setup = Setup::new().await;
    for id in 0..4 {
        setup.todo(&id.to_string(), 3).await;
    }
    let rebuild = ["snapshot", "rebuild", "--force", "--rate", "1", "--concurrency", "1"];
    let verify = ["verify", "--rate", "1", "--concurrency", "1"];
    for (words, signal) in [(rebuild.as_slice(), "TERM"), (&verify, "INT")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command.args(words).env_clear().envs(setup.environment()).stdout(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        let first = lines.next().unwrap();
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", running.id())]).status().unwrap();
        assert!(sent.success());
        let summary = lines.last().unwrap();
        assert!(summary.contains("; stopped early, go on with --after"), "{first}: {summary}");
        assert_eq!(running.wait().unwrap().code(), Some(130), "{words:?}");
        for id in 0..4 {
            // The next command prints a line for each aggregate.
            setup.delete(&format!("todo/{id}"), "#METADATA").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn summary_in_json_reports_whether_it_was_a_dry_run() {
    let setup = Setup::new().await;
    setup.todo("1", 1).await;
    let summary = |output: &Output| {
        let stdout = text(&output.stdout);
        serde_json::from_str::<serde_json::Value>(stdout.lines().last().unwrap()).unwrap()["summary"].clone()
    };
    let republish = TABLE_COMMANDS[4];
    for words in [republish, &["dlq", "redrive"], &["dlq", "delete", "--unreadable"]] {
        for (options, expected) in [(["--json"].as_slice(), true), (&["--json", "--yes"], false)] {
            let output = daybook(Some(&setup), words.iter().chain(options)).await;
            assert_eq!(summary(&output)["dryRun"], expected, "{words:?} {options:?}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn version_contains_the_commit_of_the_build() {
    let output = Command::new(env!("CARGO_BIN_EXE_daybook")).arg("--version").output().unwrap();
    let printed = text(&output.stdout);
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let expected = match head {
        Ok(head) if head.status.success() => format!(" ({})", &text(&head.stdout)[..12]),
        _ => String::new(),
    };
    assert_eq!(printed, format!("daybook {}{expected}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_of_each_shell_contain_all_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Command::new(env!("CARGO_BIN_EXE_daybook")).args(["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = text(&output.stdout);
        for command in [
            "dev",
            "openapi",
            "schemas",
            "completions",
            "verify",
            "dlq",
            "redrive",
            "republish",
            "snapshot",
            "rebuild",
            "load",
            "check-deployment",
            "export",
            "import",
            "projection",
            "switch",
        ] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}
