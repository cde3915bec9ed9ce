//! The JSON of a request's body: which JSON is accepted, and when two bodies are the same.

use std::collections::BTreeMap;

use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use daybook_decider::{Json, personal};

use crate::problem::{self, Problem};

/// The maximum bytes of a body: those of the largest transaction.
pub(crate) const MAX_BODY: usize = daybook_event_store::limits::MAX_TRANSACTION;

/// The maximum depth of arrays and objects. Every later reader of an event or a message must be able to parse it, and
/// many parsers stop at 128.
const MAX_DEPTH: usize = 100;

/// Parses a body, and rejects JSON that some readers cannot read. Numbers are checked by the fields that contain them.
pub(crate) fn read(bytes: &[u8]) -> Result<Json, Problem> {
    let body: Json = serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(&problem::MALFORMED_JSON, format!("the body is not JSON: {error}")))?;
    check(body.text()).map_err(|reason| Problem::new(&problem::MALFORMED_JSON, reason))?;
    Ok(body)
}

/// The problem of a body that is too large or did not arrive completely.
pub(crate) fn problem_of(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(&problem::TOO_LARGE, format!("a body has at most {MAX_BODY} bytes"))
        }
        _ => Problem::new(&problem::MALFORMED_JSON, "the body ends early"),
    }
}

/// Rejects well-formed JSON that many readers do not accept.
fn check(text: &str) -> Result<(), &'static str> {
    let mut bytes = text.bytes();
    let (mut depth, mut in_text, mut surrogate) = (0_usize, false, false);
    while let Some(byte) = bytes.next() {
        let follows_surrogate = std::mem::take(&mut surrogate);
        match byte {
            b'\\' if in_text => {
                let digits = |bytes: &mut std::str::Bytes<'_>| {
                    bytes.take(4).fold(0, |code, digit| code << 4 | char::from(digit).to_digit(16).unwrap_or_default())
                };
                let code = if bytes.next() == Some(b'u') { digits(&mut bytes) } else { 0 };
                surrogate = matches!(code, 0xD800..=0xDBFF);
                if matches!(code, 0xDC00..=0xDFFF) != follows_surrogate {
                    return Err(LONE_SURROGATE);
                }
            }
            _ if follows_surrogate => return Err(LONE_SURROGATE),
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth -= 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err("the body nests deeper than 100 levels");
        }
    }
    if personal::has_reserved_key(text) {
        return Err("the body has a member $personal or $subject, which are reserved for stored values");
    }
    Ok(())
}

const LONE_SURROGATE: &str = "the body has an escape for half of a character, a lone surrogate";

/// The value in a form that does not depend on white space, the order of members, and how characters are escaped.
/// Numbers stay as they were written, since some do not fit any number type. Of members with the same name, the last
/// counts.
pub(crate) fn canonical(body: &Json) -> Result<String, serde_json::Error> {
    let mut text = String::with_capacity(body.text().len());
    Values::of(body.text()).write(0, &mut text)?;
    Ok(text)
}

/// The values of a JSON text in the order in which they begin, names of members included. They are found in one pass, and
/// each is written once: the work does not depend on how deep they nest.
struct Values<'a> {
    text: &'a str,
    values: Vec<Span>,
}

/// The place of a value. Bodies are smaller than 4 GB.
struct Span {
    start: u32,
    /// Its end in the text; for an array or an object, the end of its opening bracket.
    end: u32,
    /// The position of the next value that is not within it.
    next: u32,
}

impl<'a> Values<'a> {
    fn of(text: &'a str) -> Self {
        let position = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let mut values: Vec<Span> = Vec::new();
        let mut open = Vec::new();
        let mut at = 0;
        while let Some(&byte) = text.as_bytes().get(at) {
            let end = match byte {
                b'"' => at + text_length(&text.as_bytes()[at..]),
                b'{' | b'[' => at + 1,
                b'}' | b']' | b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => {
                    if let Some(container) = matches!(byte, b'}' | b']').then(|| open.pop()).flatten() {
                        let next = position(values.len());
                        let container: &mut Span = &mut values[container];
                        container.next = next;
                    }
                    at += 1;
                    continue;
                }
                _ => at + scalar_length(&text.as_bytes()[at..]),
            };
            if matches!(byte, b'{' | b'[') {
                open.push(values.len());
            }
            values.push(Span { start: position(at), end: position(end), next: position(values.len() + 1) });
            at = end;
        }
        Self { text, values }
    }

    fn text(&self, index: usize) -> &'a str {
        let Span { start, end, .. } = self.values[index];
        &self.text[start as usize..end as usize]
    }

    /// The positions of the elements of an array, or of the names and values of an object.
    fn within(&self, index: usize) -> impl Iterator<Item = usize> {
        let end = self.values[index].next as usize;
        let first = Some(index + 1).filter(|&first| first < end);
        std::iter::successors(first, move |&at| Some(self.values[at].next as usize).filter(|&next| next < end))
    }

    /// Writes a value. Digests of this text are stored, so it never changes.
    fn write(&self, index: usize, into: &mut String) -> Result<(), serde_json::Error> {
        match self.text(index) {
            "{" => {
                into.push('{');
                let mut names_and_values = self.within(index);
                let mut members = BTreeMap::new();
                while let Some((name, value)) = names_and_values.next().zip(names_and_values.next()) {
                    members.insert(serde_json::from_str::<String>(self.text(name))?, value);
                }
                for (nth, (name, value)) in members.into_iter().enumerate() {
                    into.push_str(if nth == 0 { "" } else { "," });
                    into.push_str(&serde_json::to_string(&name)?);
                    into.push(':');
                    self.write(value, into)?;
                }
                into.push('}');
            }
            "[" => {
                into.push('[');
                for (nth, element) in self.within(index).enumerate() {
                    into.push_str(if nth == 0 { "" } else { "," });
                    self.write(element, into)?;
                }
                into.push(']');
            }
            text if text.starts_with('"') => {
                into.push_str(&serde_json::to_string(&serde_json::from_str::<String>(text)?)?);
            }
            scalar => into.push_str(scalar),
        }
        Ok(())
    }
}

/// The bytes of the text in quotes that `bytes` begin with.
fn text_length(bytes: &[u8]) -> usize {
    let mut is_escaped = false;
    let closes = |byte: &u8| {
        let closes = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        closes
    };
    bytes[1..].iter().position(closes).map_or(bytes.len(), |last| last + 2)
}

/// The bytes of the number or word that `bytes` begin with.
fn scalar_length(bytes: &[u8]) -> usize {
    let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
    bytes.iter().position(ends).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str) -> String {
        match read(text.as_bytes()) {
            Ok(_) => "accepted".to_owned(),
            Err(problem) => {
                assert_eq!(problem.problem_type.slug, problem::MALFORMED_JSON.slug);
                problem.detail
            }
        }
    }

    fn nested(depth: usize) -> [String; 3] {
        [
            format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
            format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth)),
            format!(r#"{{"[[":{}"]]"{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1)),
        ]
    }

    #[test]
    fn json_nested_too_deeply_is_rejected_at_any_depth() {
        for text in nested(MAX_DEPTH) {
            assert_eq!(reason(&text), "accepted");
        }
        for text in [MAX_DEPTH + 1, 1_000, 1_000_000].into_iter().flat_map(nested) {
            assert_eq!(reason(&text), "the body nests deeper than 100 levels");
        }
        // Brackets in strings do not count as levels.
        assert_eq!(reason(&format!(r#"["{}\"{}"]"#, "[".repeat(200), "{".repeat(200))), "accepted");
        assert_eq!(reason(r#"["\\", [[]], "]"]"#), "accepted");
    }

    #[test]
    fn lone_surrogate_is_rejected_and_a_pair_is_accepted() {
        for text in [
            r#""\ud800""#,
            r#""\udbff x""#,
            r#""\udc00""#,
            r#""\ud800\n""#,
            r#""\ud800\u0041""#,
            r#""\ud800\ud800\udc00""#,
            r#""\udc00\ud800""#,
            r#"{"\uD800": 1}"#,
            r#"["\ud83e\udd80", "\ud83e"]"#,
        ] {
            assert_eq!(reason(text), LONE_SURROGATE, "{text}");
        }
        for text in [
            r#""\ud83e\udd80""#,
            r#""\ud83e\udd80\ud83e\udd80""#,
            r#""\ud7ff\ue000\uffff\u0000""#,
            r#""\\ud800""#,
            "\"\u{ffff}\u{10ffff}\"",
        ] {
            assert_eq!(reason(text), "accepted", "{text}");
        }
    }

    fn same(one: &str, other: &str) -> bool {
        let [one, other] = [one, other].map(|text| canonical(&read(text.as_bytes()).unwrap()).unwrap());
        one == other
    }

    /// Bodies of about the same size, each nested to another depth.
    fn bodies() -> impl Iterator<Item = String> {
        let members = |depth: usize| {
            let inner = format!(r#"[1,"a\"]",{}{{ }}]"#, "null, ".repeat(1_000));
            (0..depth).fold(inner, |body, n| format!(r#"{{"z":{body},"a{n}":[true]}}"#))
        };
        [1, 10, 97].into_iter().map(members)
    }

    #[test]
    fn canonical_json_reads_each_byte_a_constant_number_of_times_at_any_depth() {
        for body in bodies() {
            let body = read(body.as_bytes()).unwrap();
            let found = Values::of(body.text());
            // The bytes that are read after the first pass.
            let read: usize = (0..found.values.len()).map(|index| found.text(index).len()).sum();
            assert!(read <= body.text().len(), "{read} bytes of {}", body.text().len());
            // Each value is within one other, so it is written once.
            let containers = (0..found.values.len()).filter(|&index| matches!(found.text(index), "{" | "["));
            let written: usize = containers.map(|index| found.within(index).count()).sum();
            assert_eq!(written, found.values.len() - 1);
        }
    }

    #[test]
    fn canonical_json_has_the_form_that_stored_digests_were_computed_from() {
        let text = r#" {"b" : [ [], {}, [ 1.0 , "x" ] ], "a": {"\u0061": null, "a": "\u00e9"}} "#;
        let expected = r#"{"a":{"a":"é"},"b":[[],{},[1.0,"x"]]}"#;
        assert_eq!(canonical(&read(text.as_bytes()).unwrap()).unwrap(), expected);
    }

    #[test]
    fn canonical_json_is_equal_for_equal_values_only() {
        for (one, other) in [
            (r#"{"a":1,"b":[true,null]}"#, " {\"b\" : [ true , null ],\n\"a\": 1} "),
            (r#"{"a":{"c":"\u00e9\/","b":{}}}"#, r#"{"a":{"b":{},"c":"é/"}}"#),
            (r#""\ud83e\udd80""#, "\"\u{1f980}\""),
            ("[]", "[ ]"),
        ] {
            assert!(same(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("[1,2]", "[2,1]"),
            (r#"{"a":[]}"#, r#"{"a":{}}"#),
            (r#""1""#, "1"),
            ("[[1],2]", "[[1,2]]"),
            // Equal in floating point.
            ("12345678901234567890123456789012345678", "12345678901234567890123456789012345679"),
            ("1e400", "2e400"),
            ("0", "-0"),
        ] {
            assert!(!same(one, other), "{one} {other}");
        }
    }
}
