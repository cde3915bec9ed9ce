//! Settings of the command handler, from environment variables.

use std::time::Duration;

use daybook_settings::{Environment, SettingError};
use daybook_table::keys::is_id;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Whether a write to an existing aggregate must have an `If-Match`.
    pub require_if_match: bool,
    pub idempotency_ttl: Duration,
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

/// The table of the views, from `VIEWS_TABLE_NAME`; `None` if there are no read models.
pub fn views_table(environment: &Environment) -> Option<String> {
    environment.optional("VIEWS_TABLE_NAME")
}
