//! A walk over a listing: several aggregates are visited concurrently, and reported in the order of the listing.
//!
//! Invariants:
//! - After Ctrl-C no visit begins, those under way are waited for, and the position is that of the last reported aggregate.
//! - Only the aggregates of one page of the listing, or of each segment of a scan, and the results of the visits under way are
//!   in memory.

use std::io::Write;
use std::num::NonZeroUsize;
use std::pin::pin;

use daybook_decider::Model;
use daybook_event_store::StoreError;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;
use super::context::OperatorContext;
use super::error::OperatorError;
use super::listing::{ListedAggregate, Listing, Position};
use super::progress::ProgressLine;

/// Which aggregates are visited, and how many concurrently.
pub(crate) struct AggregateWalk<'a> {
    pub(crate) listing: Listing<'a>,
    pub(crate) concurrency: NonZeroUsize,
    pub(crate) checkpoint: Checkpoint,
}

/// The progress of a walk, as its checkpoint contains it: the position in the listing, and what was counted before it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct WalkProgress<C> {
    pub(crate) position: Position,
    pub(crate) counts: C,
}

impl AggregateWalk<'_> {
    /// Visits each aggregate, and prints each line that `report` returns for the visit's result. If Ctrl-C ended the walk,
    /// returns how to go on.
    ///
    /// `visit` gets the model of the aggregate's type, if there is one, and returns `None` if Ctrl-C came before it began.
    pub(crate) async fn run<T, C: Serialize, Lines: IntoIterator<Item = String>>(
        self,
        context: &mut OperatorContext,
        progress: &mut WalkProgress<C>,
        visit: impl AsyncFn(&ListedAggregate, Option<&dyn Model>) -> Option<Result<T, StoreError>>,
        mut report: impl FnMut(&mut C, &ListedAggregate, T) -> Lines,
    ) -> Result<Option<String>, OperatorError> {
        let OperatorContext { registry, out, interrupt, .. } = context;
        let Self { listing, concurrency, mut checkpoint } = self;
        let line = match listing {
            Listing::Indexed(_) => ProgressLine::of_fraction(),
            Listing::Named(_) | Listing::Scanned(_) => ProgressLine::spinner(),
        };
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
            let lines = report(&mut progress.counts, &aggregate, result);
            line.suspend(|| lines.into_iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()))?;
            visited += 1;
            line.set_fraction(aggregate.fraction, format!("{visited} aggregates, at {}", aggregate.name));
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
