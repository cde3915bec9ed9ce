//! The key of the stack, which seals those of the subjects. KMS decrypts it once in a process.

use std::time::Duration;

use aws_sdk_dynamodb::Client as DynamoDb;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_kms::Client;
use aws_sdk_kms::config::timeout::TimeoutConfig;
use aws_sdk_kms::error::{ProvideErrorMetadata, SdkError};
use aws_types::SdkConfig;
use daybook_table::attributes;
use ring::hmac::{self, HMAC_SHA256};

use super::sealing::{KEY_BYTES, Key, random};
use crate::error::{Cause, StoreError, cause, if_condition_holds};
use crate::item::Item;

/// The attribute with the sealed key of a subject, or the encrypted one of the stack.
pub(super) const KEY: &str = "key";

/// The partition key of the row of the stack key. That of a subject contains a slash, such as `customer/7`.
pub(crate) const STACK_KEY: &str = "#KEY";

/// The owner of the key in errors, where another key has its subject.
const STACK: &str = "the stack";

/// Time limit of one attempt of a call of KMS, which responds in milliseconds.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// The name of the table in the encryption context: KMS decrypts the key for this table alone.
const TABLE: &str = "daybook:table";

pub(super) struct StackKey {
    of_subjects: Key,
    of_claims: hmac::Key,
}

impl StackKey {
    fn of(bytes: &[u8]) -> Option<Self> {
        let derived = hmac::sign(&hmac::Key::new(HMAC_SHA256, bytes), b"claims");
        Some(Self { of_subjects: Key::of(bytes)?, of_claims: hmac::Key::new(HMAC_SHA256, derived.as_ref()) })
    }

    pub(super) fn hash(&self, text: &str) -> String {
        hmac::sign(&self.of_claims, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn seal(&self, subject: &str, key: &[u8; KEY_BYTES]) -> Vec<u8> {
        self.of_subjects.seal(subject, key)
    }

    pub(super) fn open(&self, subject: &str, sealed: &[u8]) -> Result<Key, StoreError> {
        let opened = self.of_subjects.open(subject, sealed).and_then(|bytes| Key::of(&bytes));
        opened.ok_or_else(|| damaged(subject, "it was not sealed by the key of this stack"))
    }

    /// The key of the stack. Before there is any other row, the first process that writes makes it, under this key of KMS.
    pub(super) async fn read(
        client: &DynamoDb,
        table_name: &str,
        kms: &SdkConfig,
        kms_key: Option<&str>,
    ) -> Result<Self, StoreError> {
        let timeout = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT_TIMEOUT).build();
        let kms = Client::from_conf(aws_sdk_kms::config::Builder::from(kms).timeout_config(timeout).build());
        let mut has_subjects = false;
        loop {
            let get = client.get_item().table_name(table_name).set_key(Some(row_of(STACK_KEY)));
            let row = get.consistent_read(true).send().await;
            let row = row.map_err(|error| StoreError::of_call("read the key of the stack", error))?.item;
            if let Some(encrypted) = row.as_ref().and_then(|row| row.get(KEY)?.as_b().ok()) {
                let decrypt = kms.decrypt().ciphertext_blob(Blob::new(encrypted.as_ref()));
                // KMS knows which key has encrypted it, also after a change of the setting.
                let decrypt = decrypt.encryption_context(TABLE, table_name);
                let output = decrypt.send().await.map_err(|error| of_kms("decrypt the key of the stack", error))?;
                let key = output.plaintext.and_then(|bytes| Self::of(bytes.as_ref()));
                return key.ok_or_else(|| damaged(STACK, "it has another length"));
            }
            if row.is_some() {
                return Err(damaged(STACK, "its row has no key"));
            }
            let Some(kms_key) = kms_key.filter(|_| !has_subjects) else {
                return Err(damaged(STACK, format!("{table_name} has keys of subjects, and no row {STACK_KEY}")));
            };
            let rows = client.scan().table_name(table_name).limit(1).consistent_read(true).into_paginator().items();
            if let Some(found) = rows.send().next().await {
                found.map_err(|error| StoreError::of_call("look for keys of personal data", error))?;
                // Another process may have made it meanwhile.
                has_subjects = true;
                continue;
            }
            let bytes: [u8; KEY_BYTES] = random();
            let encrypt = kms.encrypt().key_id(kms_key).plaintext(Blob::new(bytes));
            let encrypt = encrypt.encryption_context(TABLE, table_name);
            let output = encrypt.send().await.map_err(|error| of_kms("encrypt the key of the stack", error))?;
            let encrypted = output.ciphertext_blob.ok_or_else(|| damaged(STACK, "KMS returned no ciphertext"))?;
            let mut row = row_of(STACK_KEY);
            row.insert(KEY.to_owned(), AttributeValue::B(encrypted));
            // Another process may be faster: it is read again.
            put_new(client, table_name, row).await?;
        }
    }
}

pub(super) fn damaged(of: &str, source: impl Into<Cause>) -> StoreError {
    StoreError::corrupt(format!("the key of {of}"), source)
}

/// The error of a call of KMS. With another permission or state of the KMS key, the same call succeeds.
fn of_kms<E>(doing: &'static str, error: SdkError<E>) -> StoreError
where
    E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    StoreError::Unavailable { doing, source: cause(error) }
}

/// Puts a row of the keys table where there is none. Returns whether there was none.
pub(super) async fn put_new(client: &DynamoDb, table_name: &str, row: Item) -> Result<bool, StoreError> {
    let put = client.put_item().table_name(table_name).set_item(Some(row));
    let put = put.condition_expression(format!("attribute_not_exists({})", attributes::PK));
    Ok(if_condition_holds("write a key of personal data", put.send().await)?.is_some())
}

/// The key of a row of the keys table.
pub(super) fn row_of(subject: &str) -> Item {
    Item::from([(attributes::PK.to_owned(), AttributeValue::S(subject.to_owned()))])
}
