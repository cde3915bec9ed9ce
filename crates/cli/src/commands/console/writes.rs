//! What the console can change with `--allow-writes`: it lists dead-letter messages, sends them again and deletes them, with
//! the code of `daybook dlq`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_sqs::types::MessageSystemAttributeName;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use daybook_decider::Registry;
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::Environment;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::args::ConsoleArgs;
use super::interface::{JsonResponse, respond};
use crate::commands::dlq::{DlqCommand, DlqDeleteArgs, DlqRedriveArgs};
use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::{BusArgs, QueueArgs};
use crate::operator::{Interrupt, OperatorContext, OperatorError};

/// Maximum messages of a list.
const MAX_LISTED: usize = 100;

/// Maximum messages per second that are sent again.
const RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// Runs the commands of `daybook dlq` in the environment of the console.
pub(super) struct Writes {
    queue: QueueArgs,
    bus: BusArgs,
    environment: Environment,
    registry: Registry,
    projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    interrupt: Interrupt,
}

/// Which messages.
#[derive(Deserialize)]
struct Selection {
    /// Their ids in the queue.
    ids: Vec<String>,
}

impl Writes {
    pub(super) fn new(args: &ConsoleArgs, context: &OperatorContext) -> Self {
        Self {
            queue: args.queue.clone(),
            bus: args.bus.clone(),
            environment: context.environment.clone(),
            registry: context.registry.clone(),
            projections: context.projections,
            interrupt: context.interrupt.clone(),
        }
    }

    /// The paths.
    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/_dev/dlq/messages", get(list))
            .route("/_dev/dlq/redrive", post(redrive))
            .route("/_dev/dlq/delete", post(delete))
            .with_state(Arc::new(self))
    }

    /// The messages of the queue, which other readers see again afterwards.
    async fn list(&self) -> Result<Value, OperatorError> {
        let url = self.queue.url(&self.environment)?;
        let queue = self.queue.connect(&self.environment).await?;
        let mut messages = Vec::new();
        let reader = QueueReader::new(&queue, Some(MAX_LISTED), &self.interrupt);
        let read = reader.read(|digest, message| {
            let attribute = |name| message.attributes.as_ref().and_then(|attributes| attributes.get(&name));
            let receives = attribute(MessageSystemAttributeName::ApproximateReceiveCount);
            messages.push(json!({
                "id": digest.sqs_id, "queueUrl": url, "body": message.body.as_deref().unwrap_or_default(),
                "sentAt": digest.queued_at.map_or(0, |at| at.as_millisecond()),
                "receives": receives.and_then(|count| count.parse::<u32>().ok()).unwrap_or_default(),
            }));
            Ok(())
        });
        let reading = read.await?;
        queue.put_back(&reading.messages).await;
        Ok(messages.into())
    }

    /// Runs a command on the messages with these ids. Returns what became of each.
    async fn run(&self, command: DlqCommand, ids: Vec<String>) -> Value {
        let output = Captured::default();
        let mut context = OperatorContext {
            environment: self.environment.clone(),
            registry: self.registry.clone(),
            projections: self.projections,
            out: Box::new(output.clone()),
            interrupt: self.interrupt.clone(),
        };
        let ended = command.run(&mut context).await;
        let mut outcomes = output.outcomes();
        let reason = match ended {
            Err(error) => error.to_string(),
            Ok(_) => "no longer in the queue, or another reader has received it".to_owned(),
        };
        let known: BTreeSet<_> =
            outcomes.iter().filter_map(|outcome| outcome["id"].as_str().map(str::to_owned)).collect();
        let others = ids.into_iter().filter(|id| !known.contains(id));
        outcomes.extend(others.map(|id| json!({"id": id, "outcome": "unchanged", "reason": reason})));
        outcomes.into()
    }
}

async fn list(State(writes): State<Arc<Writes>>) -> JsonResponse {
    respond(to_the_end(async move || writes.list().await).await)
}

async fn redrive(State(writes): State<Arc<Writes>>, Json(Selection { ids }): Json<Selection>) -> JsonResponse {
    let (filter, queue, bus) = (of_ids(&ids), writes.queue.clone(), writes.bus.clone());
    let args = DlqRedriveArgs { filter, yes: true, rate: RATE, limit: None, json: true, queue, bus };
    act(writes, DlqCommand::Redrive(args), ids).await
}

async fn delete(State(writes): State<Arc<Writes>>, Json(Selection { ids }): Json<Selection>) -> JsonResponse {
    let (filter, queue) = (of_ids(&ids), writes.queue.clone());
    let args = DlqDeleteArgs { ids: Vec::new(), filter, yes: true, json: true, queue };
    act(writes, DlqCommand::Delete(args), ids).await
}

async fn act(writes: Arc<Writes>, command: DlqCommand, ids: Vec<String>) -> JsonResponse {
    // Without ids, the command would select all messages.
    if ids.is_empty() {
        return Ok(Json(json!([])));
    }
    respond(to_the_end(async move || Ok(writes.run(command, ids).await)).await)
}

fn of_ids(ids: &[String]) -> MessageFilterArgs {
    MessageFilterArgs { id: ids.to_vec(), ..MessageFilterArgs::default() }
}

/// Runs a command to its end on a thread of its own, even if the browser hangs up: otherwise, messages could stay hidden.
async fn to_the_end<F>(command: F) -> Result<Value, OperatorError>
where
    F: AsyncFnOnce() -> Result<Value, OperatorError> + Send + 'static,
{
    let ended = tokio::task::spawn_blocking(move || Handle::current().block_on(command())).await;
    ended.unwrap_or_else(|error| Err(OperatorError::Usage(error.to_string())))
}

/// The output of a command.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// The lines about messages, as the console reads them.
    fn outcomes(&self) -> Vec<Value> {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = output.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let outcome =
            |line: Value| Some(json!({"id": line["id"], "outcome": line.get("outcome")?, "reason": line.get("why")}));
        lines.filter_map(outcome).collect()
    }
}

impl Write for Captured {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
