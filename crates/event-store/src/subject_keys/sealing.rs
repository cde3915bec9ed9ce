//! Sealed bytes: AES-256-GCM with a random nonce before them. Partition key and subject are authenticated, so the bytes cannot be
//! opened elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_smithy_types::base64;
use daybook_decider::personal::{self, Form};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::value::RawValue;

use crate::error::{Cause, StoreError};

pub(super) const NO_KEYS: &str = "this process has no keys; set KEYS_TABLE_NAME and PERSONAL_DATA_KEY";

/// The keys of subjects by name: those that a text needs.
pub(crate) type Keys = BTreeMap<String, SubjectKey>;

#[derive(Clone)]
pub(crate) enum SubjectKey {
    Live(Arc<Key>),
    Forgotten,
}

pub(super) const KEY_BYTES: usize = 32;

pub(crate) struct Key(LessSafeKey);

pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random bytes");
    bytes
}

impl Key {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, bytes).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    pub(super) fn seal(&self, context: &str, bytes: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LEN] = random();
        let mut sealed = bytes.to_vec();
        let tag = self.0.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context.as_bytes()),
            &mut sealed,
        );
        let tag = tag.expect("a value of DynamoDB is shorter than the maximum of the cipher");
        [&nonce, sealed.as_slice(), tag.as_ref()].concat()
    }

    /// Opens bytes that were sealed for this context; `None` if they were not, or were changed.
    pub(super) fn open(&self, context: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut bytes = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(context.as_bytes()), &mut bytes).ok()?.len();
        bytes.truncate(opened);
        Some(bytes)
    }
}

/// The text of a partition with its personal values sealed, each under the key of its subject. Values about subjects that are
/// forgotten are left out.
pub(crate) fn seal(text: &str, partition: &str, keys: &Keys) -> Result<Option<String>, StoreError> {
    personal::replace(text, |Form { of, value, sealed }| {
        let subject = of.as_deref().unwrap_or_default();
        let sealed = match (value, keys.get(subject)) {
            (Some(value), Some(SubjectKey::Live(key))) => {
                Some(base64::encode(key.seal(&context(partition, subject), value.get().as_bytes())))
            }
            (Some(_), Some(SubjectKey::Forgotten)) => None,
            (Some(_), None) => {
                return Err(StoreError::corrupt(format!("a row of {partition}"), format!("no key of {subject:?}")));
            }
            (None, _) => sealed,
        };
        Ok(Form { of, value: None, sealed }.text())
    })
}

/// The text of a partition with its personal values opened. Those about subjects that are forgotten are left out.
pub(super) fn open(text: &str, partition: &str, keys: &Keys) -> Result<Option<String>, Cause> {
    personal::replace(text, |Form { of, value, sealed }| {
        let Some(sealed) = sealed else { return Ok(Form { of, value, sealed: None }.text()) };
        let subject = of.as_deref().unwrap_or_default();
        let value = match keys.get(subject) {
            Some(SubjectKey::Live(key)) => {
                let opened = key.open(&context(partition, subject), &base64::decode(sealed)?);
                let opened = opened.ok_or_else(|| format!("a value about {subject} was not sealed for this row"))?;
                Some(RawValue::from_string(String::from_utf8(opened)?)?)
            }
            Some(SubjectKey::Forgotten) => None,
            None => return Err(format!("a value about {subject} is sealed: {NO_KEYS}").into()),
        };
        Ok(Form { of, value, sealed: None }.text())
    })
}

/// What a sealed value belongs to.
fn context(partition: &str, subject: &str) -> String {
    format!("{partition}\n{subject}")
}
