//! JSON with its numbers and its order of members as they were written, indented, and cut if it is long.

use maud::{Markup, html};

/// Maximum bytes that a page shows of one value.
const MAX_SHOWN: usize = 16 * 1024;

/// A value. `whole` is the address of the whole value, for a value that is cut.
pub(crate) fn block(text: &str, whole: &str) -> Markup {
    let all = indented(text);
    let (shown, is_cut) = cut(&all, MAX_SHOWN);
    html! {
        pre.json tabindex="0" role="group" aria-label="JSON" { (colored(shown)) @if is_cut { "…" } }
        @if is_cut {
            p.hint { "The first " (MAX_SHOWN / 1024) " KB. " a href=(whole) { "Show all " (all.len().div_ceil(1024)) " KB" } }
        }
    }
}

pub(crate) fn line(text: &str, most: usize) -> Markup {
    let (shown, is_cut) = cut(text, most);
    html! { code.line { (shown) @if is_cut { "…" } } }
}

/// The beginning of a text, and whether there is more.
fn cut(text: &str, most: usize) -> (&str, bool) {
    let end = text.floor_char_boundary(most);
    (&text[..end], end < text.len())
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
                out.push_str(string);
                continue;
            }
            Token::Other(other) => other,
        };
        let mut characters = other.chars().filter(|character| !character.is_whitespace()).peekable();
        while let Some(character) = characters.next() {
            match character {
                '{' | '[' if matches!(characters.peek(), Some('}' | ']')) => out.push(character),
                '{' | '[' => {
                    depth += 1;
                    out.push(character);
                    new_line(&mut out, depth);
                }
                '}' | ']' => {
                    let is_empty = out.ends_with(['{', '[']);
                    if !is_empty {
                        depth = depth.saturating_sub(1);
                        new_line(&mut out, depth);
                    }
                    out.push(character);
                }
                ',' => {
                    out.push(',');
                    new_line(&mut out, depth);
                }
                ':' => out.push_str(": "),
                other => out.push(other),
            }
        }
    }
    out
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
        let shown = block(r#"{"<b>":"<script>alert(1)</script>"}"#, "/whole").into_string();
        assert!(!shown.contains("<script") && !shown.contains("<b>"), "{shown}");
    }

    #[test]
    fn long_value_is_cut_and_links_to_the_whole() {
        let long = format!("\"{}\"", "é".repeat(MAX_SHOWN));
        let shown = block(&long, "/whole").into_string();
        assert!(shown.len() < MAX_SHOWN + 1_000 && shown.contains("href=\"/whole\""), "{}", shown.len());
    }
}
