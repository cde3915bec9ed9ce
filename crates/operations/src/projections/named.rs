//! The projection that an operation names, and the errors of its views.

use daybook_event_store::StoreError;
use daybook_projection::{ProjectionModel, Projections};

use crate::error::OperatorError;

/// The versions of the projection of that name, from the lowest on; at least one.
pub(super) fn versions<'a>(
    projections: &'a Projections,
    name: &str,
) -> Result<Vec<&'a dyn ProjectionModel>, OperatorError> {
    let versions = projections.versions(name);
    if versions.is_empty() {
        let known: Vec<_> = projections.names().collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {}", known.join(", ")) };
        return Err(OperatorError::Usage(format!("there is no projection {name:?} in this code; {known}")));
    }
    Ok(versions)
}

/// A version of the projection of that name; the highest without a number.
pub(super) fn version<'a>(
    projections: &'a Projections,
    name: &str,
    version: Option<u32>,
) -> Result<&'a dyn ProjectionModel, OperatorError> {
    let versions = versions(projections, name)?;
    let found = versions.iter().rev().find(|model| version.is_none_or(|version| version == model.version()));
    found.copied().ok_or_else(|| {
        let known: Vec<_> = versions.iter().map(|model| model.version().to_string()).collect();
        let (version, known) = (version.unwrap_or_default(), known.join(", "));
        OperatorError::Usage(format!(
            "this code does not register version {version} of {name:?}, only {known}; build daybook from the deployed commit"
        ))
    })
}

/// The error of a call to the views table.
pub(super) fn views_error(doing: &str) -> impl Fn(StoreError) -> OperatorError {
    move |source| {
        if source.is_missing_table() {
            let cause = "the views table does not exist: check VIEWS_TABLE_NAME or --views-table, AWS_REGION and \
                         AWS_ENDPOINT_URL_DYNAMODB";
            return OperatorError::Read { cause: cause.to_owned() };
        }
        OperatorError::Store { doing: format!("cannot {doing}"), source }
    }
}
