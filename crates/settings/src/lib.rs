//! Settings from environment variables.
//!
//! Invariant: a missing or wrong setting is an error that names the variable, its value and what is expected. A
//! function with such a setting stops at start.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
        )
    }

    /// The same variables, with this value of one of them, if there is one.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Option<String>>) -> Self {
        self.0.extend(value.into().map(|value| (name.to_owned(), value)));
        self
    }

    pub fn required(&self, name: &'static str) -> Result<String, SettingError> {
        self.get(name).map(str::to_owned).ok_or(SettingError::Missing { name })
    }

    /// An optional text; an empty one counts as missing.
    pub fn optional(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    pub fn number<T>(&self, name: &'static str, default: T, range: RangeInclusive<T>) -> Result<T, SettingError>
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| SettingError::Bad {
            name,
            value: value.to_owned(),
            expected: format!("a whole number from {} to {}", range.start(), range.end()),
        })
    }

    /// `true` or `false`, false by default.
    pub fn flag(&self, name: &'static str) -> Result<bool, SettingError> {
        let Some(value) = self.get(name) else { return Ok(false) };
        let expected = "true or false".to_owned();
        value.parse().map_err(|_| SettingError::Bad { name, value: value.to_owned(), expected })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The variable is not set, or empty.
    #[error("environment variable {name} is missing")]
    Missing { name: &'static str },
    #[error("environment variable {name} is {value:?}, expected {expected}")]
    Bad { name: &'static str, value: String, expected: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        [("TABLE_NAME", "daybook"), ("EMPTY", " "), ("SNAPSHOT_EVERY", "0"), ("REQUIRE_IF_MATCH", "yes")]
            .into_iter()
            .collect()
    }

    #[test]
    fn missing_optional_setting_has_its_default() {
        assert_eq!(environment().required("TABLE_NAME"), Ok("daybook".to_owned()));
        assert_eq!(environment().optional("EMPTY"), None);
        assert_eq!(environment().number("OTHER", 7, 0..=100), Ok(7));
        assert_eq!(environment().flag("OTHER"), Ok(false));
    }

    #[test]
    fn setting_error_names_the_variable_its_value_and_what_is_expected() {
        let text = |error: SettingError| error.to_string();
        assert_eq!(environment().required("EMPTY").map_err(text), Err("environment variable EMPTY is missing".into()));
        assert_eq!(
            environment().number("SNAPSHOT_EVERY", 100, 1..=1000).map_err(text),
            Err("environment variable SNAPSHOT_EVERY is \"0\", expected a whole number from 1 to 1000".into())
        );
        assert_eq!(
            environment().flag("REQUIRE_IF_MATCH").map_err(text),
            Err("environment variable REQUIRE_IF_MATCH is \"yes\", expected true or false".into())
        );
    }
}
