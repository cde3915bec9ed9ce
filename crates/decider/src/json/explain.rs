//! Serde's errors about JSON that does not fit, in words of JSON.

/// What is wrong and where: a path into the data instead of a column of a text that nobody sees, and no name of a type,
/// which is a matter of the source alone.
pub(crate) fn explain(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let reason = error.into_inner().to_string();
    let reason = in_words_of_json(reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason));
    if path == "." { reason } else { format!("{path}: {reason}") }
}

/// How serde's description of what it expected begins, and what that is in JSON.
const EXPECTED: [(&str, &str); 13] = [
    ("a map", "an object"),
    ("struct ", "an object"),
    ("internally tagged enum ", "an object"),
    ("adjacently tagged enum ", "an object"),
    ("a sequence", "an array"),
    ("tuple struct ", "an array"),
    ("tuple variant", "an array"),
    ("a tuple", "an array"),
    ("unit", "null"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("newtype variant", "an object"),
    ("enum ", "a variant"),
];

/// The integers that a Rust type holds.
fn integer(expected: &str) -> Option<String> {
    let (kind, but) = expected.strip_prefix("a nonzero ").map_or((expected, ""), |kind| (kind, " other than 0"));
    macro_rules! range_of {
        ($($known:ident),+) => {
            match kind {
                $(stringify!($known) => Some(format!("an integer from {} to {}{but}", $known::MIN, $known::MAX)),)+
                _ => None,
            }
        };
    }
    range_of!(i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize)
}

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
    if let Some(integer) = integer(expected) {
        // Also an integer of more than 64 bits is a floating point number to serde_json.
        return match found.strip_prefix("invalid type: floating point ") {
            Some(_) => format!("invalid number, expected {integer} in plain digits"),
            None => format!("{found}, expected {integer}"),
        };
    }
    let found = found.replacen("invalid type: floating point ", "invalid type: number ", 1);
    let Some((_, json)) = EXPECTED.iter().find(|(begins, _)| expected.starts_with(begins)) else {
        return format!("{found}, expected {expected}");
    };
    let length = expected.find(" with ").or_else(|| expected.find(" of size ")).map_or("", |at| &expected[at..]);
    format!("{found}, expected {json}{length}")
}
