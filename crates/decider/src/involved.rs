//! The other aggregates that a decision involves: those whose state it reads, and those that it sends commands to.
//!
//! A decision asks for them while it runs. What is not known yet is a [`Need`]: the store reads it, and the command is decided
//! again. The append checks that each of them is still as it was read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::aggregate_key::AggregateKey;
use crate::claim::Claim;
use crate::folded::{CommandRequest, Folded};

/// The aggregates that a decision involves, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Involved {
    /// Each aggregate; one that does not exist is before its first event.
    pub aggregates: BTreeMap<AggregateKey, Folded>,
    /// The aggregate that has each claim; `None` if no aggregate has it.
    pub holders: BTreeMap<Claim, Option<AggregateKey>>,
}

impl Involved {
    /// Maximum other aggregates that one request involves. A claim that no aggregate has counts as one.
    pub const MAX: usize = 10;

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.aggregates.is_empty() && self.holders.is_empty()
    }

    /// Whether there are too many, with those that are needed. A claim and its holder count once.
    pub(crate) fn is_too_many_with(&self, needs: &[Need]) -> bool {
        // One that was assumed to be new is known already.
        let is_unknown = |need: &&Need| matches!(need, Need::Aggregate(key) if !self.aggregates.contains_key(key));
        let unknown = needs.iter().filter(is_unknown).count();
        let claims = needs.iter().filter(|need| matches!(need, Need::Holder(_))).count();
        let free = self.holders.values().filter(|holder| holder.is_none()).count();
        // The aggregate of the request may be named by a claim too.
        self.aggregates.len() + unknown + free > Self::MAX || self.holders.len() + claims > Self::MAX + 1
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
}

/// What a decision asks about other aggregates, and sends to them.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) known: &'a Involved,
    /// Whether all is known: what is unknown does not exist.
    pub(crate) is_complete: bool,
    pub(crate) needs: RefCell<BTreeSet<Need>>,
    /// The commands that were sent, or why they cannot be written.
    pub(crate) sent: RefCell<Vec<Result<SentCommand, String>>>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(known: &'a Involved) -> Self {
        Self { known, is_complete: false, needs: RefCell::default(), sent: RefCell::default() }
    }
}
