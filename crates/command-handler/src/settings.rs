//! Settings of the command handler, from environment variables.

use std::time::Duration;

use daybook_event_store::StoreSettings;
use daybook_settings::{Environment, SettingError};
use daybook_table::keys::is_id;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Whether a write to an existing aggregate must have an `If-Match`.
    pub require_if_match: bool,
    /// How long a response is stored under its idempotency key.
    pub idempotency_ttl: Duration,
    /// Whether events are recorded with the source address of their request.
    pub record_source_ip: bool,
    /// The issuer of the tokens that the API accepts. Subjects of other issuers are named together with their issuer.
    pub jwt_issuer: Option<String>,
    /// The path below which clients find the API, such as `/v1`; empty for none.
    pub base_path: String,
    /// How long a read of a view waits for the event that it must show.
    pub seen_wait: Duration,
}

impl ApiSettings {
    /// From `REQUIRE_IF_MATCH` and `RECORD_SOURCE_IP` (`true` or `false`; false), `IDEMPOTENCY_TTL_HOURS` (1 to 8,760; 24),
    /// `JWT_ISSUER` (an `https://` URL; none), `BASE_PATH` (a path; empty) and `SEEN_WAIT_MS` (0 to 20,000; 2,000).
    pub fn read(environment: &Environment) -> Result<Self, SettingError> {
        let hours: u32 = environment.number("IDEMPOTENCY_TTL_HOURS", 24, 1..=8_760)?;
        Ok(Self {
            require_if_match: environment.flag("REQUIRE_IF_MATCH")?,
            idempotency_ttl: Duration::from_secs(u64::from(hours) * 60 * 60),
            record_source_ip: environment.flag("RECORD_SOURCE_IP")?,
            jwt_issuer: jwt_issuer(environment)?,
            base_path: base_path(environment)?,
            seen_wait: Duration::from_millis(environment.number("SEEN_WAIT_MS", 2_000, 0..=20_000)?),
        })
    }
}

fn jwt_issuer(environment: &Environment) -> Result<Option<String>, SettingError> {
    match environment.optional("JWT_ISSUER") {
        Some(value) if !value.starts_with("https://") => {
            Err(SettingError::Bad { name: "JWT_ISSUER", value, expected: "an https:// URL".to_owned() })
        }
        issuer => Ok(issuer),
    }
}

fn base_path(environment: &Environment) -> Result<String, SettingError> {
    let path = environment.optional("BASE_PATH").unwrap_or_default();
    // Its segments have the form of ids, so that they are the same in every encoding.
    let is_path = path.strip_prefix('/').is_some_and(|segments| segments.split('/').all(is_id));
    if path.is_empty() || is_path {
        return Ok(path);
    }
    let expected = "a path such as /v1, without a slash at its end, or nothing".to_owned();
    Err(SettingError::Bad { name: "BASE_PATH", value: path, expected })
}

/// The store's settings, as far as appending and reading need them: from `TABLE_NAME`, `SNAPSHOT_EVERY` (1 to 10,000; 100),
/// `OUTBOX_TTL_DAYS` (2 to 365; 7), `EVENT_TYPE_SHARDS` (1 to 64; 1), `EPOCH` (1 to 1,000,000; 1) and `FEED_DELAY_MS` (0 to
/// 600,000; 10,000).
pub fn store_settings(environment: &Environment) -> Result<StoreSettings, SettingError> {
    let settings = StoreSettings::new(environment.required("TABLE_NAME")?);
    Ok(StoreSettings {
        snapshot_every: environment.number("SNAPSHOT_EVERY", settings.snapshot_every, StoreSettings::SNAPSHOT_EVERY)?,
        outbox_ttl_days: environment.number(
            "OUTBOX_TTL_DAYS",
            settings.outbox_ttl_days,
            StoreSettings::OUTBOX_TTL_DAYS,
        )?,
        event_type_shards: environment.number(
            "EVENT_TYPE_SHARDS",
            settings.event_type_shards,
            StoreSettings::EVENT_TYPE_SHARDS,
        )?,
        epoch: environment.number("EPOCH", settings.epoch, StoreSettings::EPOCH)?,
        feed_delay: feed_delay(environment)?,
        ..settings
    })
}

/// The table of the views, from `VIEWS_TABLE_NAME`; `None` if there are no read models.
pub fn views_table(environment: &Environment) -> Option<String> {
    environment.optional("VIEWS_TABLE_NAME")
}

/// The time after which feeds contain an event, from `FEED_DELAY_MS`.
fn feed_delay(environment: &Environment) -> Result<Duration, SettingError> {
    let default = u64::try_from(StoreSettings::DEFAULT_FEED_DELAY.as_millis()).unwrap_or(u64::MAX);
    environment.number("FEED_DELAY_MS", default, StoreSettings::FEED_DELAY_MS).map(Duration::from_millis)
}
