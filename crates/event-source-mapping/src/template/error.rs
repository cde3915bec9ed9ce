//! Errors in a template.

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It is not YAML.
    #[error("template is not YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// One of its values is wrong.
    #[error("template at {path:?}: {reason}")]
    At {
        /// The keys that lead to it, joined by dots.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl TemplateError {
    pub(crate) fn at(path: &str, reason: impl Into<String>) -> Self {
        Self::At { path: path.to_owned(), reason: reason.into() }
    }
}
