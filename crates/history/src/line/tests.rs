use super::*;

fn event(text: &str) -> EventLine {
    let Ok(Line::Event(event)) = Line::parse(text) else { panic!("{text}: {:?}", Line::parse(text)) };
    *event
}

#[test]
fn written_event_is_read_as_it_was() {
    let data = r#"{"big":18446744073709551616,"small":1e-400,"text":"a\u00e9\n","null":null}"#;
    let recorded = RecordedEvent {
        seq_num: 7,
        event_id: Ulid::from_parts(1_795_255_200_123, 9),
        event_type: "TodoCreated".to_owned(),
        event_version: 3,
        data: Json::parse(data.to_owned()).unwrap(),
        meta: Meta { actor: Some("a \"b\"".to_owned()), ..Meta::default() },
        occurred_at: "2026-11-21T10:00:00.123Z".parse().unwrap(),
        message_seq: 5,
        message_epoch: 1,
        together: vec!["course/rust@1".to_owned()],
    };
    let key = AggregateKey::new("todo", "1");
    let mut written = Vec::new();
    HistoryWriter::begin(&mut written).unwrap().event(&key, &recorded).unwrap();
    let text = String::from_utf8(written).unwrap().lines().nth(1).unwrap().to_owned();
    let expected = r#"{"aggregateType":"todo","aggregateId":"1","seqNum":7,"eventId":"01M7YRRTBV0000000000000009","#
        .to_owned()
        + r#""eventType":"TodoCreated","eventVersion":3,"data":"#
        + data
        + r#","meta":{"actor":"a \"b\""},"occurredAt":"2026-11-21T10:00:00.123Z","messageSeq":5,"together":["course/rust@1"]}"#;
    assert_eq!(text, expected);
    let read = event(&text);
    let expected = EventLine {
        key,
        seq_num: Some(7),
        event_id: Some(recorded.event_id),
        event_type: recorded.event_type,
        event_version: Some(3),
        data: recorded.data,
        meta: recorded.meta,
        occurred_at: Some(recorded.occurred_at),
        message_seq: Some(5),
        together: recorded.together,
    };
    assert_eq!(read, expected);
}

#[test]
fn line_needs_only_aggregate_event_type_and_data() {
    let read = event(r#"{"aggregateType": "todo", "aggregateId": "1", "eventType": "TodoCreated", "data": null}"#);
    assert_eq!((read.data.text(), read.seq_num, read.occurred_at), ("null", None, None));
    assert!(read.together.is_empty());
    let read = event(
        r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"occurredAt":"2026-11-21T12:00:00+02:00"}"#,
    );
    assert_eq!(read.occurred_at, Some("2026-11-21T10:00:00Z".parse().unwrap()));
}

#[test]
fn wrong_line_is_an_error_that_names_the_member() {
    for (text, expected) in [
        (r#"{"aggregateType":"todo","#, "EOF while parsing"),
        (r#"{"aggregateId":"1","eventType":"E","data":{}}"#, "aggregateType is missing"),
        (r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E"}"#, "data is missing"),
        (r#"{"aggregateType":"todo","aggregateId":"a b","eventType":"E","data":{}}"#, "aggregateId cannot be \"a b\""),
        (r#"{"aggregateType":"todo","aggregateId":"1","eventtype":"E","data":{}}"#, "unknown field `eventtype`"),
        (
            r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"meta":{"who":1}}"#,
            "unknown field `who`",
        ),
        (
            r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"occurredAt":"yesterday"}"#,
            "occurredAt cannot be \"yesterday\"",
        ),
        (
            r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"eventId":"7"}"#,
            "eventId cannot be \"7\"",
        ),
        (r#"{"daybookHistory":2}"#, "the format version 2 is not known"),
    ] {
        let error = Line::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
