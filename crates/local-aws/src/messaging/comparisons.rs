//! The comparison operators of event patterns.

use std::net::IpAddr;

use serde_json::Value;

/// A comparison with one value of an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Comparison {
    /// A text, a number, true, false or null.
    Equals(Value),
    Text(TextComparison),
    AnythingBut(Vec<Comparison>),
    Numeric(Vec<(NumberOperator, f64)>),
    Exists(bool),
    Cidr(IpAddr, u32),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextComparison {
    Prefix(String),
    Suffix(String),
    /// In lower case.
    EqualsIgnoreCase(String),
    /// In lower case.
    PrefixIgnoreCase(String),
    /// In lower case.
    SuffixIgnoreCase(String),
    /// The texts between the asterisks.
    Wildcard(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NumberOperator {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Reads one of the values of a field in a pattern.
    ///
    /// # Errors
    ///
    /// The reason why EventBridge would reject it.
    pub(crate) fn new(value: &Value) -> Result<Self, String> {
        let Value::Object(operator) = value else {
            let is_plain = !value.is_array();
            return if is_plain {
                Ok(Self::Equals(value.clone()))
            } else {
                Err(format!("{value} is neither a value nor an operator"))
            };
        };
        let Some((name, operand)) = operator.iter().next().filter(|_| operator.len() == 1) else {
            return Err("an operator stands alone in its object".to_owned());
        };
        match name.as_str() {
            "anything-but" => Ok(Self::AnythingBut(excluded(operand)?)),
            "numeric" => numeric(operand).map(Self::Numeric),
            "exists" => operand.as_bool().map(Self::Exists).ok_or_else(|| "exists needs true or false".to_owned()),
            "cidr" => cidr(operand),
            name => match TextComparison::new(name, operand) {
                Some(comparison) => comparison.map(Self::Text),
                None => Err(format!("unknown operator {name:?}")),
            },
        }
    }

    /// Whether it holds for a value; `None` is a field without a value.
    pub(crate) fn holds(&self, value: Option<&Value>) -> bool {
        let Some(value) = value else { return *self == Self::Exists(false) };
        match self {
            Self::Equals(expected) => value == expected,
            Self::Text(comparison) => value.as_str().is_some_and(|text| comparison.holds(text)),
            Self::AnythingBut(excluded) => !excluded.iter().any(|comparison| comparison.holds(Some(value))),
            Self::Numeric(limits) => value
                .as_f64()
                .is_some_and(|number| limits.iter().all(|(operator, limit)| operator.holds(number, *limit))),
            Self::Exists(exists) => *exists,
            Self::Cidr(network, bits) => value
                .as_str()
                .and_then(|text| text.parse().ok())
                .is_some_and(|address| prefix_of(address, *bits) == prefix_of(*network, *bits)),
        }
    }
}

impl TextComparison {
    /// The operator of this name; `None` if there is none.
    fn new(name: &str, operand: &Value) -> Option<Result<Self, String>> {
        let ignoring_case = operand.get("equals-ignore-case").filter(|_| ["prefix", "suffix"].contains(&name));
        let of_text: fn(&str) -> Result<Self, String> = match (name, ignoring_case) {
            ("prefix", Some(_)) => |text| Ok(Self::PrefixIgnoreCase(text.to_lowercase())),
            ("suffix", Some(_)) => |text| Ok(Self::SuffixIgnoreCase(text.to_lowercase())),
            ("prefix", None) => |text| Ok(Self::Prefix(text.to_owned())),
            ("suffix", None) => |text| Ok(Self::Suffix(text.to_owned())),
            ("equals-ignore-case", _) => |text| Ok(Self::EqualsIgnoreCase(text.to_lowercase())),
            ("wildcard", _) => |text| wildcard(text).map(Self::Wildcard),
            _ => return None,
        };
        let text = ignoring_case.unwrap_or(operand).as_str();
        Some(text.map_or_else(|| Err(format!("{name} needs a text")), of_text))
    }

    fn holds(&self, text: &str) -> bool {
        match self {
            Self::Prefix(prefix) => text.starts_with(prefix),
            Self::Suffix(suffix) => text.ends_with(suffix),
            Self::EqualsIgnoreCase(expected) => text.to_lowercase() == *expected,
            Self::PrefixIgnoreCase(prefix) => text.to_lowercase().starts_with(prefix),
            Self::SuffixIgnoreCase(suffix) => text.to_lowercase().ends_with(suffix),
            Self::Wildcard(parts) => holds_wildcard(parts, text),
        }
    }
}

impl NumberOperator {
    #[expect(clippy::float_cmp, reason = "a pattern asks for exactly this number")]
    fn holds(self, number: f64, limit: f64) -> bool {
        match self {
            Self::Equal => number == limit,
            Self::Less => number < limit,
            Self::LessOrEqual => number <= limit,
            Self::Greater => number > limit,
            Self::GreaterOrEqual => number >= limit,
        }
    }
}

/// The values, or the comparisons of one operator, that `anything-but` excludes.
fn excluded(operand: &Value) -> Result<Vec<Comparison>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let excluded = match operand {
        Value::Object(operator) => {
            let Some((name, operand)) = operator.iter().next().filter(|_| operator.len() == 1) else {
                return Err("an operator stands alone in its object".to_owned());
            };
            let comparison = |operand: &Value| match TextComparison::new(name, operand) {
                Some(comparison) => comparison.map(Comparison::Text),
                None => Err(format!("unknown operator {name:?} in anything-but")),
            };
            list(operand).iter().map(comparison).collect::<Result<Vec<_>, _>>()?
        }
        values => list(values).into_iter().map(Comparison::Equals).collect(),
    };
    let is_value =
        |comparison: &Comparison| !matches!(comparison, Comparison::Equals(Value::Array(_) | Value::Object(_)));
    if excluded.is_empty() || !excluded.iter().all(is_value) {
        return Err("anything-but needs values".to_owned());
    }
    Ok(excluded)
}

fn numeric(operand: &Value) -> Result<Vec<(NumberOperator, f64)>, String> {
    let limit = |pair: &[Value]| {
        let operator = match pair.first()?.as_str()? {
            "=" => NumberOperator::Equal,
            "<" => NumberOperator::Less,
            "<=" => NumberOperator::LessOrEqual,
            ">" => NumberOperator::Greater,
            ">=" => NumberOperator::GreaterOrEqual,
            _ => return None,
        };
        Some((operator, pair.get(1)?.as_f64()?))
    };
    let limits: Option<Vec<_>> = operand.as_array().and_then(|pairs| pairs.chunks(2).map(limit).collect());
    let limits = limits.filter(|limits| !limits.is_empty());
    limits.ok_or_else(|| "numeric needs pairs of an operator (=, <, <=, >, >=) and a number".to_owned())
}

fn cidr(operand: &Value) -> Result<Comparison, String> {
    let network = operand.as_str().and_then(|text| {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Comparison::Cidr(address, bits))
    });
    network.ok_or_else(|| "cidr needs an address with the length of a prefix, such as 10.0.0.0/24".to_owned())
}

/// The kind of an address and its first bits.
fn prefix_of(address: IpAddr, bits: u32) -> (bool, u128) {
    let (value, length) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    (address.is_ipv4(), value.checked_shr(length - bits.min(length)).unwrap_or(0))
}

/// The texts between the asterisks of a wildcard. `\*` is an asterisk, and `\\` a backslash.
fn wildcard(text: &str) -> Result<Vec<String>, String> {
    let (mut parts, mut part, mut is_after_asterisk) = (Vec::new(), String::new(), false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '*' && is_after_asterisk {
            return Err("wildcard must not have two * in a row".to_owned());
        }
        is_after_asterisk = character == '*';
        match character {
            '*' => parts.push(std::mem::take(&mut part)),
            '\\' => match characters.next() {
                Some(escaped @ ('*' | '\\')) => part.push(escaped),
                _ => return Err("in a wildcard, \\ stands only before * and \\".to_owned()),
            },
            other => part.push(other),
        }
    }
    parts.push(part);
    Ok(parts)
}

/// Whether a text consists of the parts, in their order, with any texts between them.
fn holds_wildcard(parts: &[String], text: &str) -> bool {
    let Some((first, rest)) = parts.split_first() else { return false };
    let Some((last, between)) = rest.split_last() else { return text == first };
    let Some(mut text) = text.strip_prefix(first.as_str()).and_then(|text| text.strip_suffix(last.as_str())) else {
        return false;
    };
    // The first place of each part leaves most of the text for the next parts.
    between.iter().all(|part| match text.split_once(part.as_str()) {
        Some((_, after)) => {
            text = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_matches_any_text_at_each_asterisk() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*.png", "x.png", true),
            ("dir/*/x", "dir/a/b/x", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            (r"a\\b", r"a\b", true),
            ("plain", "plain", true),
            ("plain", "plainer", false),
        ] {
            let parts = wildcard(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(holds_wildcard(&parts, text), expected, "{pattern} {text}");
        }
    }
}
