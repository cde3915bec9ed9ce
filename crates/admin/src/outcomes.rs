//! The outcomes that the reactor stores: of the input of processes, of their dispatches and answers, and of deadlines. Each is in the
//! partition of the aggregate that got the command, under an idempotency key that contains a space.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::CommandRejection;
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, text, unpack};
use daybook_table::{AggregateKey, IdempotencyItem, attributes, keys};

use crate::handle::Admin;

const DOING: &str = "read outcomes";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub key: String,
    /// The version of the aggregate after the commands, or that at which they had no effect.
    pub version: u64,
    /// `None` if they were accepted.
    pub rejection: Option<CommandRejection>,
}

impl Outcome {
    fn read(item: Item) -> Option<Self> {
        let item: IdempotencyItem = serde_dynamo::from_item(item).ok()?;
        let body = unpack(item.body).ok()?;
        // Only that of a rejection has a body.
        let rejection = if body.is_empty() { None } else { Some(serde_json::from_str(&body).ok()?) };
        let key = item.sk.strip_prefix(keys::IDEMPOTENCY_PREFIX)?.to_owned();
        Some(Self { key, version: item.version, rejection })
    }
}

impl Admin<'_> {
    /// The outcomes under these keys in the partition of an aggregate: one call for a hundred. Those that do not exist are left out, as
    /// are those that cannot be read.
    pub async fn outcomes(
        &self,
        aggregate: &AggregateKey,
        of: BTreeSet<String>,
    ) -> Result<BTreeMap<String, Outcome>, StoreError> {
        let rows = of.iter().map(|key| (keys::pk(aggregate), keys::idempotency_sk(key))).collect();
        let found = self.items(DOING, rows, None).await?.into_values().filter_map(Outcome::read);
        Ok(found.map(|outcome| (outcome.key.clone(), outcome)).collect())
    }

    /// The outcomes whose keys have this beginning, in the order of their keys: up to `limit`, with one call.
    pub async fn outcomes_with(
        &self,
        aggregate: &AggregateKey,
        beginning: &str,
        limit: i32,
    ) -> Result<Vec<Outcome>, StoreError> {
        // Names of deadlines and dispatches have no tilde.
        let [first, last] = ["", "~"].map(|end| keys::idempotency_sk(&format!("{beginning}{end}")));
        let found = self.store.rows_between(aggregate, first, last).limit(limit).send().await;
        let found = found.map_err(|error| StoreError::of_call(DOING, error))?;
        Ok(found.items.unwrap_or_default().into_iter().filter_map(Outcome::read).collect())
    }

    /// The aggregates whose events were input of a process, the last ones in the order of their names, and whether there are more than
    /// `limit`. It costs a call of one row for each, and one more.
    pub async fn sources_of(
        &self,
        process: &AggregateKey,
        limit: usize,
    ) -> Result<(Vec<AggregateKey>, bool), StoreError> {
        let first = keys::idempotency_sk(keys::INPUT_KEYS);
        // The name of a source begins with its type, which has no tilde.
        let (mut found, mut last) = (Vec::new(), format!("{first}~"));
        loop {
            let query = self.store.rows_between(process, first.clone(), last).limit(1).scan_index_forward(false);
            let output = query.projection_expression(attributes::SK).send().await;
            let rows = output.map_err(|error| StoreError::of_call(DOING, error))?.items.unwrap_or_default();
            let key = rows.first().and_then(|row| text(row, attributes::SK).strip_prefix(&first));
            let Some((source, _)) = key.and_then(|key| key.rsplit_once(' ')) else { return Ok((found, false)) };
            let Ok(aggregate) = source.parse() else { return Ok((found, false)) };
            if found.len() == limit {
                return Ok((found, true));
            }
            found.push(aggregate);
            // Its other keys are after this one, and those of all other sources before it or after them.
            last = format!("{first}{source} ");
        }
    }
}
