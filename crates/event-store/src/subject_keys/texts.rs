//! The texts of rows: opened when they are read, sealed before they are written.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_dynamodb::types::TransactWriteItem;
use daybook_decider::{AggregateKey, Claim, Json, personal};
use jiff::Timestamp;

use super::{Keys, STACK_KEY, SubjectKeys, sealing};
use crate::cache::{Loaded, Moment};
use crate::error::{Cause, StoreError};

/// Opens and seals the personal values of texts, with the keys of a stack if it has some.
#[derive(Clone, Debug, Default)]
pub struct Sealing {
    pub(crate) keys: Option<Arc<SubjectKeys>>,
    /// Whether values are read as they are stored. Otherwise a sealed one is an error without the keys.
    leaves: bool,
}

impl Sealing {
    /// What leaves personal values as they are stored, for a reader that does not show them.
    pub fn leaving() -> Self {
        Self { keys: None, leaves: true }
    }

    /// Opens the personal values of texts, each in a partition.
    pub async fn open<'a>(&self, texts: impl Iterator<Item = (String, &'a mut Json)>) -> Result<(), StoreError> {
        if self.leaves {
            return Ok(());
        }
        let sealed: Vec<_> = texts.filter(|(_, json)| personal::contains(json.text())).collect();
        match sealed.is_empty() {
            true => Ok(()),
            // Boxed, so that calls without personal values are as small as before.
            false => Box::pin(open_all(self.keys.as_deref(), sealed)).await,
        }
    }

    /// Takes keys into memory, as far as they exist.
    pub(crate) async fn prepare(&self, subjects: BTreeSet<String>) -> Result<(), StoreError> {
        let Some(subject_keys) = &self.keys else { return Ok(()) };
        let (_, missing) = subject_keys.in_memory(subjects);
        match missing.is_empty() {
            true => Ok(()),
            false => match Box::pin(subject_keys.fetch(&missing)).await {
                // Who needs the key gets the error.
                Ok(_) | Err(StoreError::Corrupt { .. }) => Ok(()),
                Err(error) => Err(error),
            },
        }
    }

    /// Whether a cached state may be used: the keys of all its values are in memory, so none of them was forgotten for longer than
    /// these keys live. A history has no text to check, so it is used only for as long after it was first cached, at `since`.
    pub(crate) fn is_current(&self, loaded: &Loaded, since: Option<Moment>) -> bool {
        let Some(subject_keys) = &self.keys else { return true };
        if since.is_some_and(|since| !since.is_within(SubjectKeys::LIFETIME)) {
            return false;
        }
        let subjects = personal::subjects(loaded.state.text());
        subjects.is_empty() || subject_keys.are_live(subjects)
    }

    pub async fn seal(&self, json: &mut Json, partition: &str) -> Result<(), StoreError> {
        let keys = self.keys_for(personal::subjects(json.text())).await?;
        if let Some(sealed) = sealing::seal(json.text(), partition, &keys)? {
            *json = Json::parse(sealed).expect("forms in JSON are replaced by others");
        }
        Ok(())
    }

    /// The keys of these subjects, of which those that do not exist are made.
    pub(crate) async fn keys_for(&self, subjects: BTreeSet<String>) -> Result<Keys, StoreError> {
        let (mut keys, missing) = self.keys(subjects)?;
        if !missing.is_empty() {
            keys.extend(self.provide(&missing).await?);
        }
        Ok(keys)
    }

    /// A claim as it is stored: that of a personal value with a hash.
    pub async fn stored_claim(&self, claim: &Claim) -> Result<Claim, StoreError> {
        if claim.is_plain() {
            self.keys_for(BTreeSet::from([STACK_KEY.to_owned()])).await?;
        }
        Ok(self.prepared_claim(claim))
    }

    /// A claim as it is stored, after [`keys`](Self::keys) had the key of the stack.
    pub(crate) fn prepared_claim(&self, claim: &Claim) -> Claim {
        match &self.keys {
            Some(subject_keys) if claim.is_plain() => {
                subject_keys.hashed(claim).expect("the caller has provided the key")
            }
            _ => claim.clone(),
        }
    }

    /// The keys of these subjects that are in memory, and the subjects whose keys are not.
    pub(crate) fn keys(&self, subjects: BTreeSet<String>) -> Result<(Keys, BTreeSet<String>), StoreError> {
        let rejected =
            |reason: String| StoreError::InvalidRequest { doing: "seal personal data", source: reason.into() };
        match (&self.keys, subjects.first()) {
            (_, None) => Ok((Keys::new(), subjects)),
            (_, Some(none)) if none.is_empty() => Err(rejected("a personal value has no subject".to_owned())),
            (None, Some(_)) => Err(rejected(sealing::NO_KEYS.to_owned())),
            (Some(subject_keys), Some(_)) => Ok(subject_keys.in_memory(subjects)),
        }
    }

    /// The keys of these subjects from the table, of which those that do not exist are made.
    pub(crate) async fn provide(&self, subjects: &BTreeSet<String>) -> Result<Keys, StoreError> {
        match &self.keys {
            Some(subject_keys) => Box::pin(subject_keys.provide(subjects)).await,
            None => Ok(Keys::new()),
        }
    }

    pub(crate) fn forget(&self, key: &AggregateKey, now: Timestamp) -> Result<TransactWriteItem, StoreError> {
        let source = || StoreError::InvalidRequest { doing: "forget personal data", source: sealing::NO_KEYS.into() };
        Ok(self.keys.as_ref().ok_or_else(source)?.forget(&key.to_string(), now))
    }
}

async fn open_all(subject_keys: Option<&SubjectKeys>, sealed: Vec<(String, &mut Json)>) -> Result<(), StoreError> {
    let subjects = sealed.iter().flat_map(|(_, json)| personal::subjects(json.text())).collect();
    let keys = match subject_keys {
        Some(subject_keys) => subject_keys.existing(subjects).await?,
        None => Keys::new(),
    };
    for (partition, json) in sealed {
        let corrupt = |source: Cause| StoreError::corrupt(format!("a row of {partition}"), source);
        if let Some(opened) = sealing::open(json.text(), &partition, &keys).map_err(corrupt)? {
            *json = Json::parse(opened).map_err(|error| corrupt(error.into()))?;
        }
    }
    Ok(())
}
