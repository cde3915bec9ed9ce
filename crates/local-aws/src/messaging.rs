//! EventBridge, SQS and KMS, in memory or in a file, for development and tests: real HTTP, the services' limits and error
//! codes, and injected faults.
//!
//! Invariant: requests that the services would reject are rejected with the same code. `aws-behaviour.md` in this crate
//! lists the behaviour with its sources, and what is left out. The same calls in the same order have the same result:
//! nothing is random, except for the key and the ciphertexts of KMS. EventBridge has `PutEvents`, `DescribeEventBus`, and rules that
//! send events to queues. SQS has the operations that send, receive, delete and hide messages of a standard queue. KMS encrypts and
//! decrypts with one key. Tests read accepted entries and messages from the [`Bus`], which stores them until it is dropped,
//! including messages that were deleted from their queue.
//!
//! In reading order:
//! - [`Bus`]: the accepted entries and messages, and the recorded calls. `search`: some of them.
//! - [`faults`]: the injected faults.
//! - `router`: the endpoint of the services.
//! - `put_events`, `deliveries`, `sqs` and `kms`: the operations and their limits, and which events reach which queues.

mod bus;
mod deliveries;
pub mod faults;
mod kms;
mod put_events;
mod router;
mod search;
mod sqs;

pub use bus::{Bus, Delivered, PutEventsCall, PutEventsResultEntry, WaitingMessage};
pub use daybook_event_pattern::EventPattern;
pub use deliveries::QueueTarget;
pub use faults::{CallFault, DeliveryFault, EntryFault, Faults, FunctionFault, Rule};
pub use search::{BusMessage, BusPart, MessageQuery};
pub use sqs::{QueueMessage, ReceivedMessage, TargetOutcome, TargetRecord};

pub use crate::server::Server;
