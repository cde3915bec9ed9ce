//! The data keys of subjects, under which personal values are sealed.
//!
//! Each subject has a key of its own, in a table of its own, sealed by the key of the stack, which KMS has encrypted. Forgetting a
//! subject removes its key and leaves the time: the values that it sealed are forgotten wherever they are. A subject
//! without a row is an error, so that nothing counts as forgotten because a table is missing or was restored. Claims of personal
//! values are hashed with a key that follows from that of the stack, so that equal values have equal rows.
//!
//! In reading order: `texts`: the texts of rows, opened and sealed; `sealing`: the cipher; `stack_key`: the key of the stack.

mod sealing;
mod stack_key;
mod texts;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use aws_types::SdkConfig;
use daybook_decider::record::timestamp;
use daybook_decider::{Claim, ClaimChanges};
use daybook_settings::{Environment, SettingError};
use daybook_table::attributes;
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use lru::LruCache;
use tokio::sync::OnceCell;

use self::sealing::{Key, random};
pub(crate) use self::sealing::{Keys, SubjectKey, seal};
pub(crate) use self::stack_key::STACK_KEY;
use self::stack_key::{KEY, StackKey, damaged, put_new, row_of};
pub use self::texts::Sealing;
use crate::cache::Moment;
use crate::error::StoreError;
use crate::item::{batch_get, text};

const MAX_KEYS: NonZeroUsize = NonZeroUsize::new(10_000).expect("it is not zero");

/// Maximum subjects of the values of one append, and of the response that is stored with it, far below the keys in memory.
pub(crate) const MAX_SUBJECTS: usize = 1_000;

/// New keys that are written at a time.
const CONCURRENCY: usize = 8;

const FORGOTTEN_AT: &str = "forgottenAt";

const FORGET: &str = "SET forgottenAt = if_not_exists(forgottenAt, :now) REMOVE #key";

/// The keys table, and the keys that this process has in memory.
pub struct SubjectKeys {
    client: Client,
    table_name: String,
    stack_key: OnceCell<StackKey>,
    kms: SdkConfig,
    kms_key: String,
    /// Each with the time at which it was read.
    in_memory: Mutex<LruCache<String, (SubjectKey, Moment)>>,
}

impl SubjectKeys {
    /// The time for which a process has a key in memory, and uses the states that were opened with it.
    pub(crate) const LIFETIME: Duration = Duration::from_secs(150);

    /// The keys in the table that the environment names, if it names one; `kms` is the configuration of KMS.
    pub(crate) fn read(
        environment: &Environment,
        client: Client,
        kms: SdkConfig,
    ) -> Result<Option<Arc<Self>>, SettingError> {
        let Some(table_name) = environment.optional("KEYS_TABLE_NAME") else { return Ok(None) };
        let kms_key = environment.required("PERSONAL_DATA_KEY")?;
        let in_memory = Mutex::new(LruCache::new(MAX_KEYS));
        Ok(Some(Arc::new(Self { client, table_name, stack_key: OnceCell::new(), kms, kms_key, in_memory })))
    }

    /// The keys that are in memory, and the subjects whose keys are not.
    pub(crate) fn in_memory(&self, subjects: BTreeSet<String>) -> (Keys, BTreeSet<String>) {
        let mut in_memory = self.in_memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut keys, mut missing) = (Keys::new(), BTreeSet::new());
        for subject in subjects {
            if subject == STACK_KEY && self.stack_key.initialized() {
                continue;
            }
            match in_memory.get(&subject).filter(|(_, read_at)| read_at.is_within(Self::LIFETIME)) {
                Some((key, _)) => drop(keys.insert(subject, key.clone())),
                None => drop(missing.insert(subject)),
            }
        }
        (keys, missing)
    }

    /// Whether these subjects have keys in memory, and none is forgotten.
    fn are_live(&self, subjects: BTreeSet<String>) -> bool {
        let (keys, missing) = self.in_memory(subjects);
        missing.is_empty() && keys.values().all(|key| matches!(key, SubjectKey::Live(_)))
    }

    /// The keys of these subjects, of which each must have one.
    pub(crate) async fn existing(&self, subjects: BTreeSet<String>) -> Result<Keys, StoreError> {
        let (mut keys, missing) = self.in_memory(subjects);
        keys.extend(self.fetch(&missing).await?);
        match missing.iter().find(|subject| !keys.contains_key(*subject)) {
            None => Ok(keys),
            Some(subject) => Err(damaged(subject, format!("{} has no key of {subject}", self.table_name))),
        }
    }

    /// The keys of these subjects, of which those that do not exist are made. That of the stack is in memory then.
    pub(crate) async fn provide(&self, subjects: &BTreeSet<String>) -> Result<Keys, StoreError> {
        self.stack_key(Some(&self.kms_key)).await?;
        let subjects = &subjects.iter().filter(|subject| *subject != STACK_KEY).cloned().collect();
        let mut keys = self.fetch(subjects).await?;
        let new: Vec<_> = subjects.iter().filter(|subject| !keys.contains_key(*subject)).collect();
        let made = stream::iter(new.into_iter().map(|subject| self.make(subject)).collect::<Vec<_>>());
        let made: Vec<_> = made.buffer_unordered(CONCURRENCY).try_collect().await?;
        keys.extend(made.into_iter().flatten());
        // Another process may have been faster, and its key is the right one.
        let raced = subjects.iter().filter(|subject| !keys.contains_key(*subject)).cloned().collect();
        keys.extend(self.fetch(&raced).await?);
        Ok(keys)
    }

    /// Reads keys from the table. If one cannot be opened, the others are in memory nevertheless.
    pub(crate) async fn fetch(&self, subjects: &BTreeSet<String>) -> Result<Keys, StoreError> {
        let (mut keys, mut failed) = (Keys::new(), None);
        if subjects.is_empty() {
            return Ok(keys);
        }
        let rows = subjects.iter().map(|subject| row_of(subject)).collect();
        for row in batch_get((&self.client, &self.table_name), rows, None, "read keys of personal data").await? {
            let subject = text(&row, attributes::PK).to_owned();
            let key = match row.get(KEY).and_then(|key| key.as_b().ok()) {
                Some(sealed) => {
                    self.stack_key(None).await?.open(&subject, sealed.as_ref()).map(Arc::new).map(SubjectKey::Live)
                }
                None if row.contains_key(FORGOTTEN_AT) => Ok(SubjectKey::Forgotten),
                None => Err(damaged(&subject, "its row has no key")),
            };
            match key {
                Ok(key) => {
                    self.remember(&subject, key.clone());
                    keys.insert(subject, key);
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(keys), Err)
    }

    async fn make(&self, subject: &str) -> Result<Option<(String, SubjectKey)>, StoreError> {
        let (mut row, bytes) = (row_of(subject), random());
        let sealed = self.stack_key(None).await?.seal(subject, &bytes);
        row.insert(KEY.to_owned(), AttributeValue::B(Blob::new(sealed)));
        if !put_new(&self.client, &self.table_name, row).await? {
            return Ok(None);
        }
        let key = SubjectKey::Live(Arc::new(Key::of(&bytes).expect("the number of bytes is right")));
        self.remember(subject, key.clone());
        Ok(Some((subject.to_owned(), key)))
    }

    pub(crate) fn remember(&self, subject: &str, key: SubjectKey) {
        let mut in_memory = self.in_memory.lock().unwrap_or_else(PoisonError::into_inner);
        // A read that began before a subject was forgotten may end after it.
        let key = match in_memory.peek(subject) {
            Some((SubjectKey::Forgotten, _)) => SubjectKey::Forgotten,
            _ => key,
        };
        in_memory.put(subject.to_owned(), (key, Moment::now()));
    }

    /// The key of the stack, which is made under a key of KMS if a stack has none yet.
    async fn stack_key(&self, kms_key: Option<&str>) -> Result<&StackKey, StoreError> {
        let read = || StackKey::read(&self.client, &self.table_name, &self.kms, kms_key);
        self.stack_key.get_or_try_init(read).await
    }

    /// A claim with the hash of its value; `None` if the key of the stack is not in memory.
    fn hashed(&self, claim: &Claim) -> Option<Claim> {
        self.stack_key.get().map(|key| claim.hashed(|text| key.hash(text)))
    }

    /// Whether a subject is forgotten; `None` if it has no key.
    pub(crate) async fn is_forgotten(&self, subject: &str) -> Result<Option<bool>, StoreError> {
        let keys = self.fetch(&[subject.to_owned()].into()).await?;
        Ok(keys.get(subject).map(|key| matches!(key, SubjectKey::Forgotten)))
    }

    /// Forgets a subject in a call of its own.
    pub(crate) async fn end(&self, subject: &str, now: Timestamp) -> Result<(), StoreError> {
        let update = self.client.update_item().table_name(&self.table_name).set_key(Some(row_of(subject)));
        let update = update.update_expression(FORGET).expression_attribute_names("#key", KEY);
        let update = update.expression_attribute_values(":now", AttributeValue::S(timestamp(now)));
        update.send().await.map_err(|error| StoreError::of_call("end a key of personal data", error)).map(drop)
    }

    pub(crate) fn forget(&self, subject: &str, now: Timestamp) -> TransactWriteItem {
        let update = Update::builder()
            .table_name(&self.table_name)
            .set_key(Some(row_of(subject)))
            .update_expression(FORGET)
            .expression_attribute_names("#key", KEY)
            .expression_attribute_values(":now", AttributeValue::S(timestamp(now)));
        TransactWriteItem::builder().update(update.build().expect("table, key and expression are set")).build()
    }
}

/// What stands for the key of the stack among subjects, if claims need it.
pub(crate) fn stack_key_for(changes: &ClaimChanges) -> Option<String> {
    let needs = changes.taken.iter().chain(&changes.released).any(Claim::is_plain);
    needs.then(|| STACK_KEY.to_owned())
}

/// Without the keys.
impl fmt::Debug for SubjectKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectKeys").field("table_name", &self.table_name).finish_non_exhaustive()
    }
}
