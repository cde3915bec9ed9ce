//! The README's example: an account with two transactions, the second of which overdraws it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Method;
use axum::response::Redirect;
use daybook_decider::Registry;
use serde_json::json;

use crate::console::Console;
use crate::failure::Failure;
use crate::form::PostedForm;
use crate::paths;

/// The type of the example.
const TYPE: &str = "account";

/// The id of the example.
const ID: &str = "123";

/// Whether the aggregate types are those of the example.
pub(crate) fn fits(registry: &Registry) -> bool {
    registry.get(TYPE).is_some_and(|model| model.events().iter().any(|event| event.name == "TransactionAccepted"))
}

/// Sends the requests of the example, and shows the account. A second time, the account exists already, and the
/// transactions are recorded again.
pub(crate) async fn send(State(console): State<Arc<Console>>, _form: PostedForm) -> Result<Redirect, Failure> {
    let transactions = json!([
        {"command": "RecordTransaction", "data": {"desc": "A", "amount": 200}},
        {"command": "RecordTransaction", "data": {"desc": "B", "amount": -300}},
    ]);
    for (path, body) in [
        (format!("/{TYPE}"), json!({"id": ID})),
        (format!("/{TYPE}/{ID}"), json!({"ownerFirst": "John", "ownerLast": "Brown"})),
        (format!("/{TYPE}/{ID}/commands"), transactions),
    ] {
        console.stack.send(Method::POST, &path, &[], Some(&body)).await?;
    }
    Ok(Redirect::to(&paths::aggregate_of(TYPE, ID)))
}
