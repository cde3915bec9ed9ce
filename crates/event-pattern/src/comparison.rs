//! The comparison operators of patterns.

use std::net::IpAddr;

use serde_json::{Map, Value};

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
    pub(crate) fn new(value: &Value, service: Service) -> Result<Self, String> {
        let operator = match value {
            Value::Object(operator) => operator,
            Value::Array(_) => return Err(format!("{value} is neither a value nor an operator")),
            value => return Ok(Self::Equals(value.clone())),
        };
        let (name, operand) = sole_member(operator)?;
        match name {
            "anything-but" => excluded(operand, service).map(Self::AnythingBut),
            "numeric" => numeric(operand).map(Self::Numeric),
            "exists" => operand.as_bool().map(Self::Exists).ok_or_else(|| "exists needs true or false".to_owned()),
            "cidr" if service == Service::EventBridge => cidr(operand),
            name => TextComparison::new(name, operand, service)?
                .map(Self::Text)
                .ok_or_else(|| format!("unknown operator {name:?}")),
        }
    }

    /// Whether it holds for one of the values of a field, which has none if it is absent.
    pub(crate) fn holds_for(&self, values: &[&Value]) -> bool {
        match self {
            Self::Exists(exists) => values.is_empty() != *exists,
            comparison => values.iter().any(|value| comparison.holds(value)),
        }
    }

    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Equals(expected) => value == expected,
            Self::Text(comparison) => value.as_str().is_some_and(|text| comparison.holds(text)),
            Self::AnythingBut(excluded) => !excluded.iter().any(|comparison| comparison.holds(value)),
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
    /// The operator of this name; `None` if the service has none.
    fn new(name: &str, operand: &Value, service: Service) -> Result<Option<Self>, String> {
        let has_all = service == Service::EventBridge;
        let ignoring_case =
            operand.get("equals-ignore-case").filter(|_| has_all && ["prefix", "suffix"].contains(&name));
        let of_text: fn(&str) -> Result<Self, String> = match (name, ignoring_case) {
            ("prefix", Some(_)) => |text| Ok(Self::PrefixIgnoreCase(text.to_lowercase())),
            ("suffix", Some(_)) => |text| Ok(Self::SuffixIgnoreCase(text.to_lowercase())),
            ("prefix", None) => |text| Ok(Self::Prefix(text.to_owned())),
            ("suffix", None) => |text| Ok(Self::Suffix(text.to_owned())),
            ("equals-ignore-case", _) => |text| Ok(Self::EqualsIgnoreCase(text.to_lowercase())),
            ("wildcard", _) if has_all => |text| wildcard(text).map(Self::Wildcard),
            _ => return Ok(None),
        };
        let text = ignoring_case.unwrap_or(operand).as_str();
        of_text(text.ok_or_else(|| format!("{name} needs a text"))?).map(Some)
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

fn sole_member(operator: &Map<String, Value>) -> Result<(&str, &Value), String> {
    let sole = operator.iter().next().filter(|_| operator.len() == 1);
    sole.map(|(name, operand)| (name.as_str(), operand))
        .ok_or_else(|| "an operator stands alone in its object".to_owned())
}

/// The values, or the comparisons of one operator, that `anything-but` excludes.
fn excluded(operand: &Value, service: Service) -> Result<Vec<Comparison>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
    let Value::Object(operator) = operand else {
        let values = list(operand);
        let is_one_kind = values.iter().all(Value::is_string) || values.iter().all(Value::is_number);
        return if is_one_kind && !values.is_empty() {
            Ok(values.into_iter().map(Comparison::Equals).collect())
        } else {
            Err("anything-but needs values, all texts or all numbers".to_owned())
        };
    };
    let (name, operands) = sole_member(operator)?;
    let unknown = || format!("unknown operator {name:?} in anything-but");
    let operands = match service {
        Service::EventBridge => list(operands),
        Service::Lambda if name == "prefix" => vec![operands.clone()],
        Service::Lambda => return Err(unknown()),
    };
    if operands.is_empty() {
        return Err("anything-but needs values, all texts or all numbers".to_owned());
    }
    let comparison = |operand: &Value| TextComparison::new(name, operand, service)?.ok_or_else(unknown);
    operands.iter().map(|operand| comparison(operand).map(Comparison::Text)).collect()
}

/// One comparison, or a lower limit and an upper one.
fn numeric(operand: &Value) -> Result<Vec<(NumberOperator, f64)>, String> {
    use NumberOperator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual};
    let limit = |pair: &[Value]| {
        let operator = match pair.first()?.as_str()? {
            "=" => Equal,
            "<" => Less,
            "<=" => LessOrEqual,
            ">" => Greater,
            ">=" => GreaterOrEqual,
            _ => return None,
        };
        Some((operator, pair.get(1)?.as_f64()?))
    };
    let limits: Option<Vec<_>> = operand.as_array().and_then(|pairs| pairs.chunks(2).map(limit).collect());
    let is_range =
        |limits: &Vec<_>| matches!(limits.as_slice(), [_] | [(Greater | GreaterOrEqual, _), (Less | LessOrEqual, _)]);
    limits.filter(is_range).ok_or_else(|| {
        "numeric needs one pair of an operator (=, <, <=, >, >=) and a number, or a lower limit and an upper one"
            .to_owned()
    })
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
    let inner = text.strip_prefix(first.as_str()).and_then(|text| text.strip_suffix(last.as_str()));
    // The first place of each part leaves most of the text for the next parts.
    inner.and_then(|text| between.iter().try_fold(text, |text, part| Some(text.split_once(part.as_str())?.1))).is_some()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// An event bus, with all operators.
    EventBridge,
    /// An event source mapping. It has neither `wildcard` nor `cidr`, `prefix` and `suffix` do not ignore case, and
    /// `anything-but` takes only values or one prefix.
    Lambda,
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
