//! The queue, and the letters in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, QueueAttributeName,
};
use clap::Args;
use daybook_stream_relay::DeadLetter;
use daybook_table::{AggregateKey, OutboxItem};
use serde_json::{Value, json};

use crate::operator::progress::Progress;
use crate::operator::selection::AggregateName;
use crate::operator::{Interrupt, OperateError};

/// Messages a call of SQS.
const AT_ONCE: usize = 10;

/// An empty answer after so many seconds of waiting is asked of all of SQS's servers, and so is one that can be believed.
const WAIT: i32 = 1;

/// A look at letters hides them from others for so long at most, should it end before it puts them back.
pub(crate) const LOOK: Duration = Duration::from_secs(60);

/// SQS hides a message for twelve hours at most.
const LONGEST_HIDDEN: Duration = Duration::from_secs(12 * 60 * 60);

/// A message of the queue that was received, and is hidden from others until it is put back.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// SQS's own id.
    pub(crate) id: String,
    pub(crate) handle: String,
    pub(crate) body: String,
    /// Or why it is no whole letter.
    pub(crate) letter: Result<Whole, String>,
}

/// A letter that holds a message.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) aggregate: AggregateKey,
    pub(crate) row: OutboxItem,
    pub(crate) code: String,
    pub(crate) text: String,
    pub(crate) attempts: u32,
    pub(crate) parked_at: String,
}

/// Which letters; all when nothing is said.
#[derive(Clone, Debug, Default, Args)]
pub struct Filter {
    /// Only of aggregates of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub aggregate_type: Option<String>,
    /// Only of this aggregate.
    #[arg(long, value_name = "TYPE/ID")]
    pub aggregate: Option<AggregateName>,
    /// Only messages of this name.
    #[arg(long, value_name = "NAME")]
    pub message_type: Option<String>,
    /// Only what was parked for this error.
    #[arg(long, value_name = "CODE")]
    pub error_code: Option<String>,
    /// Only this message, by its message id or by SQS's; several times for several.
    #[arg(long, value_name = "ID")]
    pub id: Vec<String>,
}

impl Filter {
    /// What is no whole letter has only SQS's id to be told by.
    pub(crate) fn passes(&self, received: &Received) -> bool {
        let whole = received.letter.as_ref().ok();
        let is = |asked: &Option<String>, of: &dyn Fn(&Whole) -> String| {
            asked.as_ref().is_none_or(|asked| whole.is_some_and(|whole| *asked == of(whole)))
        };
        let by_id = |id: &String| *id == received.id || whole.is_some_and(|whole| *id == whole.row.message_id);
        is(&self.aggregate_type, &|whole| whole.aggregate.aggregate_type.clone())
            && self.aggregate.as_ref().is_none_or(|asked| whole.is_some_and(|whole| asked.0 == whole.aggregate))
            && is(&self.message_type, &|whole| whole.row.message_type.clone())
            && is(&self.error_code, &|whole| whole.code.clone())
            && (self.id.is_empty() || self.id.iter().any(by_id))
    }
}

impl Received {
    fn read(message: Message) -> Option<Self> {
        let body = message.body?;
        let letter =
            DeadLetter::read(&body).map_err(|error| format!("no letter of the relay: {error}")).and_then(|letter| {
                let error = letter.error;
                let (code, text) = error.map(|error| (error.code, error.text)).unwrap_or_default();
                let row = letter.message.ok_or_else(|| format!("it holds a record that could not be read ({text})"))?;
                let aggregate = AggregateKey::from_pk(&row.pk).ok_or_else(|| format!("its row is of {:?}", row.pk))?;
                Ok(Whole { aggregate, row, code, text, attempts: letter.attempts, parked_at: letter.dead_lettered_at })
            });
        Some(Self { id: message.message_id?, handle: message.receipt_handle?, body, letter })
    }

    /// By aggregate and number, as they are sent; what is no whole letter at the end.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        match &self.letter {
            Ok(whole) => (0, whole.row.pk.clone(), whole.row.message_seq, whole.row.sk.clone()),
            Err(_) => (1, String::new(), 0, self.id.clone()),
        }
    }

    pub(crate) fn json(&self) -> Value {
        match &self.letter {
            Ok(Whole { aggregate, row, code, text, attempts, parked_at }) => json!({
                "id": self.id, "aggregate": aggregate.to_string(), "messageSeq": row.message_seq,
                "messageType": row.message_type, "messageId": row.message_id, "errorCode": code, "error": text,
                "attempts": attempts, "parkedAt": parked_at,
            }),
            Err(reason) => json!({"id": self.id, "notWhole": reason}),
        }
    }
}

impl fmt::Display for Received {
    /// One line: `<sqs id> account/123 2 accountOverdrawn 01M7… MalformedDetail …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.id;
        match &self.letter {
            Ok(Whole { aggregate, row, code, text, attempts, parked_at }) => write!(
                f,
                "{id} {aggregate} {} {} {} {code}: {text} (sent {attempts} times, parked at {parked_at})",
                row.message_seq, row.message_type, row.message_id
            ),
            Err(reason) => write!(f, "{id} is no whole message: {reason}"),
        }
    }
}

/// The queue.
pub(crate) struct Queue {
    client: Client,
    url: String,
}

/// About how many messages SQS says that there are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) waiting: u64,
    pub(crate) hidden: u64,
}

impl Queue {
    pub(crate) fn new((client, url): (Client, String)) -> Self {
        Self { client, url }
    }

    pub(crate) async fn counts(&self) -> Result<Counts, OperateError> {
        use QueueAttributeName::{ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible};
        let answer = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(ApproximateNumberOfMessages)
            .attribute_names(ApproximateNumberOfMessagesNotVisible)
            .send()
            .await
            .map_err(|error| refused("tell how many messages it has", error))?;
        let count = |name| answer.attributes()?.get(&name)?.parse().ok();
        Ok(Counts {
            waiting: count(ApproximateNumberOfMessages).unwrap_or_default(),
            hidden: count(ApproximateNumberOfMessagesNotVisible).unwrap_or_default(),
        })
    }

    /// Receives up to `most` messages and hides them for that long, until there are no more, or none that is new.
    pub(crate) async fn receive(
        &self,
        most: usize,
        hide: Duration,
        interrupt: &Interrupt,
    ) -> Result<Vec<Received>, OperateError> {
        let progress = Progress::spinner();
        let hide = i32::try_from(hide.min(LONGEST_HIDDEN).as_secs()).unwrap_or(i32::MAX);
        let mut received: Vec<Received> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        while received.len() < most && !interrupt.is_set() {
            let count = AT_ONCE.min(most - received.len());
            let answer = self
                .client
                .receive_message()
                .queue_url(&self.url)
                .max_number_of_messages(i32::try_from(count).unwrap_or(i32::MAX))
                .visibility_timeout(hide)
                .wait_time_seconds(WAIT)
                .send()
                .await;
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    self.put_back(&received).await;
                    return Err(refused("give its messages", error));
                }
            };
            let before = received.len();
            for message in answer.messages.unwrap_or_default().into_iter().filter_map(Received::read) {
                match known.entry(message.id.clone()) {
                    // Only its newest receipt is good for anything.
                    Entry::Occupied(place) => received[*place.get()] = message,
                    Entry::Vacant(place) => {
                        place.insert(received.len());
                        received.push(message);
                    }
                }
            }
            if received.len() == before {
                break;
            }
            progress.doing(format!("{} letters", received.len()));
        }
        Ok(received)
    }

    /// Shows messages to others again. What cannot be shown shows by itself when its time is up.
    pub(crate) async fn put_back(&self, messages: &[Received]) {
        for some in messages.chunks(AT_ONCE) {
            let entry = |(id, message): (usize, &Received)| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(id.to_string())
                    .receipt_handle(&message.handle)
                    .visibility_timeout(0)
                    .build()
                    .expect("id and handle are set")
            };
            let call = self.client.change_message_visibility_batch().queue_url(&self.url);
            let entries = some.iter().enumerate().map(entry).collect();
            if let Err(error) = call.set_entries(Some(entries)).send().await {
                let error = daybook_function_runtime::with_causes(&error);
                tracing::warn!(error, "letters stay hidden for a while");
            }
        }
    }

    /// Deletes messages, and answers why for each that could not be.
    pub(crate) async fn delete(&self, messages: &[Received]) -> Vec<(Received, String)> {
        let mut left = Vec::new();
        for some in messages.chunks(AT_ONCE) {
            let entry = |(id, message): (usize, &Received)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(id.to_string())
                    .receipt_handle(&message.handle)
                    .build()
                    .expect("id and handle are set")
            };
            let entries: Vec<_> = some.iter().enumerate().map(entry).collect();
            let call = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
            match call.send().await {
                Ok(answer) => left.extend(answer.failed.into_iter().filter_map(|failed| {
                    let message = some.get(failed.id.parse::<usize>().ok()?)?;
                    let text = failed.message.unwrap_or_default();
                    Some((message.clone(), format!("{}: {text}", failed.code)))
                })),
                Err(error) => {
                    let error = daybook_function_runtime::with_causes(&error);
                    left.extend(some.iter().map(|message| (message.clone(), error.clone())));
                }
            }
        }
        left
    }
}

fn refused<E: std::error::Error + Send + Sync + 'static>(
    doing: &'static str,
    error: aws_sdk_sqs::error::SdkError<E>,
) -> OperateError {
    OperateError::Queue { doing, cause: daybook_function_runtime::with_causes(&error) }
}
