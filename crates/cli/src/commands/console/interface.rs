//! What the console reads besides the table: the paths that it calls, with what the services of AWS return.
//!
//! Only the console of this process calls it. The local stack has the same paths, and more.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use daybook_function_runtime::with_causes;
use daybook_operations::alarms::{AlarmFigures, alarm_figures};
use daybook_operations::changes_queue::ChangesQueue;
use daybook_operations::dead_letter_queue::QueueCounts;
use daybook_operations::relay::{RelayMapping, iterator_age, relay_mappings};
use daybook_operations::signed_calls::{CLOUDWATCH, LAMBDA, SignedCalls};
use daybook_operations::{DeadLetterQueue, OperatorError, Stack};
use serde_json::{Value, json};

/// A body, or why there is none.
pub(super) type JsonResponse = Result<Json<Value>, (StatusCode, String)>;

/// The stack, and the clients of its queues. The clients that only some pages need are made for these pages: the
/// credentials may lack the permission.
pub(super) struct Interface {
    dead_letters: DeadLetterQueue,
    dead_letters_name: String,
    changes: Option<(ChangesQueue, String)>,
    stack: Stack,
}

impl Interface {
    /// Connects to the queues. Only the dead-letter queue is required.
    pub(super) async fn connect(stack: &Stack) -> Result<Self, OperatorError> {
        let changes = match stack.changes_queue_if_set().await? {
            Some(queue) => Some((queue, name(&stack.changes_queue_url()?))),
            None => None,
        };
        Ok(Self {
            dead_letters: stack.dead_letters().await?,
            dead_letters_name: name(&stack.dlq_url()?),
            changes,
            stack: stack.clone(),
        })
    }

    /// The paths.
    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/_dev/queues", get(async |State(this): State<Arc<Self>>| respond(this.queues().await)))
            .route("/_dev/dlq", get(async |State(this): State<Arc<Self>>| respond(this.dead_letters().await)))
            .route("/_dev/relay", get(async |State(this): State<Arc<Self>>| respond(this.relay().await)))
            .route("/_dev/health", get(async |State(this): State<Arc<Self>>| respond(this.health().await)))
            .with_state(Arc::new(self))
    }

    async fn queues(&self) -> Result<Value, OperatorError> {
        let changes = async {
            let Some((changes, name)) = &self.changes else { return Ok(None) };
            Ok(Some(queue(name, "changes", changes.counts().await?)))
        };
        let (dead_letters, changes) = tokio::try_join!(self.dead_letters(), changes)?;
        Ok(std::iter::once(dead_letters).chain(changes).collect())
    }

    async fn dead_letters(&self) -> Result<Value, OperatorError> {
        Ok(queue(&self.dead_letters_name, "dead-letters", self.dead_letters.counts().await?))
    }

    async fn health(&self) -> Result<Value, OperatorError> {
        let Some(stack_name) = self.stack.stack_name() else {
            return Err(OperatorError::Usage(
                "the name of the stack is not known; use --stack or set STACK".to_owned(),
            ));
        };
        let alarm = |AlarmFigures { name, alarm, points }: AlarmFigures| {
            let text = |name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
            json!({
                "name": name, "description": text("AlarmDescription"), "state": text("StateValue"),
                "reason": text("StateReason"), "threshold": alarm["Threshold"].as_f64(),
                "comparison": text("ComparisonOperator"), "points": points,
            })
        };
        let cloudwatch = SignedCalls::connect(&self.stack.environment, CLOUDWATCH).await?;
        Ok(alarm_figures(&cloudwatch, &stack_name).await?.into_iter().map(alarm).collect())
    }

    async fn relay(&self) -> Result<Value, OperatorError> {
        let function = self.stack.relay_function()?;
        let lambda = SignedCalls::connect(&self.stack.environment, LAMBDA).await?;
        let cloudwatch = SignedCalls::connect(&self.stack.environment, CLOUDWATCH).await?;
        let (mappings, age) =
            tokio::try_join!(relay_mappings(&lambda, &function), iterator_age(&cloudwatch, &function))?;
        let mapping = |mapping: RelayMapping| json!({"id": mapping.id, "state": mapping.state, "lastResult": mapping.last_result});
        Ok(json!({
            "mappings": mappings.into_iter().map(mapping).collect::<Vec<_>>(),
            "iteratorAgeMs": age.as_ref().map(|age| age.milliseconds),
            "at": age.map(|age| age.at.as_millisecond()),
        }))
    }
}

/// The response to the console. The page shows the error to the person who started the command.
pub(super) fn respond(result: Result<Value, OperatorError>) -> JsonResponse {
    result.map(Json).map_err(|error| (StatusCode::FAILED_DEPENDENCY, with_causes(&error)))
}

fn queue(name: &str, purpose: &str, QueueCounts { visible, hidden }: QueueCounts) -> Value {
    json!({"queue": name, "visible": visible, "hidden": hidden, "purpose": purpose})
}

/// The name of the queue in its URL.
fn name(url: &str) -> String {
    url.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn error_of_a_page_has_all_causes() {
        let source = io::Error::other("the disk is full");
        let (_, text) = respond(Err(OperatorError::File { doing: "cannot write it".to_owned(), source })).unwrap_err();
        assert_eq!(text, "cannot write it: the disk is full");
    }
}
