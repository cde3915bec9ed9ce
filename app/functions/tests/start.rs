//! The function's process logs why it cannot start.

use std::process::Command;

use serde_json::Value;

#[test]
fn bad_setting_ends_the_process_with_an_error_line() {
    let environment = [("TABLE_NAME", "daybook"), ("EVENT_TYPE_SHARDS", "0"), ("AWS_REGION", "us-east-1")];
    let output = Command::new(env!("CARGO_BIN_EXE_command-handler")).env_clear().envs(environment).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["level"], "ERROR");
    let expected = r#"environment variable EVENT_TYPE_SHARDS is "0", expected a whole number from 1 to 64"#;
    assert_eq!((&line["message"], &line["error"]), (&"the function cannot run".into(), &expected.into()));
}
