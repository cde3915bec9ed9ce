//! `FilterCriteria`: which records a function receives.
//!
//! A pattern has the shape of the record. Its keys are joined by AND; a leaf is an array of alternatives, joined by OR;
//! `$or` joins patterns of several fields. Strings are compared byte for byte, and a number in a record is not equal to
//! the same digits in a string: DynamoDB writes `N` attributes as strings, so `numeric` never matches one.

use serde_json::{Map, Number, Value};

/// Patterns joined by OR. The default has none and matches every record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFilter(Vec<Pattern>);

impl RecordFilter {
    /// Adds a pattern, JSON text.
    ///
    /// # Errors
    ///
    /// When it is not a pattern, or uses an operator that Lambda does not have.
    pub fn add(&mut self, pattern: &str) -> Result<(), BadPattern> {
        self.0.push(Pattern::compile(pattern)?);
        Ok(())
    }

    /// Whether a record, as Lambda delivers it, reaches the function.
    pub fn matches(&self, record: &Value) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(&[record]))
    }
}

/// A pattern that cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter pattern{}: {reason}", if path.is_empty() { String::new() } else { format!(" at {path}") })]
pub struct BadPattern {
    /// The keys that lead to it, joined by dots.
    path: String,
    reason: String,
}

impl BadPattern {
    fn new(path: &str, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), reason: reason.into() }
    }
}

/// Terms that must all match.
#[derive(Clone, Debug, PartialEq)]
struct Pattern(Vec<Term>);

#[derive(Clone, Debug, PartialEq)]
enum Term {
    /// The members with this name match the pattern.
    Within(String, Pattern),
    /// One of the values with this name passes one of the tests.
    Leaf(String, Vec<Test>),
    /// One of the patterns matches.
    Or(Vec<Pattern>),
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Equals(Value),
    EqualsIgnoreCase(String),
    Prefix(String),
    Suffix(String),
    AnythingBut(Vec<Value>),
    AnythingButPrefix(String),
    Numeric(Vec<(Comparison, f64)>),
    Exists(bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Pattern {
    fn compile(text: &str) -> Result<Self, BadPattern> {
        let json: Value =
            serde_json::from_str(text).map_err(|error| BadPattern::new("", format!("not JSON: {error}")))?;
        Self::of(&json, "")
    }

    fn of(json: &Value, path: &str) -> Result<Self, BadPattern> {
        let members = json.as_object().ok_or_else(|| BadPattern::new(path, "must be an object"))?;
        if members.is_empty() {
            return Err(BadPattern::new(path, "must have a member"));
        }
        members.iter().map(|(name, value)| Term::of(name, value, path)).collect::<Result<_, _>>().map(Self)
    }

    /// Takes several values at once, because an array in the record stands for each of its elements.
    fn matches(&self, candidates: &[&Value]) -> bool {
        self.0.iter().all(|term| term.matches(candidates))
    }
}

impl Term {
    fn of(name: &str, value: &Value, parent: &str) -> Result<Self, BadPattern> {
        let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
        match value {
            Value::Array(patterns) if name == "$or" => {
                if patterns.len() < 2 {
                    return Err(BadPattern::new(&path, "must have at least two patterns"));
                }
                patterns.iter().map(|pattern| Pattern::of(pattern, &path)).collect::<Result<_, _>>().map(Self::Or)
            }
            Value::Array(tests) if !tests.is_empty() => {
                let tests = tests.iter().map(|test| Test::of(test, &path)).collect::<Result<_, _>>()?;
                Ok(Self::Leaf(name.to_owned(), tests))
            }
            Value::Object(_) if name != "$or" => Ok(Self::Within(name.to_owned(), Pattern::of(value, &path)?)),
            _ => Err(BadPattern::new(&path, "must be an array of values or operators that is not empty, or an object")),
        }
    }

    fn matches(&self, candidates: &[&Value]) -> bool {
        match self {
            Self::Within(name, pattern) => pattern.matches(&members(candidates, name)),
            Self::Leaf(name, tests) => {
                let leaves: Vec<_> = members(candidates, name).into_iter().filter(|value| !value.is_object()).collect();
                tests.iter().any(|test| test.passes(&leaves))
            }
            Self::Or(patterns) => patterns.iter().any(|pattern| pattern.matches(candidates)),
        }
    }
}

/// The values of this member in the candidates. An array is replaced by its elements.
fn members<'a>(candidates: &[&'a Value], name: &str) -> Vec<&'a Value> {
    fn spread<'a>(value: &'a Value, into: &mut Vec<&'a Value>) {
        match value {
            Value::Array(elements) => elements.iter().for_each(|element| spread(element, into)),
            other => into.push(other),
        }
    }
    let mut found = Vec::new();
    candidates.iter().filter_map(|value| value.get(name)).for_each(|value| spread(value, &mut found));
    found
}

impl Test {
    fn of(json: &Value, path: &str) -> Result<Self, BadPattern> {
        let operator = match json {
            Value::Object(operator) => operator,
            Value::Array(_) => return Err(BadPattern::new(path, "an alternative cannot be an array")),
            value => return Ok(Self::Equals(value.clone())),
        };
        let (name, operand) = sole_member(operator)
            .ok_or_else(|| BadPattern::new(path, "an operator is an object with exactly one member"))?;
        let needs = |what: &str| BadPattern::new(path, format!("{name} needs {what}"));
        let text = || operand.as_str().map(str::to_owned).ok_or_else(|| needs("a string"));
        match name {
            "prefix" => text().map(Self::Prefix),
            "suffix" => text().map(Self::Suffix),
            "equals-ignore-case" => text().map(Self::EqualsIgnoreCase),
            "exists" => operand.as_bool().map(Self::Exists).ok_or_else(|| needs("true or false")),
            "anything-but" => {
                anything_but(operand).ok_or_else(|| needs("strings or numbers, or one {\"prefix\": string}"))
            }
            "numeric" => numeric(operand).map(Self::Numeric).ok_or_else(|| {
                needs("comparisons such as [\">\", 0, \"<=\", 100]: \"=\" alone, or one bound each side")
            }),
            unknown => Err(BadPattern::new(path, format!("{unknown:?} is not an operator of Lambda event filtering"))),
        }
    }

    fn passes(&self, leaves: &[&Value]) -> bool {
        let any_text = |test: &dyn Fn(&str) -> bool| leaves.iter().any(|leaf| leaf.as_str().is_some_and(test));
        match self {
            Self::Equals(value) => leaves.contains(&value),
            Self::EqualsIgnoreCase(text) => any_text(&|leaf| leaf.to_lowercase() == text.to_lowercase()),
            Self::Prefix(prefix) => any_text(&|leaf| leaf.starts_with(prefix)),
            Self::Suffix(suffix) => any_text(&|leaf| leaf.ends_with(suffix)),
            Self::AnythingBut(values) => leaves.iter().any(|leaf| !values.contains(leaf)),
            Self::AnythingButPrefix(prefix) => any_text(&|leaf| !leaf.starts_with(prefix)),
            Self::Numeric(bounds) => leaves
                .iter()
                .filter_map(|leaf| leaf.as_f64())
                .any(|number| bounds.iter().all(|(comparison, bound)| comparison.holds(number, *bound))),
            Self::Exists(expected) => leaves.is_empty() != *expected,
        }
    }
}

fn anything_but(operand: &Value) -> Option<Test> {
    match operand {
        Value::Object(operator) => match sole_member(operator)? {
            ("prefix", Value::String(prefix)) => Some(Test::AnythingButPrefix(prefix.clone())),
            _ => None,
        },
        Value::Array(values)
            if !values.is_empty() && values.iter().all(|value| value.is_string() || value.is_number()) =>
        {
            Some(Test::AnythingBut(values.clone()))
        }
        Value::String(_) | Value::Number(_) => Some(Test::AnythingBut(vec![operand.clone()])),
        _ => None,
    }
}

fn numeric(operand: &Value) -> Option<Vec<(Comparison, f64)>> {
    let (pairs, []) = operand.as_array()?.as_chunks::<2>() else { return None };
    let bounds: Vec<_> = pairs
        .iter()
        .map(|[comparison, bound]| {
            Some((Comparison::of(comparison.as_str()?)?, bound.as_number().and_then(Number::as_f64)?))
        })
        .collect::<Option<_>>()?;
    use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
    match bounds.as_slice() {
        [_] | [(Greater | GreaterOrEqual, _), (Less | LessOrEqual, _)] => Some(bounds),
        _ => None,
    }
}

fn sole_member(object: &Map<String, Value>) -> Option<(&str, &Value)> {
    let mut members = object.iter();
    let (name, value) = members.next()?;
    members.next().is_none().then_some((name.as_str(), value))
}

impl Comparison {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "=" => Self::Equal,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    #[expect(clippy::float_cmp, reason = "the operator means exactly equal")]
    fn holds(self, number: f64, bound: f64) -> bool {
        match self {
            Self::Equal => number == bound,
            Self::Less => number < bound,
            Self::LessOrEqual => number <= bound,
            Self::Greater => number > bound,
            Self::GreaterOrEqual => number >= bound,
        }
    }
}
