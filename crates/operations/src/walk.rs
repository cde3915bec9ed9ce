//! A walk over a listing: several aggregates are visited concurrently, and reported in the order of the listing.
//!
//! Invariants:
//! - After Ctrl-C no visit begins, those under way are waited for, and the position is that of the last reported aggregate.
//! - Only the aggregates of one page of the listing, or of each segment of a scan, and the results of the visits under way are
//!   in memory.

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::pin::pin;

use daybook_decider::Model;
use daybook_event_store::StoreError;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::checkpoint::Checkpoint;
use crate::error::OperatorError;
use crate::listing::{ListedAggregate, Listing, Position};
use crate::selection::Selection;
use crate::stack::Stack;

/// Which aggregates are visited, and how many concurrently.
pub struct AggregateWalk<'a> {
    pub listing: Listing<'a>,
    pub concurrency: NonZeroUsize,
    pub checkpoint: Checkpoint,
}

/// How the selected aggregates are visited.
#[derive(Clone, Debug)]
pub struct WalkOptions {
    pub selection: Selection,
    /// Maximum aggregates per second.
    pub rate: NonZeroU32,
    pub concurrency: NonZeroUsize,
    /// The file with the progress.
    pub checkpoint: Option<PathBuf>,
}

#[derive(Debug)]
pub struct Walked<C> {
    pub counts: C,
    /// How to go on, if the walk was interrupted.
    pub how_to_go_on: Option<String>,
}

/// The progress of a walk, as its checkpoint contains it: the position in the listing, and what was counted before it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WalkProgress<C> {
    pub position: Position,
    pub counts: C,
}

impl AggregateWalk<'_> {
    /// Visits each aggregate, and reports the visit's result. If an interrupt ended the walk, returns how to go on.
    ///
    /// `visit` gets the model of the aggregate's type, if there is one, and returns `None` if the interrupt came before it
    /// began.
    pub async fn run<T, C: Serialize>(
        self,
        stack: &Stack,
        progress: &mut WalkProgress<C>,
        visit: impl AsyncFn(&ListedAggregate, Option<&dyn Model>) -> Option<Result<T, StoreError>>,
        mut report: impl FnMut(&mut C, &ListedAggregate, T) -> io::Result<()>,
    ) -> Result<Option<String>, OperatorError> {
        let Stack { registry, interrupt, .. } = stack;
        let Self { listing, concurrency, mut checkpoint } = self;
        let has_fractions = matches!(listing, Listing::Indexed(_));
        checkpoint.write_now(&*progress)?;
        let visits = listing.aggregates(interrupt).map(async |listed| {
            let aggregate = listed?;
            let model = aggregate.key.as_ref().and_then(|key| registry.get(&key.aggregate_type));
            let result = visit(&aggregate, model).await.transpose()?;
            Ok((aggregate, result))
        });
        let mut visits = pin!(visits.buffered(concurrency.get()));
        let mut visited = 0_u64;
        let mut failure = None;
        while let Some(visit) = visits.next().await {
            let (aggregate, result) = match visit {
                Ok((aggregate, Some(result))) => (aggregate, result),
                // Results arrive in the order of the listing, so no later visit has begun either.
                Ok((_, None)) => break,
                Err(source) => {
                    failure = Some(source);
                    break;
                }
            };
            report(&mut progress.counts, &aggregate, result)?;
            visited += 1;
            let doing = format!("{visited} aggregates, at {}", aggregate.name);
            stack.progress.show(has_fractions.then_some(aggregate.fraction), doing);
            progress.position.advance(&aggregate);
            checkpoint.write(&*progress)?;
        }
        if let Some(source) = failure {
            checkpoint.write_now(&*progress)?;
            let doing = format!("stopped early, {}", checkpoint.how_to_go_on(progress.position.how_to_go_on()));
            return Err(OperatorError::Store { doing, source });
        }
        if interrupt.is_set() {
            checkpoint.write_now(&*progress)?;
            return Ok(Some(checkpoint.how_to_go_on(progress.position.how_to_go_on())));
        }
        checkpoint.finish()?;
        Ok(None)
    }
}
