//! The page *Model*: what follows what.

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
