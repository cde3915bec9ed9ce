//! `daybook forget`, and personal data in `daybook verify`, `export` and `import`.

use std::fs;

use aggregates::customer::{self, Customer};
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Claim, Commands, Context, Decision, EventType, Registry,
};
use daybook_table::AggregateKey;
use daybook_test_support::row::sealed;
use daybook_test_support::table::KEYS_TABLE;
use serde_json::json;

use crate::support::Setup;

async fn register(setup: &Setup) -> AggregateKey {
    let data = json!({"email": "ann@example.com", "name": "Ann"});
    setup.command("customer/7", "RegisterCustomer", data).await;
    AggregateKey::new("customer", "7")
}

async fn key_row(setup: &Setup) -> Option<std::collections::HashMap<String, AttributeValue>> {
    let get = setup.table.raw.get_item().table_name(KEYS_TABLE);
    get.key("pk", AttributeValue::S("customer/7".to_owned())).send().await.unwrap().item
}

#[tokio::test]
async fn forget_ends_the_key_once_it_is_confirmed() {
    let setup = Setup::new().await;
    register(&setup).await;
    let lines = setup.daybook("forget customer/7").await.expect(Exit::Clean);
    assert_eq!(lines, ["customer/7 would get ForgetCustomer; this was a dry run, --yes sends it"]);
    assert!(key_row(&setup).await.unwrap().contains_key("key"));
    let lines = setup.daybook("forget customer/7 --yes --verify").await.expect(Exit::Clean);
    assert_eq!(lines, ["customer/7 is forgotten since event 2"]);
    assert!(!key_row(&setup).await.unwrap().contains_key("key"));
    let lines = setup.daybook("forget customer/7 --yes").await.expect(Exit::Clean);
    assert_eq!(lines, ["customer/7 was forgotten before; its key has ended"]);
}

#[tokio::test]
async fn finding_about_a_missing_message_has_the_words_of_verify() {
    let setup = Setup::new().await;
    register(&setup).await;
    setup.delete("customer/7", "OUTBOX#000000000001#0").await;
    let lines = setup.daybook("forget customer/7 --yes --verify").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("customer/7 OUTBOX#000000000001#0 missing: message 1"), "{lines:?}");
    assert!(lines[0].ends_with("unless the clock of the local stack was moved"), "{lines:?}");
}

/// A customer who alone may send commands.
struct Owned;

impl Aggregate for Owned {
    const TYPE: &'static str = Customer::TYPE;
    const STATE_VERSION: u32 = Customer::STATE_VERSION;
    const COMMANDS: Commands = Customer::COMMANDS;
    const EVENTS: &'static [EventType] = Customer::EVENTS;
    const FORGET: Option<&'static str> = Customer::FORGET;

    type State = customer::State;
    type Command = customer::Command;
    type Event = customer::Event;

    fn decide(
        state: &Self::State,
        command: Self::Command,
        context: &Context<'_, Self::Event>,
    ) -> Decision<Self::Event> {
        Customer::decide(state, command, context)
    }

    fn evolve(state: Self::State, event: &Self::Event) -> Self::State {
        Customer::evolve(state, event)
    }

    fn claims(state: &Self::State) -> Vec<Claim> {
        Customer::claims(state)
    }

    fn is_forgotten(state: &Self::State) -> bool {
        Customer::is_forgotten(state)
    }

    fn authorize(
        caller: &Caller,
        _: Access<'_, Self::Command>,
        id: Option<&str>,
        _: Option<&Self::State>,
    ) -> Authorization {
        (caller.principal.as_deref() == id).into()
    }
}

#[tokio::test]
async fn dry_run_is_refused_as_the_command_would_be() {
    let mut setup = Setup::new().await;
    register(&setup).await;
    setup.aggregates = || Registry::new().with::<Owned>();
    for line in ["forget customer/7", "forget customer/7 --yes"] {
        let error = setup.daybook(line).await.ended.unwrap_err().to_string();
        assert!(error.contains("the caller may not send ForgetCustomer"), "{line}: {error}");
    }
}

#[tokio::test]
async fn key_that_a_restore_brings_back_is_found_and_ended_again() {
    let setup = Setup::new().await;
    register(&setup).await;
    let row = key_row(&setup).await.unwrap();
    setup.daybook("forget customer/7 --yes").await.expect(Exit::Clean);
    let put = || setup.table.raw.put_item().table_name(KEYS_TABLE).set_item(Some(row.clone()));
    put().send().await.unwrap();
    let lines = setup.daybook("verify customer/7").await.expect(Exit::Findings);
    assert!(lines[0].contains("run daybook forget"), "{lines:?}");
    setup.daybook("forget customer/7 --yes --verify").await.expect(Exit::Clean);
    setup.daybook("verify customer/7").await.expect(Exit::Clean);
}

#[tokio::test]
async fn value_in_plain_text_is_reported_as_a_warning() {
    let setup = Setup::new().await;
    let key = register(&setup).await;
    let mut row = setup.table.row(&key, "EVENT#000000000001").await.unwrap();
    let plain = json!({"email": "ann@example.com", "name": "Ann"}).to_string();
    row.insert("data".to_owned(), AttributeValue::S(plain));
    setup.table.put(sealed(row)).await;
    let lines = setup.daybook("verify customer/7").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("customer/7 EVENT#000000000001 personal: "), "{lines:?}");
    // Of somebody who is to be forgotten, it is more than that.
    let lines = setup.daybook("forget customer/7 --yes --verify").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("customer/7 EVENT#000000000001 personal: "), "{lines:?}");
}

#[tokio::test]
async fn aggregate_without_personal_data_cannot_be_forgotten() {
    let setup = Setup::new().await;
    register(&setup).await;
    let error = setup.daybook("forget customer/8").await.ended.unwrap_err().to_string();
    assert_eq!(error, "customer/8: it does not exist");
    setup.command("account/1", "OpenAccount", json!({})).await;
    let error = setup.daybook("forget account/1").await.ended.unwrap_err().to_string();
    assert_eq!(error, "account/1: its type declares no FORGET");
}

#[tokio::test]
async fn export_is_sealed_and_can_be_imported_again() {
    let setup = Setup::new().await;
    register(&setup).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    setup.daybook(&format!("export {}", file.display())).await.expect(Exit::Clean);
    let history = fs::read_to_string(&file).unwrap();
    assert!(history.contains("sealed") && !history.contains("Ann"), "{history}");
    let lines = setup.daybook(&format!("import {} --no-publish --yes", file.display())).await.expect(Exit::Clean);
    assert!(lines.last().unwrap().contains("1 "), "{lines:?}");
    setup.daybook("forget customer/7 --yes").await.expect(Exit::Clean);
    setup.daybook("verify customer/7").await.expect(Exit::Clean);
}
