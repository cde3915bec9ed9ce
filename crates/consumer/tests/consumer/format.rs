//! The stored format: items of earlier releases must stay readable.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::journal::{Setup, event, noted};

#[tokio::test(start_paused = true)]
async fn items_have_the_stored_format() {
    let setup = Setup::new(1).await;
    setup.deliver([&noted("note/1", 1), &noted("note/1", 3)]).await;
    let mut items = BTreeMap::new();
    for mut item in setup.database.items() {
        let item = item.as_object_mut().unwrap();
        for name in ["updatedAt", "storedAt", "since"] {
            if let Some(time) = item.get_mut(name) {
                time["S"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
                *time = "<time>".into();
            }
        }
        if item.contains_key("writeId") {
            item.insert("writeId".to_owned(), "<id>".into());
        }
        let key = ["pk", "sk"].map(|name| item.remove(name).unwrap()["S"].as_str().unwrap().to_owned());
        items.insert(key.join(" "), Value::from(item.clone()));
    }
    let row = |row: &str| json!({"row": {"S": row}, "writeId": "<id>"});
    let detail = event(&noted("note/1", 3))["detail"].to_string();
    let expected = [
        (
            "INCOMPLETE#journal note/1",
            json!({"aggregateType": {"S": "note"}, "aggregateId": {"S": "1"}, "since": "<time>"}),
        ),
        (
            "POSITION#journal#note#1 #POSITION",
            json!({
                "revision": {"N": "1"}, "epoch": {"N": "1"}, "messageSeq": {"N": "1"}, "messageId": {"S": "note-1-1-1"},
                "waiting": {"N": "1"}, "attempts": {"N": "0"}, "updatedAt": "<time>",
            }),
        ),
        (
            "POSITION#journal#note#1 WAITING#0000000001#00000000000000000003",
            json!({"messageType": {"S": "Noted"}, "detail": {"S": detail}, "storedAt": "<time>"}),
        ),
        ("ROW#journal#note/1 #LIST", row("[[1,1]]")),
        ("ROW#journal#note/1 note-1-1-1", row(r#"{"number":1}"#)),
        ("ROW#journal#total #TOTAL", row("1")),
    ];
    assert_eq!(items, expected.map(|(key, item)| (key.to_owned(), item)).into());
}
