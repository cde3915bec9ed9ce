//! Tests that the console made. `crates/console/tests/visits/commands.rs` compares them with what it makes now.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[rustfmt::skip]
mod rejected {
use daybook::Aggregate;
use daybook::given::given;

type Subject = aggregates::account::Account;

fn event(json: &str) -> <Subject as Aggregate>::Event {
    serde_json::from_str(json).unwrap()
}

fn command(json: &str) -> <Subject as Aggregate>::Command {
    serde_json::from_str(json).unwrap()
}

#[test]
fn record_transaction_on_account_123() {
    given::<Subject>([
        event(r#"{"type":"AccountOpened","data":{"id":"123"}}"#),
        event(r#"{"type":"OwnerUpdated","data":{"ownerFirst":"John","ownerLast":"Brown"}}"#),
        event(r#"{"type":"TransactionAccepted","data":{"desc":"A","amount":200}}"#),
        event(r#"{"type":"TransactionAccepted","data":{"desc":"B","amount":-300}}"#),
    ])
        .with_id("123")
        .at("2026-11-22T12:00:00.000Z")
        .when(command(r###"{"command":"RecordTransaction","data":{"amount":-5000,"desc":"\"#quoted\"##"}}"###))
        .then_rejected("InsufficientFunds", [
            event(r###"{"type":"TransactionFailed","data":{"desc":"\"#quoted\"##","amount":-5000}}"###),
        ])
        .announces(["transactionFailed"]);
}
}

#[rustfmt::skip]
mod accepted {
use daybook::Aggregate;
use daybook::given::given;

type Subject = aggregates::account::Account;

fn event(json: &str) -> <Subject as Aggregate>::Event {
    serde_json::from_str(json).unwrap()
}

fn command(json: &str) -> <Subject as Aggregate>::Command {
    serde_json::from_str(json).unwrap()
}

#[test]
fn record_transaction_on_account_123() {
    given::<Subject>([
        event(r#"{"type":"AccountOpened","data":{"id":"123"}}"#),
        event(r#"{"type":"OwnerUpdated","data":{"ownerFirst":"John","ownerLast":"Brown"}}"#),
        event(r#"{"type":"TransactionAccepted","data":{"desc":"A","amount":200}}"#),
        event(r#"{"type":"TransactionAccepted","data":{"desc":"B","amount":-300}}"#),
        event(r###"{"type":"TransactionFailed","data":{"desc":"\"#quoted\"##","amount":-5000}}"###),
    ])
        .with_id("123")
        .at("2026-11-22T12:00:00.000Z")
        .when(command(r#"{"command":"RecordTransaction","data":{"amount":600,"desc":"C"}}"#))
        .then([
            event(r#"{"type":"TransactionAccepted","data":{"desc":"C","amount":600}}"#),
        ])
        .announces([]);
}
}

#[rustfmt::skip]
mod state {
use daybook::Aggregate;
use daybook::given::given;

type Subject = aggregates::account::Account;

fn event(json: &str) -> <Subject as Aggregate>::Event {
    serde_json::from_str(json).unwrap()
}

#[test]
fn state_of_account_123_at_version_4() {
    let state = given::<Subject>([
        event(r#"{"type":"AccountOpened","data":{"id":"123"}}"#),
        event(r#"{"type":"OwnerUpdated","data":{"ownerFirst":"John","ownerLast":"Brown"}}"#),
        event(r#"{"type":"TransactionAccepted","data":{"desc":"A","amount":200}}"#),
        event(r#"{"type":"TransactionAccepted","data":{"desc":"B","amount":-300}}"#),
    ]).with_id("123").state();
    let expected: serde_json::Value = serde_json::from_str(r#"{"id":"123","ownerFirst":"John","ownerLast":"Brown","balance":-100,"minimumBalance":-1000}"#).unwrap();
    assert_eq!(serde_json::to_value(state).unwrap(), expected);
}
}

#[rustfmt::skip]
mod personal {
use daybook::Aggregate;
use daybook::given::given;

type Subject = aggregates::customer::Customer;

fn event(json: &str) -> <Subject as Aggregate>::Event {
    serde_json::from_str(json).unwrap()
}

#[test]
fn state_of_customer_9_at_version_1() {
    let state = given::<Subject>([
        event(r#"{"type":"CustomerRegistered","data":{"email":{"$personal":{"of":"customer/9","value":"ann@example.com"}},"name":{"$personal":{"of":"customer/9","value":"Ann"}}}}"#),
    ]).with_id("9").state();
    let expected: serde_json::Value = serde_json::from_str(r#"{"email":{"$personal":{"of":"customer/9","value":"ann@example.com"}},"name":{"$personal":{"of":"customer/9","value":"Ann"}}}"#).unwrap();
    assert_eq!(serde_json::to_value(state).unwrap(), expected);
}
}

#[rustfmt::skip]
mod forgotten {
use daybook::Aggregate;
use daybook::given::given;

type Subject = aggregates::customer::Customer;

fn event(json: &str) -> <Subject as Aggregate>::Event {
    serde_json::from_str(json).unwrap()
}

#[test]
fn state_of_customer_9_at_version_2() {
    let state = given::<Subject>([
        event(r#"{"type":"CustomerRegistered","data":{"email":{"$personal":{"of":"customer/9","value":"ann@example.com"}},"name":{"$personal":{"of":"customer/9","value":"Ann"}}}}"#),
        event(r#"{"type":"CustomerForgotten","data":{}}"#),
    ]).with_id("9").state();
    let expected: serde_json::Value = serde_json::from_str(r#"{"email":{"$personal":{"of":"customer/9"}},"name":{"$personal":{"of":"customer/9"}},"forgotten":true}"#).unwrap();
    assert_eq!(serde_json::to_value(state).unwrap(), expected);
}
}
