//! `Encrypt` and `Decrypt` over HTTP, as a client sees them.

use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::messaging::{Bus, Faults, Server};
use daybook_local_aws::state::StackState;
use serde_json::{Value, json};

/// Base64 of this many bytes, a multiple of three.
fn blob(bytes: usize) -> String {
    "AAAA".repeat(bytes / 3)
}

async fn try_call(server: &Server, operation: &str, request: &Value) -> reqwest::Result<(u16, String, Value)> {
    let call = reqwest::Client::new().post(server.url()).header("x-amz-target", format!("TrentService.{operation}"));
    let response = call.header("content-type", "application/x-amz-json-1.1").body(request.to_string()).send().await?;
    let header = |name| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    assert_eq!(header("content-type"), "application/x-amz-json-1.1");
    let (status, code) = (response.status().as_u16(), header("x-amzn-errortype"));
    Ok((status, code, response.json().await?))
}

/// The response, or the status and the code of the error.
async fn call(server: &Server, operation: &str, request: Value) -> Result<Value, String> {
    let (status, code, body) = try_call(server, operation, &request).await.unwrap();
    if status == 200 {
        return Ok(body);
    }
    assert_eq!(body["__type"], code);
    Err(format!("{status} {code}: {}", body["message"].as_str().unwrap()))
}

async fn encrypt(server: &Server, context: Value) -> String {
    let request = json!({"KeyId": "local", "Plaintext": "c2VjcmV0", "EncryptionContext": context});
    let response = call(server, "Encrypt", request).await.unwrap();
    assert_eq!(response["KeyId"], "arn:aws:kms:us-east-1:000000000000:key/local");
    response["CiphertextBlob"].as_str().unwrap().to_owned()
}

async fn decrypt(server: &Server, blob: &str, context: Value) -> Result<String, String> {
    let response = call(server, "Decrypt", json!({"CiphertextBlob": blob, "EncryptionContext": context})).await?;
    Ok(response["Plaintext"].as_str().unwrap().to_owned())
}

const INVALID: &str = "400 InvalidCiphertextException: ";

#[tokio::test]
async fn ciphertext_is_decrypted_with_its_context_alone() {
    let server = Server::start(Bus::in_memory().router()).await.unwrap();
    let context = json!({"table": "keys", "stage": "test"});
    let (one, other) = (encrypt(&server, context.clone()).await, encrypt(&server, context.clone()).await);
    assert!(one != other && !one.contains("c2VjcmV0"));
    for blob in [&one, &other] {
        assert_eq!(decrypt(&server, blob, json!({"stage": "test", "table": "keys"})).await.unwrap(), "c2VjcmV0");
    }
    for context in [json!({}), json!({"table": "keys"}), json!({"table": "keys2", "stage": "test"})] {
        assert_eq!(decrypt(&server, &one, context).await.unwrap_err(), INVALID);
    }
    let mut changed = one.clone().into_bytes();
    changed[20] = if changed[20] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    for blob in [changed.as_str(), "AAAA", &blob(12)] {
        assert_eq!(decrypt(&server, blob, context.clone()).await.unwrap_err(), INVALID);
    }
}

#[tokio::test]
async fn requests_are_checked() {
    let server = Server::start(Bus::in_memory().router()).await.unwrap();
    let missing = "400 NotFoundException: Key 'arn:aws:kms:us-east-1:000000000000:key/other' does not exist";
    let arn = "arn:aws:kms:us-east-1:000000000000:key/";
    for id in ["other".to_owned(), format!("{arn}other")] {
        for request in [json!({"KeyId": id, "Plaintext": "AAAA"}), json!({"KeyId": id, "CiphertextBlob": "AAAA"})] {
            let operation = if request["Plaintext"].is_null() { "Decrypt" } else { "Encrypt" };
            assert_eq!(call(&server, operation, request).await.unwrap_err(), missing);
        }
    }
    let (id, length) = (format!("{arn}local"), "failed to satisfy constraint: Member must have length");
    for (operation, request, error) in [
        ("Encrypt", json!({"KeyId": id, "Plaintext": blob(4095)}), ""),
        ("Encrypt", json!({"KeyId": id, "Plaintext": blob(4098)}), "'plaintext' {} less than or equal to 4096"),
        ("Encrypt", json!({"KeyId": id, "Plaintext": ""}), "'plaintext' {} greater than or equal to 1"),
        ("Encrypt", json!({"Plaintext": "AAAA"}), "'keyId' failed to satisfy constraint: Member must not be null"),
        ("Decrypt", json!({"CiphertextBlob": blob(6147)}), "'ciphertextBlob' {} less than or equal to 6144"),
        ("Decrypt", json!({}), "'ciphertextBlob' {} greater than or equal to 1"),
    ] {
        let found = call(&server, operation, request).await.map(drop);
        let reason = error.replace("{}", length);
        let expected = format!("400 ValidationException: 1 validation error detected: Value at {reason}");
        assert_eq!(found, if error.is_empty() { Ok(()) } else { Err(expected) });
    }
    assert_eq!(decrypt(&server, &blob(6144), json!({})).await.unwrap_err(), INVALID);
    let odd = call(&server, "Encrypt", json!({"KeyId": "local", "Plaintext": "?"})).await.unwrap_err();
    assert!(odd.starts_with("400 SerializationException: "), "{odd}");
}

#[tokio::test]
async fn faults_apply_to_one_call_each() {
    let bus = Bus::in_memory();
    let server = Server::start(bus.router()).await.unwrap();
    let blob = encrypt(&server, json!({})).await;
    let faults = json!({
        "encrypt": [{"code": "DisabledException"}],
        "decrypt": [{"code": "KMSInvalidStateException"}, {"http": 500, "code": "KMSInternalException"}, {"acceptThenDrop": true}],
    });
    bus.set_faults(serde_json::from_value::<Faults>(faults).unwrap());
    let request = json!({"KeyId": "local", "Plaintext": "AAAA"});
    let disabled = call(&server, "Encrypt", request.clone()).await.unwrap_err();
    assert_eq!(disabled, "400 DisabledException: injected fault");
    call(&server, "Encrypt", request).await.unwrap();
    for code in ["400 KMSInvalidStateException", "500 KMSInternalException"] {
        assert_eq!(decrypt(&server, &blob, json!({})).await.unwrap_err(), format!("{code}: injected fault"));
    }
    let request = json!({"CiphertextBlob": blob});
    assert!(try_call(&server, "Decrypt", &request).await.is_err(), "the connection breaks");
    decrypt(&server, &blob, json!({})).await.unwrap();
}

#[tokio::test]
async fn key_outlives_a_restart_and_belongs_to_one_stack() {
    let folder = tempfile::tempdir().unwrap();
    let start = async |file: &str| {
        let stored = StackState::open(&folder.path().join(file)).unwrap();
        Server::start(Bus::new(stored, LocalClock::default()).unwrap().router()).await.unwrap()
    };
    let blob = encrypt(&start("one").await, json!({})).await;
    assert_eq!(decrypt(&start("one").await, &blob, json!({})).await.unwrap(), "c2VjcmV0");
    assert_eq!(decrypt(&start("other").await, &blob, json!({})).await.unwrap_err(), INVALID);
}
