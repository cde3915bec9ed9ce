//! Settings of the projector, from environment variables.

use daybook_settings::{Environment, SettingError};

/// The table of the views: `VIEWS_TABLE_NAME`.
pub fn views_table(environment: &Environment) -> Result<String, SettingError> {
    environment.required("VIEWS_TABLE_NAME")
}
