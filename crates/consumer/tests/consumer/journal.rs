//! The consumer under test: it writes down which messages it applies, and in which order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use daybook_consumer::testing::message;
use daybook_consumer::{BusMessage, Changes, Consumer, ConsumerFunction, HandleError, RowKey, Rows};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use crate::database::{Database, Process, TABLE};

/// The name of a message that cannot be applied while [`Journal::fails`].
pub(crate) const POISON: &str = "Poison";

/// A consumer with a list of applied messages for each aggregate, a row for each message, and a row that all aggregates
/// share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    pub(crate) fails: Arc<AtomicBool>,
}

pub(crate) fn list_key(aggregate: &str) -> RowKey {
    RowKey::new(aggregate, "#LIST")
}

fn total_key() -> RowKey {
    RowKey::new("total", "#TOTAL")
}

impl Consumer for Journal {
    const NAME: &'static str = "journal";
    const MAX_ATTEMPTS: u32 = 3;

    fn reads(&self, message: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
        Ok(vec![list_key(&message.aggregate().to_string()), total_key()])
    }

    fn handle(&self, message: &BusMessage, rows: &Rows<'_>) -> Result<Changes, HandleError> {
        if message.message_type == POISON && self.fails.load(Ordering::Relaxed) {
            return Err(HandleError::new("it is poison"));
        }
        let (aggregate, number) = (message.aggregate().to_string(), message.number());
        let mut list: Vec<(u32, u64)> = rows.get(&list_key(&aggregate))?.unwrap_or_default();
        list.push((number.epoch, number.message_seq));
        let total: u64 = rows.get(&total_key())?.unwrap_or_default();
        let mut changes = Changes::none();
        changes.put(list_key(&aggregate), &list)?;
        changes.put(total_key(), &(total + 1))?;
        changes.put(RowKey::new(aggregate, &message.metadata.message_id), &message.data::<Value>()?)?;
        Ok(changes)
    }
}

/// Message `message_seq` of an aggregate.
pub(crate) fn noted(aggregate: &str, message_seq: u64) -> BusMessage {
    message(aggregate, message_seq, ("Noted", 1), json!({"number": message_seq}))
}

/// The message as EventBridge delivers it.
pub(crate) fn event(message: &BusMessage) -> Value {
    let metadata = serde_json::to_value(&message.metadata).unwrap();
    let data: Value = message.data().unwrap();
    json!({
        "version": "0", "id": "e", "source": "com.example.daybook", "detail-type": message.message_type,
        "resources": [message.aggregate().to_string()], "detail": {"metadata": metadata, "data": data},
    })
}

/// A batch as SQS passes it to a function. The id of each delivery is its position.
pub(crate) fn batch<'a>(messages: impl IntoIterator<Item = &'a BusMessage>) -> Value {
    let records = messages.into_iter().enumerate();
    let records = records.map(|(id, of)| json!({"messageId": id.to_string(), "body": event(of).to_string()}));
    json!({"Records": records.collect::<Vec<_>>()})
}

/// A consumer over a database.
pub(crate) struct Setup {
    pub(crate) database: Database,
    pub(crate) journal: Journal,
    pub(crate) function: ConsumerFunction<Journal>,
}

impl Setup {
    pub(crate) async fn new(seed: u64) -> Self {
        let (database, journal) = (Database::new(seed), Journal::default());
        let function = ConsumerFunction::new(journal.clone(), &database.config(Process::reliable()), TABLE);
        function.table().create().await.unwrap();
        database.take_calls();
        Self { database, journal, function }
    }

    /// Another process of the function.
    pub(crate) fn instance(&self, process: Arc<Process>) -> ConsumerFunction<Journal> {
        ConsumerFunction::new(self.journal.clone(), &self.database.config(process), TABLE)
    }

    /// Handles a batch, and returns the positions of the messages that must be delivered again.
    pub(crate) async fn deliver<'a>(&self, messages: impl IntoIterator<Item = &'a BusMessage>) -> Vec<usize> {
        failures(&self.function.handle(batch(messages), soon()).await.unwrap())
    }

    /// Executes the request of an operator.
    pub(crate) async fn request(&self, request: Value) -> Value {
        self.function.handle(request, soon()).await.unwrap()
    }

    pub(crate) async fn report(&self) -> Value {
        self.request(json!({"request": "report"})).await
    }

    /// The numbers of the applied messages of an aggregate, in the order in which they were applied.
    pub(crate) async fn applied(&self, aggregate: &str) -> Vec<(u32, u64)> {
        let row = self.function.table().row(&list_key(aggregate)).await.unwrap();
        row.map(|row| serde_json::from_value(row).unwrap()).unwrap_or_default()
    }

    /// The number of applied messages of all aggregates.
    pub(crate) async fn total(&self) -> u64 {
        self.function.table().row(&total_key()).await.unwrap().map_or(0, |total| total.as_u64().unwrap())
    }
}

/// The failures of a response, as positions in the batch.
pub(crate) fn failures(response: &Value) -> Vec<usize> {
    let failures = response["batchItemFailures"].as_array().unwrap().iter();
    failures.map(|failure| failure["itemIdentifier"].as_str().unwrap().parse().unwrap()).collect()
}

/// The first messages of an aggregate, as the journal lists them.
pub(crate) fn first(count: u64) -> Vec<(u32, u64)> {
    (1..=count).map(|number| (1, number)).collect()
}

/// A deadline that no test reaches.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(600)
}
