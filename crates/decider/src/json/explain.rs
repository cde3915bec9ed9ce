//! Serde's errors about JSON that does not fit, in terms of JSON instead of Rust.

/// Describes what is wrong and where. It names a path into the data instead of a column of the text, and no Rust
/// types.
pub(crate) fn explain(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let reason = error.into_inner().to_string();
    let reason = in_json_terms(reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason));
    if path == "." { reason } else { format!("{path}: {reason}") }
}

/// The first words of what serde reports as expected, and the JSON term for each.
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

/// The range of a Rust integer type.
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

fn in_json_terms(reason: &str) -> String {
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
        // serde_json also reads an integer of more than 64 bits as a floating point number.
        return match found.strip_prefix("invalid type: floating point ") {
            Some(_) => format!("invalid number, expected {integer} in plain digits"),
            None => format!("{found}, expected {integer}"),
        };
    }
    let found = found.replacen("invalid type: floating point ", "invalid type: number ", 1);
    let Some((_, json)) = EXPECTED.iter().find(|(prefix, _)| expected.starts_with(prefix)) else {
        return format!("{found}, expected {expected}");
    };
    let length = expected.find(" with ").or_else(|| expected.find(" of size ")).map_or("", |at| &expected[at..]);
    format!("{found}, expected {json}{length}")
}
