//! `daybook forget`, and personal data in `daybook verify`, `export` and `import`.

use std::fs;

use aggregates::customer::{self, Customer};
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_cli::operator::Exit;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, RowKey, Rows};
use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Claim, Commands, Context, Decision, EventType, Registry,
};
use daybook_function_runtime::aws_config_at;
use daybook_projection::Projections;
use daybook_projector::{EventRange, Projecting};
use daybook_table::AggregateKey;
use daybook_test_support::commands::deadline;
use daybook_test_support::names::Names;
use daybook_test_support::row::{sealed, text};
use daybook_test_support::table::{KEYS_TABLE, TABLE};
use serde_json::{Value, json};

use crate::support::{Setup, key, samples_with};

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
    let setup = Setup::of::<Customer>().await;
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
    let setup = Setup::of::<Customer>().await;
    register(&setup).await;
    setup.delete("customer/7", "OUTBOX#000000000001#0").await;
    let lines = setup.daybook("forget customer/7 --yes --verify").await.expect(Exit::Findings);
    assert!(lines[0].starts_with("customer/7 OUTBOX#000000000001#0 missing: message 1"), "{lines:?}");
    assert!(lines[0].ends_with("unless the clock of the local stack was moved"), "{lines:?}");
}

/// Each customer alone may send commands to it.
const OWNED: u8 = 0;
/// The claim has the address itself.
const CARELESS: u8 = 1;

/// The customer of the samples, with one difference.
struct Altered<const DIFFERENCE: u8>;

impl<const DIFFERENCE: u8> Aggregate for Altered<DIFFERENCE> {
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
        if DIFFERENCE == CARELESS {
            state.email.get().map(|email| Claim::new("email", email.to_uppercase())).into_iter().collect()
        } else {
            Customer::claims(state)
        }
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
        if DIFFERENCE == OWNED { (caller.principal.as_deref() == id).into() } else { Authorization::Unrestricted }
    }
}

#[tokio::test]
async fn dry_run_is_refused_as_the_command_would_be() {
    let mut setup = Setup::of::<Customer>().await;
    register(&setup).await;
    setup.aggregates = || Registry::new().with::<Altered<OWNED>>();
    for line in ["forget customer/7", "forget customer/7 --yes"] {
        let error = setup.daybook(line).await.ended.unwrap_err().to_string();
        assert!(error.contains("the caller may not send ForgetCustomer"), "{line}: {error}");
    }
}

#[tokio::test]
async fn key_that_a_restore_brings_back_is_found_and_ended_again() {
    let setup = Setup::of::<Customer>().await;
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

/// The events are restored, and the keys are not.
#[tokio::test]
async fn forgetting_whose_event_a_restore_has_lost_is_found_and_repeated() {
    let setup = Setup::of::<Customer>().await;
    let key = register(&setup).await;
    let mut restored = setup.table.rows(&key, "").await;
    let claims = setup.table.raw.scan().table_name(TABLE).filter_expression("begins_with(pk, :claim)");
    let claims = claims.expression_attribute_values(":claim", AttributeValue::S("CLAIM#".to_owned()));
    restored.extend(claims.send().await.unwrap().items.unwrap());
    assert!(restored.iter().any(|row| text(row, "pk").starts_with("CLAIM#")), "{restored:?}");
    setup.daybook("forget customer/7 --yes").await.expect(Exit::Clean);
    for sk in ["EVENT#000000000002", "OUTBOX#000000000002#0"] {
        setup.delete("customer/7", sk).await;
    }
    for row in restored {
        setup.table.put(row).await;
    }
    let lines = setup.daybook("verify customer/7").await.expect(Exit::Findings);
    let found = "customer/7 #METADATA personal: the personal data is forgotten, and the state does not say so";
    assert!(lines[0].starts_with(found), "{lines:?}");
    setup.daybook("EPOCH=2 forget customer/7 --yes").await.expect(Exit::Clean);
    setup.daybook("EPOCH=2 claims rebuild customer --yes").await.expect(Exit::Clean);
    let lines = setup.daybook("EPOCH=2 verify --scan").await.expect(Exit::Clean);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[tokio::test]
async fn marked_value_that_is_not_sealed_is_reported_as_a_warning() {
    let setup = Setup::of::<Customer>().await;
    let key = register(&setup).await;
    setup.daybook("snapshot rebuild --aggregate customer/7").await.expect(Exit::Clean);
    let open = |value: &str| json!({"$personal": {"of": "customer/7", "value": value}});
    let text = json!({"email": open("ann@example.com"), "name": open("Ann")}).to_string();
    for (sk, attribute) in [("#SNAPSHOT", "state"), ("EVENT#000000000001", "data")] {
        let mut row = setup.table.row(&key, sk).await.unwrap();
        row.insert(attribute.to_owned(), AttributeValue::S(text.clone()));
        setup.table.put(sealed(row)).await;
        let lines = setup.daybook("verify customer/7").await.expect(Exit::Clean);
        assert!(lines.iter().any(|line| line.starts_with(&format!("customer/7 {sk} personal: "))), "{lines:?}");
    }
}

#[tokio::test]
async fn claim_of_a_personal_value_in_plain_text_is_reported_as_a_warning() {
    let mut setup = Setup::of::<Customer>().await;
    setup.aggregates = || Registry::new().with::<Altered<CARELESS>>();
    register(&setup).await;
    let lines = setup.daybook("verify customer/7").await.expect(Exit::Clean);
    assert!(lines[0].starts_with("customer/7 CLAIM#email#ANN@EXAMPLE.COM personal: a claim contains"), "{lines:?}");
}

#[tokio::test]
async fn value_in_plain_text_is_reported_as_a_warning() {
    let setup = Setup::of::<Customer>().await;
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
    let setup = Setup::of::<Customer>().await;
    register(&setup).await;
    let error = setup.daybook("forget customer/8").await.ended.unwrap_err().to_string();
    assert_eq!(error, "customer/8: it does not exist");
    setup.command("account/1", "OpenAccount", json!({})).await;
    let error = setup.daybook("forget account/1").await.ended.unwrap_err().to_string();
    assert_eq!(error, "account/1: its type declares no FORGET");
}

#[tokio::test]
async fn export_is_sealed_and_can_be_imported_again() {
    let setup = Setup::of::<Customer>().await;
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

/// A consumer that stores what it needs for a mail, and to whom.
struct Mails;

impl Consumer for Mails {
    const NAME: &'static str = "mails";

    fn reads(&self, _: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
        Ok(Vec::new())
    }

    fn handle(&self, message: &BusMessage, _: &Rows<'_>) -> Result<Changes, HandleError> {
        let mut changes = Changes::none();
        changes.put(RowKey::new("mails", message.metadata.message_id.clone()), &message.data::<Value>()?)?;
        Ok(changes)
    }
}

#[tokio::test]
async fn forgotten_name_is_in_no_row_file_message_or_output() {
    let from = Setup::of::<Customer>().await;
    let ann = json!({"email": "ann@example.com", "name": "Ann Example"});
    from.command("customer/7", "RegisterCustomer", ann).await;
    from.command("customer/7", "ChangeEmail", json!({"email": "ann@example.org"})).await;
    from.daybook("snapshot rebuild --aggregate customer/7").await.expect(Exit::Clean);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    from.daybook(&format!("export {}", file.display())).await.expect(Exit::Clean);

    let mut setup = Setup::with_views(|| Projections::new().with::<Names>()).await;
    setup.aggregates = samples_with::<Customer>;
    setup.copy_keys(&from).await;
    setup.daybook(&format!("import {} --publish --yes", file.display())).await.expect(Exit::Clean);
    setup.daybook("snapshot rebuild --aggregate customer/7").await.expect(Exit::Clean);
    let (projections, views) = ((setup.projections)().unwrap(), setup.table.direct_views());
    let views = views.with_sealing(setup.store.sealing());
    let model = projections.following("customer").next().unwrap();
    let projecting = Projecting { model, events: &setup.store, views: &views };
    let projected = projecting.project([(key("customer/7"), EventRange::default())].into(), deadline()).await.unwrap();
    assert!(projected.unfinished.is_empty() && projected.suspended.is_empty(), "{projected:?}");
    setup.daybook("republish --from 2020-01-01T00:00:00Z --to 2100-01-01T00:00:00Z --yes").await.expect(Exit::Clean);
    let mails = ConsumerFunction::new(Mails, &aws_config_at(setup.table.engine.url()), "mails");
    mails.table().create().await.unwrap();
    for message in setup.bus.delivered() {
        let detail: Value = serde_json::from_str(&message.detail).unwrap();
        mails.handle(json!({"detail-type": message.detail_type, "detail": detail}), deadline()).await.unwrap();
    }
    let sent = format!("{:?}", mails.table().partition("mails").await.unwrap());
    assert!(sent.contains("$subject") && sent.contains("customer/7"), "{sent}");
    let reads = ["get customer/7", "get customer/7 --version 1", "events customer/7", "feed", "verify --scan"];
    let printed = async || {
        let mut text = String::new();
        for line in reads {
            text += &setup.daybook(line).await.expect(Exit::Clean).join("\n");
        }
        text
    };
    let before = printed().await;
    assert!(before.contains("Ann Example") && before.contains("ann@example.org"), "{before}");

    setup.daybook("forget customer/7 --yes --verify").await.expect(Exit::Clean);
    let kept = [fs::read_to_string(&file).unwrap(), from.table.stored().await, sent];
    for text in
        [setup.table.stored().await, printed().await, format!("{:?}", setup.bus.delivered())].iter().chain(&kept)
    {
        let text = text.to_lowercase();
        assert!(!text.contains("ann example") && !text.contains("ann@example"), "{text}");
    }
}
