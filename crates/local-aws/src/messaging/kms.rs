//! KMS: `Encrypt` and `Decrypt` with one key, which is made when it is first used.

use std::collections::BTreeMap;

use aws_smithy_types::base64;
use axum::http::StatusCode;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::rand::{Random, RandomlyConstructable, SystemRandom, generate};
use serde::Deserialize;
use serde_json::json;

use crate::json_protocol::{self, CallError, CallResponse};
use crate::messaging::bus::Bus;
use crate::state::{DataFileError, Journal};

/// The ARN of the key, whose id is `local`.
const KEY_ARN: &str = "arn:aws:kms:us-east-1:000000000000:key/local";

/// Maximum bytes of what is encrypted, and of what is decrypted.
const MAX_PLAINTEXT: usize = 4096;
const MAX_CIPHERTEXT: usize = 6144;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct KmsRequest {
    key_id: Option<String>,
    plaintext: String,
    ciphertext_blob: String,
    encryption_context: BTreeMap<String, String>,
}

pub(crate) async fn encrypt(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.encrypt).await?;
    let request: KmsRequest = json_protocol::read(body)?;
    request.check_key(true)?;
    let mut data = bytes("plaintext", &request.plaintext, MAX_PLAINTEXT)?;
    let nonce: [u8; NONCE_LEN] = random()?;
    let sealed = key(bus)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), request.context(), &mut data);
    sealed.map_err(internal)?;
    let blob = base64::encode([&nonce[..], &data].concat());
    fault.respond(json!({ "CiphertextBlob": blob, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT", "KeyId": KEY_ARN }))
}

pub(crate) async fn decrypt(bus: &Bus, body: &[u8]) -> Result<CallResponse, CallError> {
    let fault = bus.begin_call(|faults| &mut faults.decrypt).await?;
    let request: KmsRequest = json_protocol::read(body)?;
    request.check_key(false)?;
    let mut blob = bytes("ciphertextBlob", &request.ciphertext_blob, MAX_CIPHERTEXT)?;
    let key = key(bus)?;
    let opened = blob.split_first_chunk_mut::<NONCE_LEN>().and_then(|(nonce, sealed)| {
        key.open_in_place(Nonce::assume_unique_for_key(*nonce), request.context(), sealed).ok()
    });
    let plaintext = base64::encode(opened.ok_or_else(|| CallError::bad_request("InvalidCiphertextException", ""))?);
    fault.respond(json!({ "EncryptionAlgorithm": "SYMMETRIC_DEFAULT", "KeyId": KEY_ARN, "Plaintext": plaintext }))
}

impl Bus {
    /// Sets the key, so that what was encrypted elsewhere can be decrypted.
    pub fn set_kms_key(&self, key: [u8; 32]) -> Result<(), DataFileError> {
        self.state().stored.append(Journal::KMS_KEY, &key)
    }
}

impl KmsRequest {
    fn check_key(&self, is_required: bool) -> Result<(), CallError> {
        let arn = match self.key_id.as_deref() {
            None if is_required => {
                return Err(invalid("Value at 'keyId' failed to satisfy constraint: Member must not be null"));
            }
            None => return Ok(()),
            Some(arn) if arn.starts_with("arn:") => arn.to_owned(),
            Some(id) => KEY_ARN.replace("local", id),
        };
        let message = format!("Key '{arn}' does not exist");
        if arn == KEY_ARN { Ok(()) } else { Err(CallError::bad_request("NotFoundException", &message)) }
    }

    /// The context as authenticated data: its order has no meaning.
    fn context(&self) -> Aad<Vec<u8>> {
        Aad::from(json!(self.encryption_context).to_string().into_bytes())
    }
}

/// The key of this account, from the stored state, or else a new one.
fn key(bus: &Bus) -> Result<LessSafeKey, CallError> {
    let state = bus.state();
    let key = match state.stored.entries::<[u8; 32]>(Journal::KMS_KEY)?.first() {
        Some(key) => *key,
        None => {
            let key = random()?;
            state.stored.append(Journal::KMS_KEY, &key)?;
            key
        }
    };
    Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).map_err(internal)?))
}

fn random<T: RandomlyConstructable>() -> Result<T, CallError> {
    generate(&SystemRandom::new()).map(Random::expose).map_err(internal)
}

fn bytes(name: &str, text: &str, maximum: usize) -> Result<Vec<u8>, CallError> {
    let bytes =
        base64::decode(text).map_err(|error| CallError::bad_request("SerializationException", &error.to_string()))?;
    let (bound, limit) = if bytes.is_empty() { ("greater", 1) } else { ("less", maximum) };
    if bytes.is_empty() || bytes.len() > maximum {
        let rule = format!("Member must have length {bound} than or equal to {limit}");
        return Err(invalid(&format!("Value at '{name}' failed to satisfy constraint: {rule}")));
    }
    Ok(bytes)
}

fn invalid(reason: &str) -> CallError {
    CallError::bad_request("ValidationException", &format!("1 validation error detected: {reason}"))
}

fn internal(_: Unspecified) -> CallError {
    let (status, message) = (StatusCode::INTERNAL_SERVER_ERROR, "the cipher or the random numbers fail".to_owned());
    CallError { status, code: "KMSInternalException".to_owned(), message }
}
