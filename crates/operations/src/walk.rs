//! A walk over a listing: several aggregates are visited concurrently, and reported in the order of the listing.
//!
//! Invariants:
//! - After Ctrl-C no visit begins, those under way are waited for, and the cursor is that of the last reported aggregate.
//! - Only the aggregates of one page of the listing, or of each segment of a scan, and the results of the visits under way are
//!   in memory.

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;

use clap::Args;
use daybook_decider::{AggregateKey, Model};
use daybook_event_store::{EventStore, StoreError};
use futures_util::StreamExt;

use crate::error::OperatorError;
use crate::selection::{ListedAggregate, Listing, Selection, scanned};
use crate::stack::Stack;

#[derive(Clone, Debug, Args)]
pub struct WalkOptions {
    #[command(flatten)]
    pub selection: Selection,
    /// Maximum aggregates per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    pub concurrency: NonZeroUsize,
}

/// Something that is wrong with an aggregate, or with a row that belongs to none.
#[derive(Debug)]
pub struct WalkFinding {
    /// A word, such as `unreadable`.
    pub kind: &'static str,
    /// The aggregate, or the partition key of the row.
    pub name: String,
    pub reason: String,
}

#[derive(Debug)]
pub struct Walked<C> {
    pub counts: C,
    pub how_to_go_on: Option<String>,
}

/// A walk whose selection is checked.
pub(crate) struct Walk<'a> {
    stack: &'a Stack,
    concurrency: NonZeroUsize,
    listing: Listing<'a>,
}

impl WalkOptions {
    /// The same options with these aggregates; all of the selection if there are none.
    pub fn of(mut self, aggregates: Vec<AggregateKey>) -> Self {
        self.selection.aggregates = aggregates;
        self
    }

    /// Sets up a walk over each selected aggregate, or with `scan` each aggregate of the table.
    pub(crate) async fn walk<'a>(
        &self,
        stack: &'a Stack,
        store: &'a EventStore,
        scan: bool,
    ) -> Result<Walk<'a>, OperatorError> {
        let Self { selection, concurrency, .. } = self;
        let listing = selection.list(&stack.registry, &stack.interrupt, store, selection.after.as_ref())?;
        selection.check(store, &stack.registry).await?;
        let listing = if scan { scanned(store, &stack.interrupt) } else { listing };
        Ok(Walk { stack, concurrency: *concurrency, listing })
    }
}

impl Walk<'_> {
    /// Visits the aggregates, and reports the result of each visit.
    ///
    /// `visit` gets the model of the aggregate's type, if there is one, and returns `None` if the interrupt came before it
    /// began.
    pub(crate) async fn run<T, C: Default>(
        self,
        visit: impl AsyncFn(&ListedAggregate, Option<&dyn Model>) -> Option<Result<T, StoreError>>,
        mut report: impl FnMut(&mut C, &ListedAggregate, T) -> io::Result<()>,
    ) -> Result<Walked<C>, OperatorError> {
        let report = async |counts: &mut C, listed: &ListedAggregate, result| Ok(report(counts, listed, result)?);
        match self.run_until_failure(visit, report).await? {
            (Walked { how_to_go_on: Some(next), .. }, Some(error)) => {
                Err(OperatorError::store(&format!("stopped early, {next}"))(error))
            }
            (walked, _) => Ok(walked),
        }
    }

    /// The same with a `report` that reads the table too. Returns why the walk stopped early, if the table was the reason.
    pub(crate) async fn run_until_failure<T, C: Default>(
        self,
        visit: impl AsyncFn(&ListedAggregate, Option<&dyn Model>) -> Option<Result<T, StoreError>>,
        mut report: impl AsyncFnMut(&mut C, &ListedAggregate, T) -> Result<(), OperatorError>,
    ) -> Result<(Walked<C>, Option<StoreError>), OperatorError> {
        let Stack { registry, interrupt, progress: show, .. } = self.stack;
        let visits = self.listing.map(async |listed| {
            let aggregate = listed?;
            let model = aggregate.key.as_ref().and_then(|key| registry.get(&key.aggregate_type));
            let result = visit(&aggregate, model).await.transpose()?;
            Ok((aggregate, result))
        });
        let mut visits = pin!(visits.buffered(self.concurrency.get()));
        let (mut counts, mut visited, mut cursor, mut failure) = (C::default(), 0_u64, None, None);
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
            match report(&mut counts, &aggregate, result).await {
                Err(OperatorError::Store { source, .. }) => {
                    failure = Some(source);
                    break;
                }
                reported => reported?,
            }
            visited += 1;
            show(aggregate.fraction, format!("{visited} aggregates, at {}", aggregate.name));
            cursor = aggregate.cursor.or(cursor);
        }
        let is_done = failure.is_none() && !interrupt.is_cancelled();
        let next = || cursor.map_or("run it again".to_owned(), |cursor| format!("go on with --after '{cursor}'"));
        Ok((Walked { counts, how_to_go_on: (!is_done).then(next) }, failure))
    }
}
