//! The typed state of an aggregate, which [`Folded`](crate::Folded) holds with its type erased.

use crate::aggregate::Aggregate;
use crate::claim::Claim;
use crate::deadline::Declaration;
use crate::json::Json;
use crate::panics::calling;
use crate::personal;
use crate::process::Dispatch;

pub(crate) struct AggregateState<A: Aggregate> {
    pub(crate) state: A::State,
    /// Empty unless [`Aggregate::FULL_HISTORY`].
    pub(crate) history: Vec<A::Event>,
}

impl<A: Aggregate> AggregateState<A> {
    pub(crate) fn new(state: A::State) -> Self {
        Self { state, history: Vec::new() }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        calling("is_deleted", || A::is_deleted(&self.state))
    }

    pub(crate) fn is_forgotten(&self) -> bool {
        calling("is_forgotten", || A::is_forgotten(&self.state))
    }

    /// The state without the personal values about the aggregate, as it is read once they are forgotten. The error is the reason
    /// why it has no JSON form.
    pub(crate) fn forgotten(state: &A::State, id: &str) -> Result<A::State, String> {
        let json = Json::of(state).map_err(|error| error.to_string())?;
        let json = personal::forgotten(personal::attributed(json, (A::TYPE, id))?, &format!("{}/{id}", A::TYPE));
        json.read().map_err(|error| error.to_string())
    }

    /// The claims of an aggregate at this version, sorted and each once. None before the first event and after a deletion.
    pub(crate) fn claims(&self, version: u64) -> Vec<Claim> {
        if version == 0 || self.is_deleted() {
            return Vec::new();
        }
        let mut claims = calling("claims", || A::claims(&self.state));
        claims.sort();
        claims.dedup();
        claims
    }

    /// The deadlines of an aggregate at this version, sorted by name, and then its dispatches. None before the first event and
    /// after a deletion.
    pub(crate) fn deadlines(&self, version: u64) -> Vec<Declaration> {
        if version == 0 || self.is_deleted() {
            return Vec::new();
        }
        let deadlines = calling("deadlines", || A::deadlines(&self.state)).into_iter();
        let mut declared: Vec<_> = deadlines.map(|deadline| deadline.declaration).collect();
        declared.sort_by(|one, other| (&one.name, one.due).cmp(&(&other.name, other.due)));
        let dispatches = calling("dispatches", || A::dispatches(&self.state));
        if !dispatches.is_empty() {
            let is_process = !calling("sources", A::sources).all.is_empty();
            let of_process = |Dispatch(declaration)| if is_process { declaration } else { declaration.of_no_process() };
            declared.extend(dispatches.into_iter().map(of_process));
        }
        declared
    }

    pub(crate) fn apply(&mut self, event: &A::Event) {
        let state = calling("Default", || std::mem::take(&mut self.state));
        self.state = calling("evolve", || A::evolve(state, event));
        if A::FULL_HISTORY {
            self.history.push(event.clone());
        }
    }
}

impl<A: Aggregate> Clone for AggregateState<A> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), history: self.history.clone() }
    }
}
