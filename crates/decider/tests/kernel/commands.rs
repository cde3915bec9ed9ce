//! The checks of a command before the rules decide on it.

use daybook_decider::{CommandError, CommandRequest, Json};
use serde_json::{Value, json};

use crate::counter::Counter;
use crate::support::{ID, Subject, decision_input, names};

/// The reason why a command with this data is invalid.
fn invalid(command: &str, data: &str) -> String {
    let counter = Subject::of::<Counter>();
    let before = counter.after(&[("Start", json!({"at": 1}))]);
    let request = CommandRequest { command: command.to_owned(), data: Json::parse(data.to_owned()).unwrap() };
    let error = counter.model().decide(&before, ID, &[request], &decision_input()).unwrap_err();
    assert!(matches!(&error, CommandError::Invalid { command: of, .. } if of == command), "{error:?}");
    error.to_string()
}

#[test]
fn unknown_command_error_lists_the_known_commands() {
    let counter = Subject::of::<Counter>();
    for command in ["Divide", "add", "", "Add\"", "CounterAdded"] {
        let error = counter.decide(&counter.unborn(), &[(command, json!({}))]).unwrap_err();
        let known = ["Start", "Add", "Double", "Reject", "Close"].map(str::to_owned).into();
        assert_eq!(error, CommandError::Unknown { index: 0, command: command.to_owned(), known });
        assert_eq!(error.to_string(), format!("no command {command:?}; known: Start, Add, Double, Reject, Close"));
    }
}

#[test]
fn invalid_data_error_has_its_path() {
    assert_eq!(
        invalid("Add", r#"{"amounts": [1, 2, "three"]}"#),
        r#"Add: data.amounts[2]: invalid type: string "three", expected an integer from -9223372036854775808 to 9223372036854775807"#
    );
    for number in ["1.5", "1e2", "-0", "18446744073709551616"] {
        assert_eq!(
            invalid("Start", &format!(r#"{{"at": {number}}}"#)),
            "Start: data.at: invalid number, expected an integer from -9223372036854775808 to 9223372036854775807 in \
             plain digits"
        );
    }
    assert_eq!(invalid("Start", "{}"), "Start: data: missing field `at`");
    assert_eq!(
        invalid("Start", r#"{"at": 9223372036854775808}"#),
        "Start: data.at: invalid value: integer `9223372036854775808`, expected an integer from -9223372036854775808 to \
         9223372036854775807"
    );
    assert!(invalid("Add", "[1]").starts_with("Add: data"));
    assert!(invalid("Add", "null").starts_with("Add: data"));
    assert!(invalid("Close", "1").starts_with("Close: data"));
}

#[test]
fn unknown_fields_are_invalid() {
    assert_eq!(invalid("Start", r#"{"at": 1, "form": 2}"#), "Start: data.form: unknown field `form`, expected `at`");
    assert!(invalid("Double", r#"{"by": 2}"#).contains("unknown field `by`"));
    invalid("Close", r#"{"now": true}"#);
}

#[test]
fn invalid_data_error_has_no_column() {
    for (command, data) in [("Add", r#"{"amounts": ["x"]}"#), ("Start", "{}"), ("Start", r#"{"a at line b": 1}"#)] {
        let reason = invalid(command, data);
        assert!(!reason.contains("column"), "{reason}");
    }
    assert!(invalid("Start", r#"{"a at line b": 1}"#).contains("a at line b"));
}

#[test]
fn repeated_json_key_is_invalid() {
    assert!(invalid("Start", r#"{"at": 1, "at": 1}"#).contains("duplicate field `at`"));
    assert!(invalid("Start", r#"{"at": 1, "\u0061t": 2}"#).contains("duplicate field `at`"));
    assert!(serde_json::from_str::<CommandRequest>(r#"{"command": "Add", "command": "Close"}"#).is_err());
    assert!(serde_json::from_str::<CommandRequest>(r#"{"command": "Close", "data": {}, "data": {}}"#).is_err());
}

#[test]
fn request_with_other_members_than_command_and_data_is_invalid() {
    let read = |text| serde_json::from_str::<CommandRequest>(text);
    let request = read(r#"{"data": {"at": 1.0e1}, "command": "Start"}"#).unwrap();
    assert_eq!((request.command.as_str(), request.data.text()), ("Start", r#"{"at": 1.0e1}"#));
    assert_eq!(read(r#"{"command": "Close"}"#).unwrap().data, Json::empty_object());
    for text in ["{}", r#"{"data": {}}"#, r#"{"command": 1}"#, r#"{"command": "Close", "version": 1}"#, r#""Close""#] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn command_name_inside_the_data_is_not_executed() {
    assert!(invalid("Start", r#"{"at": 1, "command": "Close"}"#).contains("unknown field `command`"));
    let counter = Subject::of::<Counter>();
    let odd = (r#"Add","command":"Close"#, json!({"amounts": []}));
    let error = counter.decide(&counter.after(&[("Start", json!({"at": 1}))]), &[odd]).unwrap_err();
    assert!(matches!(error, CommandError::Unknown { .. }), "{error:?}");
}

#[test]
fn command_without_fields_accepts_an_empty_object_or_no_data() {
    let counter = Subject::of::<Counter>();
    let started = counter.after(&[("Start", json!({"at": 1}))]);
    for data in ["{}", "{ \n}", "null"] {
        let request = CommandRequest { command: "Close".to_owned(), data: Json::parse(data.to_owned()).unwrap() };
        let decided = counter.model().decide(&started, ID, &[request], &decision_input()).unwrap();
        assert_eq!(names(&decided), ["CounterClosed"], "{data}");
    }
}

#[test]
fn event_without_fields_is_stored_as_an_empty_object_and_read_back() {
    let counter = Subject::of::<Counter>();
    let decided = counter.decide(&counter.unborn(), &[("Start", json!({"at": 1})), ("Close", json!({}))]).unwrap();
    assert_eq!(decided.events[1].data.text(), "{}");
    assert_eq!(counter.whole(&counter.fold(&decided.events)), counter.whole(&decided.after));
}

#[test]
fn other_commands_do_not_create_an_aggregate() {
    let counter = Subject::of::<Counter>();
    for (command, data) in [
        ("Add", json!({"amounts": [1]})),
        ("Double", json!({})),
        ("Close", json!({})),
        // Whatever its fields are.
        ("Add", json!({"colour": "red"})),
    ] {
        assert_eq!(counter.decide(&counter.unborn(), &[(command, data)]).unwrap_err(), CommandError::Missing);
    }
}

#[test]
fn second_creation_of_an_aggregate_fails() {
    let counter = Subject::of::<Counter>();
    let start = || ("Start", json!({"at": 1}));
    assert_eq!(counter.decide(&counter.after(&[start()]), &[start()]).unwrap_err(), CommandError::Exists { index: 0 });
    // If the aggregate did not exist before the batch, the error is not `Exists`.
    let twice = counter.decide(&counter.unborn(), &[start(), start()]).unwrap_err();
    assert_eq!(twice, CommandError::CreatedTwice { index: 1 });
    assert_eq!(twice.to_string(), "command 2 of the array creates it again");
}

#[test]
fn deleted_aggregate_accepts_no_command_and_still_exists() {
    let counter = Subject::of::<Counter>();
    let closed = counter.after(&[("Start", json!({"at": 1})), ("Close", json!({}))]);
    let error = |command: &str, data: Value| counter.decide(&closed, &[(command, data)]).unwrap_err();
    assert_eq!(error("Add", json!({"amounts": [1]})), CommandError::Deleted);
    assert_eq!(error("Close", json!({})), CommandError::Deleted);
    assert_eq!(error("Reject", json!({"reasons": []})), CommandError::Deleted);
    assert_eq!(error("Start", json!({"at": 1})), CommandError::Exists { index: 0 });
    let batch = [("Add", json!({"amounts": [1]})), ("Close", json!({}))];
    assert_eq!(counter.decide(&closed, &batch).unwrap_err(), CommandError::Deleted);
}

#[test]
fn command_after_the_deletion_in_the_same_batch_fails_with_its_position() {
    let counter = Subject::of::<Counter>();
    let batch = [("Start", json!({"at": 1})), ("Close", json!({})), ("Add", json!({"amounts": [1]}))];
    let error = counter.decide(&counter.unborn(), &batch).unwrap_err();
    assert_eq!(error, CommandError::AfterDeletion { index: 2 });
    assert_eq!(error.to_string(), "command 3 of the array comes after its deletion");
    let started = counter.after(&batch[..1]);
    assert_eq!(counter.decide(&started, &batch[1..]).unwrap_err(), CommandError::AfterDeletion { index: 1 });
    let batch = [("Start", json!({"at": 1})), ("Close", json!({})), ("Start", json!({"at": 1}))];
    assert_eq!(counter.decide(&counter.unborn(), &batch).unwrap_err(), CommandError::CreatedTwice { index: 2 });
    assert_eq!(counter.decide(&started, &batch[1..]).unwrap_err(), CommandError::Exists { index: 1 });
}
