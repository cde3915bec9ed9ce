//! The metadata that this crate reads are those that the suite writes.

use daybook_consumer::BusMessage;
use daybook_decider::{CommandRequest, Json, Meta};
use daybook_test_support::clock::next_input;
use serde_json::{Value, json};

#[test]
fn messages_of_the_suite_are_read_completely() {
    let registry = aggregates::registry().unwrap();
    let model = registry.get("todo").unwrap();
    let text = || Some("text".to_owned());
    let meta = Meta {
        actor: text(),
        source_ip: text(),
        correlation_id: text(),
        causation_id: text(),
        traceparent: text(),
        trace_header: text(),
    };
    for meta in [meta, Meta::default()] {
        let input = daybook_decider::DecisionInput { meta, epoch: 7, ..next_input() };
        let data = Json::of(&json!({"title": "TODO", "message": ""})).unwrap();
        let create = CommandRequest { command: "CreateTodo".to_owned(), data };
        let decided = model.decide(&model.before_first_event(), "1", &[create], &input).unwrap();
        let [message] = &decided.messages[..] else { panic!("not one message") };
        let detail: Value = message.detail.read().unwrap();
        let read = BusMessage::new(message.message_type.clone(), detail.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read.metadata).unwrap(), detail["metadata"]);
        assert_eq!((read.data::<Value>().unwrap(), read.metadata.epoch), (detail["data"].clone(), 7));
        assert_eq!((read.message_type.as_str(), read.aggregate().to_string().as_str()), ("TodoCreated", "todo/1"));
    }
}

#[test]
fn message_without_an_epoch_is_unreadable() {
    let message = crate::journal::noted("note/1", 1);
    let mut event = crate::journal::event(&message);
    event["detail"]["metadata"].as_object_mut().unwrap().remove("epoch");
    let error = BusMessage::of_event(event).unwrap_err().to_string();
    assert!(error.contains("missing field `epoch`"), "{error}");
}
