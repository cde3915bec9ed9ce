//! Requests that are generated from the OpenAPI document, some of them made invalid afterwards.

use std::collections::HashMap;

use axum::http::Method;
use fastrand::Rng;
use serde_json::{Map, Value, json};
use suite_tests::document::Document;

/// Few ids, so that requests concern the same aggregates.
const IDS: usize = 6;
const KEYS: usize = 40;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// An infinite sequence of requests.
pub(super) struct Requests {
    chance: Rng,
    /// An operation's method, path and description.
    operations: Vec<(Method, &'static str, &'static Value)>,
    /// The versions in the responses, by path.
    versions: HashMap<String, usize>,
    /// The generation of ids. It increases sometimes, so that deleted or full aggregates are no longer used.
    generation: usize,
    last: Option<Made>,
}

impl Requests {
    pub(super) fn new(seed: u64) -> Self {
        let paths = Document::get().json()["paths"].as_object().unwrap();
        // Views have tests of their own. What subscriptions send to others is in no response. The system commands fulfilments.
        let others = ["/views/", "/subscription", "/fulfilment", "/commands"];
        let of_aggregates = paths.iter().filter(|(path, _)| !others.iter().any(|other| path.starts_with(other)));
        let operations = of_aggregates.flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(move |(method, operation)| {
                (method.to_uppercase().parse::<Method>().unwrap(), path.as_str(), operation)
            })
        });
        Self {
            chance: Rng::with_seed(seed),
            operations: operations.collect(),
            versions: HashMap::new(),
            generation: 0,
            last: None,
        }
    }

    /// The next request: most are valid, some invalid, some repeated.
    pub(super) fn next(&mut self) -> Made {
        if self.chance.u8(..) == 0 {
            self.generation += 1;
        }
        if self.one_in(20)
            && let Some(last) = self.last.clone()
        {
            return last;
        }
        let mut made = self.good();
        if self.one_in(4) {
            self.break_it(&mut made);
        }
        self.last = Some(made.clone());
        made
    }

    /// Stores the version of an aggregate that a response contains.
    pub(super) fn learn(&mut self, made: &Made, version: Option<usize>) {
        if let Some(version) = version {
            self.versions.insert(aggregate(&made.path), version);
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.chance.u32(..n) == 0
    }

    fn id(&mut self) -> String {
        format!("g{}-{}", self.generation, self.chance.usize(..IDS))
    }

    /// A request that the document allows.
    fn good(&mut self) -> Made {
        // Writes are more frequent than reads.
        let mut index = self.chance.usize(..self.operations.len());
        if matches!(self.operations[index].0, Method::GET | Method::HEAD) && self.chance.bool() {
            index = self.chance.usize(..self.operations.len());
        }
        let (method, path, operation) = self.operations[index].clone();
        let path = path.replace("{id}", &self.id());
        let (mut query, mut headers) = (Vec::new(), Vec::new());
        for parameter in operation["parameters"].as_array().unwrap() {
            let parameter = Document::get().resolve(parameter);
            let name = parameter["name"].as_str().unwrap();
            match parameter["in"].as_str().unwrap() {
                "query" if parameter["required"] == true || self.one_in(4) => {
                    let value = self.parameter(name, &parameter["schema"]);
                    query.push(format!("{name}={value}"));
                }
                "header" if self.one_in(4) => headers.push((name, self.header(name, &path))),
                _ => {}
            }
        }
        let mut body = String::new();
        if operation["requestBody"].is_object() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let mut value = self.value(schema);
            if value.is_object() && value["id"].is_string() {
                value["id"] = self.id().into();
            }
            body = value.to_string();
            headers.push(("content-type", "application/json".to_owned()));
        }
        let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
        Made { method, path, headers, body }
    }

    fn parameter(&mut self, name: &str, schema: &'static Value) -> String {
        match name {
            "after" if schema["type"] == "string" => format!("01KDVDNA{:018}", self.chance.u32(..)),
            "claim" => format!("personal-email:{}@example.com", self.chance.u8(..)),
            "limit" | "version" | "after" if self.one_in(2) => self.chance.u32(1..20).to_string(),
            _ => self.value(schema).to_string().trim_matches('"').to_owned(),
        }
    }

    fn header(&mut self, name: &str, path: &str) -> String {
        let seen = self.versions.get(&aggregate(path)).copied().unwrap_or_default();
        match name {
            "If-Match" | "If-None-Match" => match self.chance.u8(..10) {
                0 => "*".to_owned(),
                1 => self.chance.u64(..).to_string(),
                2..4 => format!("\"{}\"", seen.saturating_sub(1)),
                4 => format!("W/\"{seen}-1\""),
                5..7 => format!("\"{seen}-{}\"", self.chance.u8(1..3)),
                _ => format!("\"{seen}\""),
            },
            "Idempotency-Key" => format!("k{}", self.chance.usize(..KEYS)),
            _ => format!("c-{}", self.chance.u16(..)),
        }
    }

    /// A value that matches a schema.
    fn value(&mut self, schema: &'static Value) -> Value {
        let schema = Document::get().resolve(schema);
        if !schema["const"].is_null() {
            return schema["const"].clone();
        }
        for choices in ["enum", "oneOf"] {
            if let Some(choices) = schema[choices].as_array() {
                let choice = &choices[self.chance.usize(..choices.len())];
                return if choice.is_object() { self.value(choice) } else { choice.clone() };
            }
        }
        match schema["type"].as_str().unwrap() {
            "object" => {
                let required = schema["required"].as_array();
                let required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
                let mut members = Map::new();
                for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                    if required(name) || !self.one_in(4) {
                        members.insert(name.clone(), self.value(member));
                    }
                }
                members.into()
            }
            "array" => {
                let least = usize::try_from(schema["minItems"].as_u64().unwrap_or_default()).unwrap();
                let length = if self.one_in(25) { 120 } else { self.chance.usize(least..4) };
                (0..length).map(|_| self.value(&schema["items"])).collect()
            }
            "string" => self.text().into(),
            "integer" => self.integer(&schema["minimum"], &schema["maximum"]),
            "boolean" => self.chance.bool().into(),
            other => panic!("no values of type {other} are generated"),
        }
    }

    fn text(&mut self) -> String {
        match self.chance.u8(..20) {
            0 => String::new(),
            1 => " \t\n".to_owned(),
            2 => "\u{0}\u{7f}\"\\/\u{2028}".to_owned(),
            3 => "日本語 🦀 é\u{301}".to_owned(),
            4 => "long ".repeat(self.chance.usize(..1_000)),
            5 => {
                if self.one_in(3) {
                    "x".repeat(500_000)
                } else {
                    "y".to_owned()
                }
            }
            6 => "EVENT#000000000001".to_owned(),
            _ => format!("text {}", self.chance.u8(..)),
        }
    }

    fn integer(&mut self, least: &Value, most: &Value) -> Value {
        match self.chance.u8(..20) {
            0 => least.clone(),
            1 => most.clone(),
            _ => {
                let least = least.as_i64().unwrap_or(i64::MIN).max(-700);
                let most = most.as_i64().unwrap_or(i64::MAX).min(500);
                self.chance.i64(least..=most).into()
            }
        }
    }

    /// Changes a valid request, usually to an invalid one.
    fn break_it(&mut self, made: &mut Made) {
        let separator = if made.path.contains('?') { '&' } else { '?' };
        match self.chance.u8(..12) {
            0 => made.body.truncate(floor(&made.body, self.chance.usize(..=made.body.len()))),
            1 => made.headers.retain(|(name, _)| *name != "content-type"),
            2 => made.headers.insert(0, ("content-type", "text/plain".to_owned())),
            3 => {
                made.path = format!(
                    "{}{separator}{}",
                    made.path,
                    self.one_of(&[
                        "limit=0",
                        "limit=x",
                        "rebuild=1",
                        "versoin=1",
                        "after=%00",
                        "type=Nothing",
                        "version=-1"
                    ])
                )
            }
            4 => {
                let name =
                    self.one_of(&["If-Match", "Idempotency-Key", "X-Correlation-Id", "X-Causation-Id", "traceparent"]);
                let value = self.one_of(&[
                    "",
                    "two words",
                    "\"",
                    "\"\"",
                    "W/\"1\"",
                    "\"1\", \"2\"",
                    "\u{e9}",
                    "99999999999999999999999",
                ]);
                made.headers.insert(0, (name, value.to_owned()));
            }
            5 => {
                let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
                made.method = methods[self.chance.usize(..methods.len())].clone();
            }
            6 => {
                let id = self.one_of(&["a%20b", "%FF", ".", "a%2Fb", "", "%2e%2e", "a%23b", "%00"]);
                made.path = made.path.replacen("/g", &format!("/{id}"), 1);
            }
            7 => {
                made.path = self
                    .one_of(&[
                        "/",
                        "/nothing",
                        "/nothing/1/commands",
                        "/todo/1/2/3",
                        "//",
                        "/Todo",
                        "/events/1",
                        "/views",
                    ])
                    .to_owned()
            }
            8 => {
                made.body = self
                    .one_of(&["", "{", "[]", "null", "7", "\"x\"", "{}", "[[]]", "{\"id\":1}", "[null]", "\u{feff}{}"])
                    .to_owned()
            }
            9 => made.body = format!("{}{}", made.body, self.one_of(&[" ", "x", "{}", "\n"])),
            _ => {
                if let Ok(mut value) = serde_json::from_str::<Value>(&made.body) {
                    self.spoil(&mut value);
                    made.body = value.to_string();
                }
            }
        }
    }

    fn one_of(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.chance.usize(..choices.len())]
    }

    /// Changes one member of a value.
    fn spoil(&mut self, value: &mut Value) {
        let odd = [json!(null), json!(7), json!(-1.5), json!("x"), json!([]), json!({}), json!(true), json!(u64::MAX)];
        match value {
            Value::Object(members) if !members.is_empty() => {
                let name = members.keys().nth(self.chance.usize(..members.len())).unwrap().clone();
                match self.chance.u8(..4) {
                    0 => drop(members.remove(&name)),
                    1 => drop(members.insert("unheard-of".to_owned(), json!(1))),
                    _ => self.spoil(&mut members[&name]),
                }
            }
            Value::Array(elements) if !elements.is_empty() => {
                let index = self.chance.usize(..elements.len());
                self.spoil(&mut elements[index]);
            }
            other => *other = odd[self.chance.usize(..odd.len())].clone(),
        }
    }
}

/// The path of the aggregate in the path of a request.
fn aggregate(path: &str) -> String {
    path.split('?').next().unwrap().split('/').take(3).collect::<Vec<_>>().join("/")
}

/// The nearest lower index where a text can be cut.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
