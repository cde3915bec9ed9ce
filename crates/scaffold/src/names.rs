//! The names of a project, and of its aggregates, processes, projections and consumers.

use crate::error::ScaffoldError;

/// The maximum characters of a project's name. The names of roles and of log groups contain it.
const MAX_PROJECT: usize = 40;

const MAX_ITEM: usize = 40;

/// Names that would collide with words of Rust, with crates, or with other names in the generated files.
const RESERVED: &str = "abstract access aggregate aggregates as async authorization await become box break bus_message caller change \
    changes command command_handler commands const consumer context continue core crate daybook decision default \
    deserialize do dyn else enum err event event_type events exit_code extern false final fn followed \
    followed_event follows for functions gen handle_error if impl in json_schema let lib loop macro main match mod \
    move mut none ok operator option override priv projection projections projector pub reactor reacts ref \
    registry rejection result return row row_key rows schemars self serde serialize snapshotter some source \
    sources state static std stream_relay string struct super tests trait true try type unsafe unsized use vec \
    views virtual where while yield";

const LAMBDA_TEMPLATE: &str = "{{ project_name }}";

/// The name of a project: of its folder and its stacks.
#[derive(Clone, Debug)]
pub struct ProjectName(String);

/// The name of an aggregate, a process, a projection or a consumer, as in paths: `purchase-order`.
#[derive(Clone, Debug)]
pub struct ItemName(String);

impl ProjectName {
    pub fn new(name: &str) -> Result<Self, ScaffoldError> {
        check_kebab(name, MAX_PROJECT)?;
        Ok(Self(name.to_owned()))
    }

    /// What `cargo lambda new --template` replaces by the name. The originals of such a project contain it, as if the user had
    /// changed it to the name.
    pub fn of_lambda_template() -> Self {
        Self(LAMBDA_TEMPLATE.to_owned())
    }

    pub(crate) fn is_of_lambda_template(&self) -> bool {
        self.0 == LAMBDA_TEMPLATE
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ItemName {
    pub fn new(name: &str) -> Result<Self, ScaffoldError> {
        check_kebab(name, MAX_ITEM)?;
        let item = Self(name.to_owned());
        if RESERVED.split_whitespace().any(|reserved| reserved == item.module()) {
            let reason = "Rust, Daybook or the generated code uses it".to_owned();
            return Err(ScaffoldError::Name { name: name.to_owned(), reason });
        }
        Ok(item)
    }

    /// The name in a path: `purchase-order`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a module: `purchase_order`.
    pub fn module(&self) -> String {
        self.0.replace('-', "_")
    }

    /// The name of a type: `PurchaseOrder`.
    pub fn type_name(&self) -> String {
        let capitalized = |word: &str| {
            let (first, rest) = word.split_at(1);
            first.to_ascii_uppercase() + rest
        };
        self.0.split('-').map(capitalized).collect()
    }
}

/// Checks that a name consists of words of lower-case letters and digits, with hyphens between them.
fn check_kebab(name: &str, max: usize) -> Result<(), ScaffoldError> {
    let is_word = |word: &str| {
        let begins_with_letter = word.starts_with(|first: char| first.is_ascii_lowercase());
        begins_with_letter && word.chars().all(|each| each.is_ascii_lowercase() || each.is_ascii_digit())
    };
    if name.len() <= max && name.split('-').all(is_word) {
        return Ok(());
    }
    let mut reason = format!(
        "expected a maximum of {max} characters: words of lower-case letters and digits that begin with a letter, with hyphens between them"
    );
    let similar = kebab(name);
    if similar != name && check_kebab(&similar, max).is_ok() {
        reason += &format!("; try {similar}");
    }
    Err(ScaffoldError::Name { name: name.to_owned(), reason })
}

/// A name in other forms, such as `PurchaseOrder` and `purchase_order`, as `purchase-order`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    let mut is_after_small = false;
    for each in name.chars() {
        if each.is_ascii_uppercase() && is_after_small {
            kebab.push('-');
        }
        is_after_small = each.is_ascii_lowercase() || each.is_ascii_digit();
        kebab.push(if matches!(each, '_' | ' ' | '.') { '-' } else { each.to_ascii_lowercase() });
    }
    kebab
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_the_forms_of_paths_modules_and_types() {
        let name = ItemName::new("purchase-order2").unwrap();
        assert_eq!(
            (name.as_str(), name.module(), name.type_name()),
            ("purchase-order2", "purchase_order2".into(), "PurchaseOrder2".into())
        );
    }

    #[test]
    fn name_that_rust_or_the_api_cannot_use_is_an_error() {
        for name in [
            "", "-", "a-", "-a", "a--b", "Invoice", "in voice", "1st", "a-1", "é", "a/b", "..", "type", "lib", "state",
            "events",
        ] {
            assert!(ItemName::new(name).is_err(), "{name}");
        }
        assert!(ItemName::new(&"a".repeat(61)).is_err());
        for name in ["", ".", "Shop", "my shop", "a/b", "-a"] {
            assert!(ProjectName::new(name).is_err(), "{name}");
        }
        assert!(ProjectName::new("my-shop2").is_ok());
        for name in ["PurchaseOrder", "purchaseOrder", "purchase_order", "Purchase Order"] {
            let error = ItemName::new(name).unwrap_err().to_string();
            assert!(error.ends_with("; try purchase-order"), "{error}");
        }
        assert!(!ItemName::new("a--b").unwrap_err().to_string().contains("try"));
    }
}
