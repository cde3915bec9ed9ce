//! The JSON of a request's body: which JSON is accepted, and when two bodies are the same.

use std::collections::BTreeMap;

use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use daybook_decider::Json;
use serde_json::value::RawValue;

use crate::problem::{self, Problem};

/// The maximum bytes of a body: those of the largest transaction.
pub(crate) const MAX_BODY: usize = daybook_event_store::limits::MAX_TRANSACTION;

/// The maximum depth of arrays and objects. Whatever reads an event or a message later must manage it too, and many
/// parsers stop at 128.
const MAX_DEPTH: usize = 100;

/// The body, where every reader of JSON can read it. Numbers are checked by the fields that they are in.
pub(crate) fn read(bytes: &[u8]) -> Result<Json, Problem> {
    let body: Json = serde_json::from_slice(bytes)
        .map_err(|error| Problem::new(&problem::MALFORMED_JSON, format!("the body is not JSON: {error}")))?;
    check(body.text()).map_err(|reason| Problem::new(&problem::MALFORMED_JSON, reason))?;
    Ok(body)
}

/// The problem of a body that did not come whole.
pub(crate) fn problem_of(rejection: &BytesRejection) -> Problem {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(&problem::TOO_LARGE, format!("a body has at most {MAX_BODY} bytes"))
        }
        _ => Problem::new(&problem::MALFORMED_JSON, "the body ends early"),
    }
}

/// Checks well-formed JSON for what the grammar allows and many readers do not.
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
    Ok(())
}

const LONE_SURROGATE: &str = "the body has an escape for half of a character, a lone surrogate";

/// The value without what makes no difference: white space, the order of members, and how characters are escaped.
/// Numbers stay as they were written, since some do not fit any number type.
///
/// # Errors
///
/// When the value did not come from [`read`].
pub(crate) fn canonical(body: &Json) -> Result<String, serde_json::Error> {
    let mut text = String::with_capacity(body.text().len());
    write_canonical(&body.read::<Box<RawValue>>()?, &mut text)?;
    Ok(text)
}

fn write_canonical(value: &RawValue, into: &mut String) -> Result<(), serde_json::Error> {
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            for (index, (name, value)) in members.into_iter().enumerate() {
                into.push(if index == 0 { '{' } else { ',' });
                into.push_str(&serde_json::to_string(&name)?);
                into.push(':');
                write_canonical(value, into)?;
            }
            into.push('}');
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text)?;
            for (index, value) in elements.into_iter().enumerate() {
                into.push(if index == 0 { '[' } else { ',' });
                write_canonical(value, into)?;
            }
            into.push(']');
        }
        Some(b'"') => into.push_str(&serde_json::to_string(&serde_json::from_str::<String>(text)?)?),
        _ => into.push_str(text),
    }
    Ok(())
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
    fn json_that_nests_too_deeply_is_refused_at_any_depth() {
        for text in nested(MAX_DEPTH) {
            assert_eq!(reason(&text), "accepted");
        }
        for text in [MAX_DEPTH + 1, 1_000, 1_000_000].into_iter().flat_map(nested) {
            assert_eq!(reason(&text), "the body nests deeper than 100 levels");
        }
        // Brackets in texts are no levels.
        assert_eq!(reason(&format!(r#"["{}\"{}"]"#, "[".repeat(200), "{".repeat(200))), "accepted");
        assert_eq!(reason(r#"["\\", [[]], "]"]"#), "accepted");
    }

    #[test]
    fn a_lone_surrogate_is_refused_and_a_pair_is_accepted() {
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
