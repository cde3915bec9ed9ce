//! docs/consumers.md: its code is that of the examples, and it describes the errors in the log.

use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/consumers.md");

/// The code blocks of the page in a language.
fn blocks(language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let blocks = PAGE.split(&begin).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// A text without indentation.
fn flat(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn code_of_the_page_is_that_of_the_examples() {
    // The tutorial has the code in Rust, and `.ci/tutorial.py` compiles it.
    let examples = [
        ("rust", 0, "app/order-mails/src/lib.rs"),
        ("ts", 1, "consumers/typescript/test/order-mails.ts"),
        ("python", 1, "app/carrier/src/carrier.py"),
    ];
    for (language, count, path) in examples {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        let source = flat(&std::fs::read_to_string(path).unwrap());
        let blocks = blocks(language);
        assert_eq!(blocks.len(), count, "{language}");
        for block in blocks {
            assert!(source.contains(&flat(&block)), "{block}");
        }
    }
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
