//! A walk over a listing: several aggregates are visited concurrently, and reported in the order of the listing.
//!
//! Invariant: after Ctrl-C no visit begins, those under way are waited for, and the cursor is that of the last
//! reported aggregate.

use std::io::Write;
use std::num::NonZeroUsize;
use std::pin::pin;

use daybook_decider::Model;
use daybook_event_store::StoreError;
use futures_util::{StreamExt, stream};

use super::context::OperatorContext;
use super::error::OperatorError;
use super::listing::{Cursor, ListedAggregate, Listing};
use super::progress::ProgressLine;

/// Which aggregates are visited, and how many concurrently.
pub(crate) struct AggregateWalk<'a> {
    pub(crate) listing: Listing<'a>,
    /// The cursor after which the listing begins.
    pub(crate) after: Option<Cursor>,
    pub(crate) concurrency: NonZeroUsize,
}

impl AggregateWalk<'_> {
    /// Visits each aggregate, and prints each line that `report` returns for the visit's result. If Ctrl-C ended the walk,
    /// returns how to go on.
    ///
    /// `visit` gets the model of the aggregate's type, if there is one, and returns `None` if Ctrl-C came before it began.
    pub(crate) async fn run<T, Lines: IntoIterator<Item = String>>(
        mut self,
        context: &mut OperatorContext,
        visit: impl AsyncFn(&ListedAggregate, Option<&dyn Model>) -> Option<Result<T, StoreError>>,
        mut report: impl FnMut(&ListedAggregate, T) -> Lines,
    ) -> Result<Option<String>, OperatorError> {
        let OperatorContext { registry, out, interrupt, .. } = context;
        let progress = match self.listing {
            Listing::Indexed(_) => ProgressLine::of_fraction(),
            Listing::Named(_) | Listing::Scanned(_) => ProgressLine::spinner(),
        };
        let (mut cursor, mut visited) = (self.after, 0_u64);
        let failed = |cursor: &Option<Cursor>, source| {
            let doing = format!("stopped early, {}", Cursor::how_to_go_on(cursor.as_ref()));
            OperatorError::Store { doing, source }
        };
        while let Some(page) = self.listing.next_page().await.map_err(|source| failed(&cursor, source))? {
            let visits = stream::iter(page).map(async |aggregate| {
                let model = aggregate.key.as_ref().and_then(|key| registry.get(&key.aggregate_type));
                let result = visit(&aggregate, model).await;
                (aggregate, result)
            });
            let mut visits = pin!(visits.buffered(self.concurrency.get()));
            while let Some((aggregate, result)) = visits.next().await {
                // Results arrive in the order of the listing, so no later visit has begun either.
                let Some(result) = result else { break };
                let lines = report(&aggregate, result.map_err(|source| failed(&cursor, source))?);
                progress.suspend(|| lines.into_iter().try_for_each(|line| writeln!(out, "{line}")))?;
                visited += 1;
                progress.set_fraction(aggregate.fraction, format!("{visited} aggregates, at {}", aggregate.name));
                cursor = aggregate.cursor.or(cursor);
            }
            if interrupt.is_set() {
                break;
            }
        }
        Ok(interrupt.is_set().then(|| Cursor::how_to_go_on(cursor.as_ref())))
    }
}
