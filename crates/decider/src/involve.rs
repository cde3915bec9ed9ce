//! The other aggregates in a decision, with their types: [`Context::involve`] and [`Context::send`]; and the state of any.

use serde::Serialize;

use crate::aggregate::{Aggregate, Context, Rejection};
use crate::aggregate_key::{AggregateKey, ID_RULE, is_id};
use crate::claim::Claim;
use crate::draft::AggregateState;
use crate::folded::{CommandRequest, Folded};
use crate::involved::{Need, SentCommand};

impl<'a, E> Context<'a, E> {
    /// The state of another aggregate, also a deleted one; `None` if it never existed. The events are appended only if the
    /// other aggregate is still in this state; otherwise the command is decided again. A decision involves at most
    /// [`Involved::MAX`](crate::Involved::MAX) others.
    ///
    /// # Errors
    ///
    /// If the state is not read yet: return this rejection with `?`. The store reads the state, and `decide` runs again.
    pub fn involve<A: Aggregate>(&self, id: &str) -> Result<Option<&'a A::State>, Rejection<E>> {
        let key = AggregateKey::new(A::TYPE, id);
        match self.exchange.known.aggregates.get(&key) {
            Some(folded) if folded.version == 0 => Ok(None),
            Some(folded) => Ok(Some(folded.state::<A>().expect("each type is registered once"))),
            // No aggregate has an id that is no valid one.
            None if self.exchange.is_complete || !is_id(id) => Ok(None),
            None => Err(self.not_read_yet(Need::Aggregate(key))),
        }
    }

    /// The id and the state of the aggregate of type `A` that has a claim; `None` if no one of this type has it. What
    /// [`involve`](Self::involve) says about the state is also true of the claim.
    ///
    /// # Errors
    ///
    /// Like [`involve`](Self::involve).
    pub fn involve_holder<A: Aggregate>(&self, claim: &Claim) -> Result<Option<(&'a str, &'a A::State)>, Rejection<E>> {
        let holder = match self.exchange.known.holders.get(claim) {
            Some(holder) => holder.as_ref(),
            None if self.exchange.is_complete || claim.check().is_err() => None,
            None => return Err(self.not_read_yet(Need::Holder(claim.clone()))),
        };
        // Another type may use the name of the claim too.
        let Some(holder) = holder.filter(|holder| holder.aggregate_type == A::TYPE) else { return Ok(None) };
        Ok(self.involve::<A>(&holder.id)?.map(|state| (holder.id.as_str(), state)))
    }

    /// Sends a command to another aggregate. It is decided right after this one, by the rules of that aggregate and without its
    /// `authorize`. All events are appended in one transaction, or none if an aggregate rejects its command.
    pub fn send<A: Aggregate>(&self, id: impl Into<String>, command: &A::Command)
    where
        A::Command: Serialize,
    {
        // No aggregate has an id that is no valid one, so the command is to a missing one.
        self.exchange.sent.borrow_mut().push(command_to(AggregateKey::new(A::TYPE, id), command));
    }

    /// The rejection that ends a decision which needs to know more. No caller sees it.
    fn not_read_yet(&self, need: Need) -> Rejection<E> {
        self.exchange.needs.borrow_mut().insert(need);
        Rejection::new("NotReadYet", "another aggregate has to be read first")
    }
}

impl Folded {
    /// The state of an aggregate of type `A`; `None` if it is of another type.
    pub fn state<A: Aggregate>(&self) -> Option<&A::State> {
        Some(&self.state.downcast_ref::<AggregateState<A>>()?.state)
    }
}

/// A command to another aggregate. The error says why it cannot be sent.
pub(crate) fn sent_command<A: Aggregate>(id: String, command: &A::Command) -> Result<SentCommand, String>
where
    A::Command: Serialize,
{
    let to = AggregateKey::new(A::TYPE, id);
    if !is_id(&to.id) {
        return Err(format!("a command to {to}: {ID_RULE}"));
    }
    command_to(to, command)
}

fn command_to(to: AggregateKey, command: &impl Serialize) -> Result<SentCommand, String> {
    match CommandRequest::of(command) {
        Ok(command) => Ok(SentCommand { to, command }),
        Err(error) => Err(format!("a command to {to}: {error}")),
    }
}
