//! Calls and capacity units for each message. "Costs" in docs/consumers.md has the same figures.

use crate::journal::{Setup, noted};

/// The calls and units since they were last taken, as the page writes them.
fn taken(setup: &Setup) -> String {
    let (mut calls, mut reads, mut writes) = (Vec::new(), 0.0, 0.0);
    for call in setup.database.take_calls() {
        if call.operation == "TransactWriteItems" {
            writes += call.units
        } else {
            reads += call.units
        }
        calls.push(call.operation);
    }
    format!("{} | {reads} | {writes}", calls.join(", "))
}

#[tokio::test(start_paused = true)]
async fn calls_and_units_are_those_of_the_page() {
    let setup = Setup::new(1).await;
    let message = |number| noted("note/1", number);
    setup.deliver([&message(1)]).await;
    setup.database.take_calls();
    let mut measured = Vec::new();
    let mut measure = |what: &str| measured.push(format!("| {what} | {} |", taken(&setup)));
    setup.deliver([&message(2)]).await;
    measure("a message in order, with two rows that it reads and writes, and one that it only writes");
    setup.deliver([&message(2)]).await;
    measure("a message that was applied before");
    setup.deliver([&message(4)]).await;
    measure("a message before its turn");
    setup.deliver([&message(3)]).await;
    measure("the message before it, which closes the gap");
    setup.deliver(&(5..=14).map(message).collect::<Vec<_>>()).await;
    measure("ten messages in order of one aggregate, in one batch");
    let page = include_str!("../../../../docs/consumers.md");
    let missing: Vec<_> = measured.iter().filter(|row| !page.contains(*row)).collect();
    assert!(missing.is_empty(), "\"Costs\" in docs/consumers.md lacks {missing:#?}");
}
