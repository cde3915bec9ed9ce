//! JSON with its numbers and its order of members as they were written, indented.

use maud::{Markup, html};

pub(crate) fn block(text: &str) -> Markup {
    html! { pre.json tabindex="0" role="group" aria-label="JSON" { (colored(&indented(text))) } }
}

/// The beginning of a text.
pub(crate) fn line(text: &str, most: usize) -> Markup {
    let end = text.floor_char_boundary(most);
    html! { code.line { (&text[..end]) @if end < text.len() { "…" } } }
}

enum Token<'a> {
    Text(&'a str),
    Other(&'a str),
}

/// The strings of JSON text, and what is between them.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find('"') {
        let (before, string) = rest.split_at(begin);
        tokens.push(Token::Other(before));
        let mut is_escaped = false;
        let end = string[1..].find(|character| {
            let ends = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            ends
        });
        let (string, after) = string.split_at(end.map_or(string.len(), |end| end + 2));
        tokens.push(Token::Text(string));
        rest = after;
    }
    tokens.push(Token::Other(rest));
    tokens
}

/// The value with a line for each member. Text that is no JSON stays readable, too.
pub(crate) fn indented(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    for token in tokens(text) {
        let other = match token {
            Token::Text(string) => {
                begin_line(&mut out, depth);
                out.push_str(string);
                continue;
            }
            Token::Other(other) => other,
        };
        for character in other.chars().filter(|character| !character.is_whitespace()) {
            match character {
                '}' | ']' => {
                    depth = depth.saturating_sub(1);
                    if !out.ends_with(['{', '[']) {
                        new_line(&mut out, depth);
                    }
                }
                ',' | ':' => {}
                _ => begin_line(&mut out, depth),
            }
            out.push(character);
            depth += usize::from(matches!(character, '{' | '['));
            if character == ':' {
                out.push(' ');
            }
        }
    }
    out
}

/// Begins a line after what opens or separates members.
fn begin_line(out: &mut String, depth: usize) {
    if out.ends_with(['{', '[', ',']) {
        new_line(out, depth);
    }
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    (0..depth).for_each(|_| out.push_str("  "));
}

/// The text with its names and strings marked.
fn colored(text: &str) -> Markup {
    let tokens = tokens(text);
    let is_name = |at: usize| matches!(tokens.get(at + 1), Some(Token::Other(next)) if next.starts_with(':'));
    html! {
        @for (at, token) in tokens.iter().enumerate() {
            @match token {
                Token::Text(name) if is_name(at) => span.name { (name) },
                Token::Text(text) => span.text { (text) },
                Token::Other(other) => (other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_value_keeps_order_numbers_and_strings() {
        let text = r#"{"z":1.50,"a":{},"list":[1,{"x":"a \"b\" {,:}"}],"empty":[]}"#;
        let expected = "{\n  \"z\": 1.50,\n  \"a\": {},\n  \"list\": [\n    1,\n    {\n      \"x\": \"a \\\"b\\\" {,:}\"\n    }\n  ],\n  \"empty\": []\n}";
        assert_eq!(indented(text), expected);
        assert_eq!(indented(expected), expected);
    }

    #[test]
    fn text_that_is_no_json_is_shown() {
        for text in ["", "\"", "plain", "\"open \\\"", "]}"] {
            indented(text);
            colored(text);
        }
    }

    #[test]
    fn markup_in_a_value_is_text() {
        let shown = block(r#"{"<b>":"<script>alert(1)</script>"}"#).into_string();
        assert!(!shown.contains("<script") && !shown.contains("<b>"), "{shown}");
    }
}
