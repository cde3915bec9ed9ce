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

/// The strings of JSON text, which begin with a quotation mark, and what is between them.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find('"') {
        let (before, string) = rest.split_at(begin);
        tokens.push(before);
        let mut is_escaped = false;
        let end = string[1..].find(|character| {
            let ends = character == '"' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            ends
        });
        let (string, after) = string.split_at(end.map_or(string.len(), |end| end + 2));
        tokens.push(string);
        rest = after;
    }
    tokens.push(rest);
    tokens
}

/// The value with a line for each member. Text that is no JSON stays readable, too.
pub(crate) fn indented(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    for token in tokens(text) {
        if token.starts_with('"') {
            begin_line(&mut out, depth);
            out.push_str(token);
            continue;
        }
        for character in token.chars().filter(|character| !character.is_whitespace()) {
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
    let is_name = |at: usize| tokens.get(at + 1).is_some_and(|next| next.starts_with(':'));
    html! {
        @for (at, token) in tokens.iter().enumerate() {
            @if !token.starts_with('"') { (token) }
            @else if is_name(at) { span.name { (token) } }
            @else { span.text { (token) } }
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
