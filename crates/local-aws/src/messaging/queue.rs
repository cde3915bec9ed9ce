//! Standard queues: a message that was received is hidden until its time is up or somebody deletes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::messaging::bus::{Bus, DeadLetter};
use crate::messaging::wire::{Answer, Refused};

/// A message may stay hidden for twelve hours.
pub(crate) const MAX_HIDDEN: u64 = 12 * 60 * 60;

/// All queues. One is there as soon as it is named.
#[derive(Default)]
pub(crate) struct Queues {
    messages: Vec<Queued>,
    /// Wakes those who wait for a message.
    pub(crate) news: Arc<Notify>,
}

/// A message in its queue.
pub(crate) struct Queued {
    pub(crate) letter: DeadLetter,
    pub(crate) sent: u64,
    pub(crate) receives: u32,
    pub(crate) first_received: u64,
    /// Of the newest receipt.
    pub(crate) handle: Option<String>,
    pub(crate) hidden_until: Option<Instant>,
}

impl Queued {
    fn is_hidden(&self) -> bool {
        self.hidden_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Queues {
    pub(crate) fn put(&mut self, letter: DeadLetter) {
        let message = Queued { letter, sent: now(), receives: 0, first_received: 0, handle: None, hidden_until: None };
        self.messages.push(message);
        self.news.notify_waiters();
    }

    pub(crate) fn letters(&self) -> Vec<DeadLetter> {
        self.messages.iter().map(|message| message.letter.clone()).collect()
    }

    /// Receives up to `most` messages, and hides them for that long.
    pub(crate) fn receive(&mut self, queue_url: &str, most: usize, hide: Duration) -> Vec<&Queued> {
        let waiting = |message: &&mut Queued| message.letter.queue_url == queue_url && !message.is_hidden();
        let mut received = Vec::new();
        for message in self.messages.iter_mut().filter(waiting).take(most) {
            message.receives += 1;
            if message.receives == 1 {
                message.first_received = now();
            }
            message.handle = Some(format!("{}/{}", message.letter.message_id, message.receives));
            message.hidden_until = Some(Instant::now() + hide);
            received.push(&*message);
        }
        received
    }

    /// When the next hidden message of a queue shows again.
    pub(crate) fn next_to_show(&self, queue_url: &str) -> Option<Instant> {
        let hidden = self.messages.iter().filter(|message| message.letter.queue_url == queue_url);
        hidden.filter_map(|message| message.hidden_until).min()
    }

    /// Deletes the message of a receipt. A receipt that is not the newest of its message deletes nothing, and neither does
    /// one of a message that is gone: both are as good as done.
    pub(crate) fn delete(&mut self, queue_url: &str, handle: &str) -> Result<(), Refused> {
        check_handle(handle)?;
        let is_it =
            |message: &Queued| message.letter.queue_url == queue_url && message.handle.as_deref() == Some(handle);
        self.messages.retain(|message| !is_it(message));
        Ok(())
    }

    /// Hides the message of a receipt for so much longer from now on; 0 shows it at once.
    pub(crate) fn hide(&mut self, queue_url: &str, handle: &str, hide: Duration) -> Result<(), Refused> {
        check_handle(handle)?;
        let in_flight = self.messages.iter_mut().find(|message| {
            message.letter.queue_url == queue_url && message.handle.as_deref() == Some(handle) && message.is_hidden()
        });
        let Some(message) = in_flight else {
            return Err(Refused::of("MessageNotInflight", "The specified message isn't in flight."));
        };
        message.hidden_until = Some(Instant::now() + hide);
        self.news.notify_waiters();
        Ok(())
    }
}

/// The form that handles have here.
fn check_handle(handle: &str) -> Result<(), Refused> {
    let receipt = handle.split_once('/').is_some_and(|(id, receive)| id.len() == 36 && receive.parse::<u32>().is_ok());
    let message = "The specified receipt handle isn't valid.";
    if receipt { Ok(()) } else { Err(Refused::of("ReceiptHandleIsInvalid", message)) }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AttributesRequest {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AttributesResponse {
    attributes: BTreeMap<&'static str, String>,
}

/// `GetQueueAttributes`: how many messages there are, which here is exact.
pub(crate) fn attributes(bus: &Bus, body: &[u8]) -> Result<Answer, Refused> {
    let request: AttributesRequest = serde_json::from_slice(body).map_err(|error| Refused::unreadable(&error))?;
    let state = bus.state();
    let of_queue = state.queues.messages.iter().filter(|message| message.letter.queue_url == request.queue_url);
    let (hidden, visible): (Vec<_>, Vec<_>) = of_queue.partition(|message| message.is_hidden());
    let known = [
        ("ApproximateNumberOfMessages", visible.len()),
        ("ApproximateNumberOfMessagesNotVisible", hidden.len()),
        ("ApproximateNumberOfMessagesDelayed", 0),
    ];
    let asked = |name: &str| request.attribute_names.iter().any(|asked| asked == name || asked == "All");
    let attributes = known.into_iter().filter(|(name, _)| asked(name));
    Answer::json(&AttributesResponse {
        attributes: attributes.map(|(name, count)| (name, count.to_string())).collect(),
    })
}
