//! Settings of the snapshotter, from environment variables.

use daybook_event_store::StoreSettings;
use daybook_settings::{Environment, SettingError};

/// The store's settings that snapshots need: from `TABLE_NAME`, `SNAPSHOT_EVERY` (1 to 10,000; default 100) and
/// `SNAPSHOT_KEEP` (0 to 1,000; default 0).
pub fn store_settings(environment: &Environment) -> Result<StoreSettings, SettingError> {
    let settings = StoreSettings::new(environment.required("TABLE_NAME")?);
    Ok(StoreSettings {
        snapshot_every: environment.number("SNAPSHOT_EVERY", settings.snapshot_every, StoreSettings::SNAPSHOT_EVERY)?,
        snapshot_keep: environment.number("SNAPSHOT_KEEP", settings.snapshot_keep, StoreSettings::SNAPSHOT_KEEP)?,
        ..settings
    })
}
