//! The messages, and the consumers that receive them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;

use daybook_decider::panics::{calling, catch};
use daybook_decider::{Aggregate, AggregateKey, OutboxMessage};
use serde::de::DeserializeOwned;

use crate::fault::Fault;
use crate::request::Request;

/// A message, as a consumer receives it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The aggregate that has published it.
    pub aggregate: &'a AggregateKey,
    /// Its id, name, number and data.
    pub outbox: &'a OutboxMessage,
}

impl Message<'_> {
    /// The event that an aggregate of type `A` has published as it is; `None` for a message of another type.
    pub fn event<A: Aggregate>(&self) -> Option<A::Event> {
        (self.aggregate.aggregate_type == A::TYPE).then(|| self.read())
    }

    /// The value that an `announce` of your own has made the message of. Panics if the message does not fit `T`.
    pub fn read<T: DeserializeOwned>(&self) -> T {
        self.outbox.read().unwrap_or_else(|error| panic!("{} of {}: {error}", self.outbox.message_type, self.aggregate))
    }
}

pub(crate) trait Rows: Any + Debug {}

impl<R: Any + Debug> Rows for R {}

type Handle = Box<dyn Fn(&mut dyn Any, &Message<'_>) -> Vec<Request>>;

/// The code of a consumer, with the type of its rows erased.
pub(crate) struct ConsumerCode {
    pub(crate) name: &'static str,
    /// Whether each message is applied once and in order.
    pub(crate) is_ordered: bool,
    start: fn() -> Box<dyn Rows>,
    handle: Handle,
}

impl ConsumerCode {
    pub(crate) fn new<R: Default + Debug + 'static>(
        name: &'static str,
        is_ordered: bool,
        handle: impl Fn(&mut R, &Message<'_>) -> Vec<Request> + 'static,
    ) -> Self {
        let handle = move |rows: &mut dyn Any, message: &Message<'_>| {
            handle(rows.downcast_mut().expect("rows are only passed to the consumer that made them"), message)
        };
        Self { name, is_ordered, start: || Box::new(R::default()), handle: Box::new(handle) }
    }
}

/// A consumer at some moment.
pub(crate) struct Consumer {
    pub(crate) rows: Box<dyn Rows>,
    /// How often each message was delivered, by its aggregate and number.
    deliveries: BTreeMap<(AggregateKey, u64), u64>,
}

impl Consumer {
    pub(crate) fn new(code: &ConsumerCode) -> Self {
        Self { rows: (code.start)(), deliveries: BTreeMap::new() }
    }

    pub(crate) fn deliveries(&self, of: &AggregateKey, seq: u64) -> u64 {
        self.deliveries.get(&(of.clone(), seq)).copied().unwrap_or_default()
    }

    /// Whether the consumer can apply the message now.
    pub(crate) fn can_apply(&self, code: &ConsumerCode, of: &AggregateKey, seq: u64) -> bool {
        let is_next = || self.deliveries(of, seq) == 0 && (seq == 1 || self.deliveries(of, seq - 1) > 0);
        !code.is_ordered || is_next()
    }

    /// Applies a message. Returns what the consumer sends; nothing, if it crashes after it has changed its rows.
    pub(crate) fn apply(&mut self, code: &ConsumerCode, of: &Message<'_>, crash: bool) -> Result<Vec<Request>, Fault> {
        let rows: &mut dyn Any = &mut *self.rows;
        let sent = catch(code.name, || calling("the code", || (code.handle)(rows, of)))?;
        if crash {
            return Ok(Vec::new());
        }
        *self.deliveries.entry((of.aggregate.clone(), of.outbox.message_seq)).or_default() += 1;
        Ok(sent)
    }
}
