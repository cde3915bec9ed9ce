//! JSON text stays as it was written, from the command to the message.

use daybook_decider::{Aggregate, CommandRequest, Commands, Context, Decision, EventType, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::support::{ID, Subject, decision_input};

/// Texts that parsing and printing would change.
const TEXTS: [&str; 9] = [
    "1.0",
    "1E400",
    "-0",
    "123456789012345678901234567890.10",
    r#"{"b":1,"a":2,"B":3}"#,
    r#""\u00e9\/\ud83d\ude00\u0000é😀""#,
    "{ \"a\" :\t[ 1 ,\n2 ] }",
    r#"{"a":1,"a":2}"#,
    "[[[[[[[[null]]]]]]]]",
];

/// Stores and publishes the JSON of its command unchanged.
struct Parcel;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    #[schemars(with = "Value")]
    content: Option<Json>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Send {
        #[schemars(with = "Value")]
        content: Json,
    },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Sent {
        #[schemars(with = "Value")]
        content: Json,
    },
}

impl Aggregate for Parcel {
    const TYPE: &'static str = "parcel";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Send", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Sent", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, Command::Send { content }: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Sent { content }])
    }

    fn evolve(_: State, Event::Sent { content }: &Event) -> State {
        State { content: Some(content.clone()) }
    }
}

#[test]
fn text_survives_being_parsed_embedded_and_read() {
    for text in TEXTS {
        let json = Json::parse(text.to_owned()).unwrap();
        assert_eq!(json.text(), text);
        assert_eq!(json, json.read::<Json>().unwrap());
        assert_eq!(Json::of(&json).unwrap().text(), text);
        assert_eq!(Json::of(&[&json]).unwrap().text(), format!("[{text}]"));
        assert_eq!(format!("{json:?}"), text);
    }
}

#[test]
fn text_survives_from_a_command_into_event_state_and_message() {
    let parcel = Subject::of::<Parcel>();
    for text in TEXTS {
        let body = format!(r#"{{"command": "Send", "data": {{"content": {text}}}}}"#);
        let request: CommandRequest = serde_json::from_str(&body).unwrap();
        let decided = parcel.model().decide(&parcel.unborn(), ID, &[request], &decision_input()).unwrap();
        let carried = format!(r#"{{"content":{text}}}"#);
        assert_eq!(decided.events[0].data.text(), carried);
        assert_eq!(decided.messages[0].data.text(), carried);
        assert!(decided.messages[0].detail.text().ends_with(&format!(r#","data":{carried}}}"#)));

        let folded = parcel.fold(&decided.events);
        let state = parcel.model().state(&folded).unwrap();
        assert_eq!(state.text(), carried);
        let restored = parcel.model().restore(1, 1, &state).unwrap();
        assert_eq!(parcel.whole(&restored), parcel.whole(&folded));
    }
}

#[test]
fn parse_drops_only_the_white_space_around_the_text() {
    assert_eq!(Json::parse(" \n[ 1 ]\t".to_owned()).unwrap().text(), "[ 1 ]");
}

#[test]
fn parse_accepts_exactly_one_json_value() {
    for text in ["", " ", "{", "{}{}", "1 2", "{'a': 1}", "[1,]", "NaN", "\"\u{1}\"", "01", "nul"] {
        assert!(Json::parse(text.to_owned()).is_err(), "{text:?}");
    }
}

#[test]
fn texts_are_equal_only_if_all_bytes_are_equal() {
    let json = |text: &str| Json::parse(text.to_owned()).unwrap();
    assert_eq!(json("{}"), Json::empty_object());
    assert_ne!(json("{ }"), Json::empty_object());
    assert_ne!(json("1.0"), json("1"));
}
