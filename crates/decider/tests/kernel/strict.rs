//! Structs in a command are read from objects only, at any depth. Stored structs are read from arrays, too.

use std::collections::BTreeMap;
use std::num::NonZeroU8;

use daybook_decider::{Aggregate, CommandRequest, Commands, Context, Decision, EventType, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{ID, Subject, decision_input, stored};

/// Stores its content, which has a struct in every kind of position.
struct Shelf;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Place {
    row: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<Box<Place>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Label {
    Plain,
    Of(Place),
    Spelled { text: String },
    Pair(i64, Place),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "of")]
enum Tagged {
    At { row: u8 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "form")]
enum Inside {
    Round { radius: u8 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    Number(u8),
    Place(Place),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Whole(Place);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Empty;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Content {
    place: Option<Place>,
    places: Vec<Place>,
    named: BTreeMap<u64, Place>,
    pair: Option<(i64, Place)>,
    whole: Option<Whole>,
    label: Option<Label>,
    tagged: Option<Tagged>,
    inside: Option<Inside>,
    either: Option<Either>,
    heads: Option<NonZeroU8>,
    empty: Option<Empty>,
    numbers: Option<(i8, u64, f32, f64, i128, u128)>,
    texts: Option<(char, String, bool, ())>,
    any: Option<Value>,
    #[schemars(with = "Option<Value>")]
    carried: Option<Json>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Put(Box<Content>),
    Move { place: Place },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Shelved(Box<Content>),
}

impl Aggregate for Shelf {
    const TYPE: &'static str = "shelf";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Put", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Shelved", 1)];

    type State = Content;
    type Command = Command;
    type Event = Event;

    fn decide(_: &Content, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Shelved(Box::new(match command {
            Command::Put(content) => *content,
            Command::Move { place } => Content { place: Some(place), ..Content::default() },
        }))])
    }

    fn evolve(_: Content, Event::Shelved(content): &Event) -> Content {
        (**content).clone()
    }
}

/// The content stored from a command with this data, or the reason why the command is invalid.
fn sent(command: &str, data: &str) -> Result<Value, String> {
    let shelf = Subject::of::<Shelf>();
    let request = CommandRequest { command: command.to_owned(), data: Json::parse(data.to_owned()).unwrap() };
    let before = if command == "Put" { shelf.unborn() } else { shelf.after(&[("Put", json!({}))]) };
    let decided = shelf.model().decide(&before, ID, &[request], &decision_input());
    decided.map(|decided| shelf.state(&decided.after)).map_err(|error| error.to_string())
}

fn error_of(command: &str, data: &str) -> String {
    sent(command, data).unwrap_err()
}

#[test]
fn documented_forms_of_data_are_accepted() {
    for (member, value) in [
        ("place", r#"{"row":1,"below":{"row":2}}"#),
        ("places", r#"[{"row":1},{"row":2}]"#),
        ("named", r#"{"18446744073709551615":{"row":1}}"#),
        ("pair", r#"[-1,{"row":1}]"#),
        ("whole", r#"{"row":1}"#),
        ("label", r#""Plain""#),
        ("label", r#"{"Of":{"row":1}}"#),
        ("label", r#"{"Spelled":{"text":"a"}}"#),
        ("label", r#"{"Pair":[1,{"row":1}]}"#),
        ("tagged", r#"{"kind":"At","of":{"row":1}}"#),
        ("inside", r#"{"form":"Round","radius":1}"#),
        ("either", "1"),
        ("either", r#"{"row":1}"#),
        ("numbers", "[-128,18446744073709551615,1.5,0.1,-170141183460469231731687303715884105728,1]"),
        ("texts", r#"["é","a\nb",true,null]"#),
        ("any", r#"[[1],{"a":[]}]"#),
        ("carried", r#"[[1E400],{"b":1,"a":[]}]"#),
    ] {
        let body = CommandRequest {
            command: "Put".to_owned(),
            data: Json::parse(format!(r#"{{"{member}":{value}}}"#)).unwrap(),
        };
        let shelf = Subject::of::<Shelf>();
        let decided = shelf.model().decide(&shelf.unborn(), ID, &[body], &decision_input()).unwrap();
        let kept = shelf.model().state(&decided.after).unwrap();
        assert!(kept.text().contains(&format!(r#""{member}":{value}"#)), "{member}: {kept:?}");
    }
    assert_eq!(sent("Move", r#"{"place":{"row":1}}"#).unwrap()["place"], json!({"row": 1}));
    assert_eq!(sent("Put", r#"{"place":null,"empty":null}"#).unwrap()["place"], Value::Null);
}

#[test]
fn array_in_place_of_a_struct_is_invalid() {
    for (data, place) in [
        (r#"{"place":[1,null]}"#, "data.place"),
        (r#"{"place":{"row":1,"below":[2,null]}}"#, "data.place.below"),
        (r#"{"places":[{"row":1},[2,null]]}"#, "data.places[1]"),
        (r#"{"named":{"7":[1,null]}}"#, "data.named.7"),
        (r#"{"pair":[1,[1,null]]}"#, "data.pair[1]"),
        (r#"{"whole":[1,null]}"#, "data.whole"),
        (r#"{"label":{"Of":[1,null]}}"#, "data.label.Of"),
        (r#"{"label":{"Spelled":["a"]}}"#, "data.label.Spelled"),
        (r#"{"label":{"Pair":[1,[1,null]]}}"#, "data.label.Pair[1]"),
        (r#"{"tagged":["At",{"row":1}]}"#, "data.tagged"),
        ("[null,[]]", "data"),
        ("[]", "data"),
    ] {
        assert_eq!(error_of("Put", data), format!("Put: {place}: invalid type: array, expected an object"), "{data}");
    }
    assert_eq!(error_of("Move", "[[1,null]]"), "Move: data: invalid type: array, expected an object");
    assert_eq!(error_of("Move", r#"{"place":[1,null]}"#), "Move: data.place: invalid type: array, expected an object");
}

#[test]
fn array_in_place_of_a_request_is_invalid() {
    let read = |text: &str| Json::parse(text.to_owned()).unwrap().read_strictly::<Vec<CommandRequest>>();
    assert_eq!(read(r#"[{"command":"Put","data":{"places":[ ]}}]"#).unwrap()[0].data.text(), r#"{"places":[ ]}"#);
    assert_eq!(read(r#"[{"command":"Put"},["Put",{}]]"#).unwrap_err(), "[1]: invalid type: array, expected an object");
    assert_eq!(read(r#"[{"command":1}]"#).unwrap_err(), "[0].command: invalid type: integer `1`, expected a string");
    assert_eq!(read("[null]").unwrap_err(), "[0]: invalid type: null, expected an object");
    assert_eq!(read("{}").unwrap_err(), "invalid type: object, expected an array");
}

#[test]
fn error_for_invalid_data_names_no_rust_type() {
    for (data, reason) in [
        ("7", "data: invalid type: integer `7`, expected an object"),
        (
            r#"{"place":"x, expected struct y"}"#,
            r#"data.place: invalid type: string "x, expected struct y", expected an object"#,
        ),
        (r#"{"places":{}}"#, "data.places: invalid type: object, expected an array"),
        (r#"{"pair":[1]}"#, "data.pair: invalid length 1, expected an array of size 2"),
        (r#"{"label":{"Pair":7}}"#, "data.label.Pair: invalid type: integer `7`, expected an array"),
        (r#"{"label":{"Pair":[7]}}"#, "data.label.Pair: invalid length 1, expected an array with 2 elements"),
        (r#"{"label":"Spelled"}"#, "data.label.Spelled: invalid type: string, expected an object"),
        (r#"{"tagged":7}"#, "data.tagged: invalid type: integer `7`, expected an object"),
        (r#"{"inside":7}"#, "data.inside: invalid type: integer `7`, expected an object"),
        (
            r#"{"inside":{"form":"Round","radius":{}}}"#,
            "data.inside: invalid type: object, expected an integer from 0 to 255",
        ),
        (r#"{"place":{"row":-1}}"#, "data.place.row: invalid value: integer `-1`, expected an integer from 0 to 255"),
        (r#"{"numbers":[1,2,"3"]}"#, r#"data.numbers[2]: invalid type: string "3", expected a number"#),
        (r#"{"texts":["x",1.5]}"#, "data.texts[1]: invalid type: number `1.5`, expected a string"),
        (r#"{"texts":["x","",true,7]}"#, "data.texts[3]: invalid type: integer `7`, expected null"),
        (r#"{"heads":0}"#, "data.heads: invalid value: integer `0`, expected an integer from 0 to 255 other than 0"),
        (r#"{"either":"x"}"#, "data.either: it has none of the forms that it can have"),
        (r#"{"empty":7}"#, "data.empty: invalid type: integer `7`, expected null"),
        (
            r#"{"label":"Hidden"}"#,
            "data.label: unknown variant `Hidden`, expected one of `Plain`, `Of`, `Spelled`, `Pair`",
        ),
    ] {
        assert_eq!(error_of("Put", data), format!("Put: {reason}"), "{data}");
    }
    assert_eq!(error_of("Move", "7"), "Move: data: invalid type: integer `7`, expected an object");
}

#[test]
fn stored_struct_is_read_from_an_object_or_an_array() {
    let shelf = Subject::of::<Shelf>();
    let folded = shelf.fold(&[stored(1, "Shelved", 1, &json!({"places": [[1, null], {"row": 2}]}))]);
    assert_eq!(shelf.state(&folded)["places"], json!([{"row": 1}, {"row": 2}]));
    let snapshot = Json::of(&json!({"place": [3, null]})).unwrap();
    let restored = shelf.model().restore(1, 1, &snapshot).unwrap();
    assert_eq!(shelf.state(&restored)["place"], json!({"row": 3}));
}
