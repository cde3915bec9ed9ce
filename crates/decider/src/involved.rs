//! The other aggregates that a decision involves: those whose state it reads, and those that it sends commands to.
//!
//! A decision asks for them while it runs. What is not known yet is a [`Need`]: the store reads it, and the command is decided
//! again. The append checks that each of them is still as it was read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::aggregate_key::{AggregateKey, is_id};
use crate::aggregate_state::AggregateState;
use crate::claim::Claim;
use crate::model::{CommandRequest, Folded};

/// The aggregates that a decision involves, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Involved {
    /// Each aggregate; one that does not exist is before its first event.
    pub aggregates: BTreeMap<AggregateKey, Folded>,
    /// The aggregate that has each claim; `None` if no aggregate has it.
    pub holders: BTreeMap<Claim, Option<AggregateKey>>,
}

impl Involved {
    /// Maximum aggregates and claims that one decision involves.
    pub const MAX: usize = 10;

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.aggregates.len() + self.holders.len()
    }
}

/// What a decision needs to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// An aggregate.
    Aggregate(AggregateKey),
    /// The aggregate that has a claim.
    Holder(Claim),
}

/// A command that a decision sends to another aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct SentCommand {
    /// The aggregate that it is sent to.
    pub to: AggregateKey,
    /// The command.
    pub command: CommandRequest,
    /// The position of the command that sends it, counted from 0.
    pub index: usize,
}

/// What a decision asks about other aggregates, and sends to them.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) known: &'a Involved,
    /// Whether all is known: what is unknown does not exist.
    pub(crate) is_complete: bool,
    pub(crate) needs: RefCell<BTreeSet<Need>>,
    /// The commands that were sent, or why they cannot be written.
    pub(crate) sent: RefCell<Vec<Result<(AggregateKey, CommandRequest), String>>>,
}

/// The name of the rejection that ends a decision which needs to know more. No caller sees it.
pub(crate) const NOT_READ_YET: &str = "NotReadYet";

impl<'a> Exchange<'a> {
    pub(crate) fn new(known: &'a Involved) -> Self {
        Self { known, is_complete: false, needs: RefCell::default(), sent: RefCell::default() }
    }

    /// The state of an aggregate, `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When it is not known yet.
    pub(crate) fn state<A: Aggregate>(&self, id: &str) -> Result<Option<&'a A::State>, Unknown> {
        let key = AggregateKey::new(A::TYPE, id);
        match self.known.aggregates.get(&key) {
            Some(folded) if folded.version == 0 => Ok(None),
            Some(folded) => {
                let state = folded.state.downcast_ref::<AggregateState<A>>();
                Ok(Some(&state.expect("each type is registered once").state))
            }
            // No aggregate has an id that is no valid one.
            None if self.is_complete || !is_id(id) => Ok(None),
            None => Err(self.need(Need::Aggregate(key))),
        }
    }

    /// The id and the state of the aggregate that has a claim.
    ///
    /// # Errors
    ///
    /// When they are not known yet.
    pub(crate) fn holder<A: Aggregate>(&self, claim: &Claim) -> Result<Option<(&'a str, &'a A::State)>, Unknown> {
        let holder = match self.known.holders.get(claim) {
            Some(holder) => holder.as_ref(),
            None if self.is_complete => None,
            None => return Err(self.need(Need::Holder(claim.clone()))),
        };
        // Another type may use the name of the claim too.
        let Some(holder) = holder.filter(|holder| holder.aggregate_type == A::TYPE) else { return Ok(None) };
        Ok(self.state::<A>(&holder.id)?.map(|state| (holder.id.as_str(), state)))
    }

    pub(crate) fn send<A: Aggregate>(&self, id: String, command: &A::Command)
    where
        A::Command: Serialize,
    {
        let to = AggregateKey::new(A::TYPE, id);
        let sent = serde_json::to_string(command).and_then(|command| serde_json::from_str(&command));
        let sent = sent.map_err(|error| format!("a command to {to}: {error}"));
        self.sent.borrow_mut().push(sent.map(|command| (to, command)));
    }

    fn need(&self, need: Need) -> Unknown {
        self.needs.borrow_mut().insert(need);
        Unknown
    }
}

/// Something about another aggregate is not known yet.
pub(crate) struct Unknown;
