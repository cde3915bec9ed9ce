//! The page *Model*: what follows what.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry};
use daybook_local_stack::Project;
use daybook_projection::Projections;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stack::{Page, Visit};

const MAILS: &str = "OrderShipped -> queue:mails -> function:http://127.0.0.1:1/functions/order-mails/invocations";
const LARGE: &str = r#"{"detail-type": [{"prefix": "account"}], "detail": {"data": {"amount": [1]}}} -> queue:large"#;

/// The part of an aggregate type, without the markup of texts: each event, message and follower in brackets.
fn part(page: &Page, of_type: &str) -> String {
    let part = page.between(&format!("id=\"type-{of_type}\""), "</section>");
    let (mut text, mut is_tag) = (String::new(), false);
    for character in part.replace("<tr>", "\n").replace("<li>", "\n").replace("</td>", " | ").chars() {
        is_tag = (is_tag || character == '<') && character != '>';
        if !is_tag && character != '>' {
            text.push(character);
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn model_shows_what_each_event_and_each_message_leads_to() {
    let visit = Visit::with_rules(&[MAILS, "todo/*, subscription/* -> queue:audit", LARGE]).await;
    let page = visit.page("/model").await;
    for (of_type, lines) in [
        (
            "order",
            vec![
                "PlaceOrder create",
                "ProcessPayment← dispatched by fulfilment FulfilmentPaid",
                "OrderPlaced | OrderPlaced | → process fulfilment BeginFulfilment | ",
                "OrderShipped | OrderShipped | → queue mails → order-mails | ",
                "every event |  | → projection orders-by-day→ projection orders-by-status | ",
            ],
        ),
        (
            "fulfilment",
            vec![
                "RecordPayment← on payment PaymentReceived",
                "FulfilmentPaid | FulfilmentPaid | → dispatches order ProcessPayment→ dispatches shipment RequestShipment\
                 → deadline RecallShipment | ",
            ],
        ),
        ("course", vec!["TakeSeat← sent by subscription StudentSubscribed"]),
        (
            "subscription",
            vec!["StudentSubscribed | StudentSubscribed | → sends course TakeSeat→ sends student JoinCourse | "],
        ),
        // The names decide which messages a rule may select; its pattern also compares their content.
        (
            "account",
            vec![
                "AccountOpened | no message |  | ",
                "TransactionAccepted | accountOverdrawn | → queue large, if its pattern matches | ",
            ],
        ),
    ] {
        let part = part(&page, of_type);
        for line in lines {
            assert!(part.lines().any(|other| other.starts_with(line)), "{of_type} has no {line:?}:{part}");
        }
    }
    assert!(!part(&page, "order").contains("large"));
    assert!(!part(&page, "order").contains("audit"));
    // A rule that selects every message of a type is shown once.
    let subscription = part(&page, "subscription");
    assert_eq!(subscription.matches("queue audit").count(), 1, "{subscription}");
    page.has("href=\"/_console/bus?type=OrderShipped\"").has("href=\"#type-fulfilment\"");
    visit.stop().await;
}

/// A parcel. No command leads to its event `Lost`.
struct Parcel;

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Send {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Sent {},
    Lost {},
}

impl Aggregate for Parcel {
    const TYPE: &'static str = "parcel";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Send", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Sent", 1), EventType::new("Lost", 1)];

    type State = ();
    type Command = Command;
    type Event = Event;

    fn decide((): &(), Command::Send {}: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Sent {}])
    }

    fn evolve((): (), _: &Event) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_no_sample_leads_to_is_marked() {
    let aggregates = || Registry::new().with::<Parcel>();
    let visit = Visit::of(Project { aggregates, projections: || Ok(Projections::new()) }, &[]).await;
    let part = part(&visit.page("/model").await, "parcel");
    for line in ["Sent | Sent | ", "LostNo sample leads to it. | Lost | "] {
        assert!(part.lines().any(|other| other.starts_with(line)), "{part}");
    }
    visit.stop().await;
}
