//! The aggregate that has a claim.

use daybook_decider::Claim;
use daybook_table::{ClaimItem, keys};

use crate::append::read_claim;
use crate::error::StoreError;
use crate::item::row_key;
use crate::store::EventStore;

impl EventStore {
    /// The row of a claim, with a strongly consistent read.
    pub async fn claim(&self, claim: &Claim) -> Result<Option<ClaimItem>, StoreError> {
        let stored = self.sealing.stored_claim(claim).await?;
        let key = row_key(keys::claim_pk(&stored), keys::CLAIM.to_owned());
        let get = self.client.get_item().table_name(&self.settings.table_name).set_key(Some(key));
        let output = get.consistent_read(true).send().await;
        let output = output.map_err(|error| StoreError::of_call("read a claim", error))?;
        output.item.map(|row| read_claim(claim, row)).transpose()
    }
}
