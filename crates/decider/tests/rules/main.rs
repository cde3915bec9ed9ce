//! The examples of docs/rules.md, each a rule across aggregates, and the test that the page shows their code.
//!
//! The course subscriptions are the samples in `app/aggregates`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod invoice;
mod opt_in;
mod price;
mod username;

use std::path::Path;

use daybook_decider::Registry;

/// The files whose code the page shows.
const SOURCES: [&str; 8] = [
    "app/aggregates/src/course.rs",
    "app/aggregates/src/customer.rs",
    "app/aggregates/src/subscription.rs",
    "crates/decider/tests/rules/invoice.rs",
    "crates/decider/tests/rules/opt_in.rs",
    "crates/decider/tests/rules/price.rs",
    "crates/decider/tests/rules/username.rs",
    "crates/decider/tests/rules/main.rs",
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The lines without their indentation and without empty lines.
fn lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[test]
fn page_shows_code_that_is_tested() {
    let sources: Vec<_> = SOURCES.iter().map(|path| lines(&read(path))).collect();
    let page = read("docs/rules.md");
    let blocks: Vec<_> = page.split("```rust\n").skip(1).map(|rest| lines(rest.split("```").next().unwrap())).collect();
    assert!(blocks.len() > 7, "{}", blocks.len());
    for block in blocks {
        let is_shown = |part: &str| sources.iter().any(|source| source.contains(part));
        // Parts of the code are left out.
        for part in block.split("// …\n") {
            assert!(is_shown(part), "no source has this code of docs/rules.md:\n{part}");
        }
    }
}

#[test]
fn examples_can_be_registered() {
    let registry = Registry::new().with::<invoice::Invoice>().unwrap().with::<invoice::Series>().unwrap();
    let registry = registry.with::<opt_in::SignUp>().unwrap().with::<opt_in::Account>().unwrap();
    let registry = registry.with::<price::Product>().unwrap().with::<price::Order>().unwrap();
    assert_eq!(registry.with::<username::Account>().unwrap().iter().count(), 7);
}
