//! docs/consumers.md: its code is that of the example in TypeScript, and it describes the errors in the log.

use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/consumers.md");

/// A text without indentation.
fn flat(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn code_of_the_page_is_that_of_the_example() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../consumers/typescript/test/order-mails.ts");
    let source = flat(&std::fs::read_to_string(path).unwrap());
    let block = PAGE.split("```ts\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(source.contains(&flat(block)), "{block}");
}

#[test]
fn each_error_in_the_log_is_on_the_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut lines = Vec::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let code = std::fs::read_to_string(path).unwrap();
        // The message is the last argument of the macro.
        let calls = code.split("tracing::error!(").skip(1).map(|rest| rest.split(");").next().unwrap());
        lines.extend(calls.map(|call| call.rsplit('"').nth(1).unwrap().to_owned()));
    }
    assert_eq!(lines.len(), 6, "{lines:?}");
    for line in lines {
        let known = PAGE.lines().filter_map(|row| row.strip_prefix("| `")?.split_once("` | "));
        assert!(known.clone().any(|(known, _)| line.starts_with(known)), "no row for {line:?}");
    }
}
