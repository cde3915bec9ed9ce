//! What serde says of JSON that does not fit, in words of JSON.

/// What is wrong and where: a path into the data instead of a column of a text that nobody sees, and no name of a type,
/// which is a matter of the source alone.
pub(crate) fn explain(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let reason = error.into_inner().to_string();
    let reason = in_words_of_json(reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason));
    if path == "." { reason } else { format!("{path}: {reason}") }
}

/// How serde begins to say what it expected, and what that is in JSON.
const EXPECTED: [(&str, &str); 11] = [
    ("a map", "an object"),
    ("struct ", "an object"),
    ("internally tagged enum ", "an object"),
    ("adjacently tagged enum ", "an object"),
    ("a sequence", "an array"),
    ("tuple struct ", "an array"),
    ("tuple variant", "an array"),
    ("unit struct ", "null"),
    ("unit variant", "null"),
    ("newtype variant", "an object"),
    ("enum ", "a variant"),
];

fn in_words_of_json(reason: &str) -> String {
    if reason.starts_with("data did not match any variant of untagged enum ") {
        return "it has none of the forms that it can have".to_owned();
    }
    let Some((found, expected)) = reason.rsplit_once(", expected ") else { return reason.to_owned() };
    let found = match found {
        "invalid type: map" => "invalid type: object",
        "invalid type: sequence" => "invalid type: array",
        "invalid type: unit variant" => "invalid type: string",
        other => other,
    };
    let Some((_, json)) = EXPECTED.iter().find(|(begins, _)| expected.starts_with(begins)) else {
        return format!("{found}, expected {expected}");
    };
    let length = expected.find(" with ").map_or("", |at| &expected[at..]);
    format!("{found}, expected {json}{length}")
}
