//! A walk over aggregates: some are looked at side by side, and each is told of in the order of the listing.
//!
//! Invariant: after Ctrl-C nothing more is begun, what is under way is waited for, and the cursor is behind the last
//! aggregate that was told of.

use std::io::Write;
use std::num::NonZeroUsize;
use std::pin::pin;

use daybook_decider::Model;
use daybook_event_store::StoreError;
use futures_util::{StreamExt, stream};

use super::progress::Progress;
use super::selection::{Cursor, Found, Listing};
use super::{OperateError, Operator};

/// Which aggregates, and how.
pub(crate) struct Walk<'a> {
    pub(crate) listing: Listing<'a>,
    /// Where the listing begins.
    pub(crate) after: Option<Cursor>,
    /// So many side by side.
    pub(crate) concurrency: NonZeroUsize,
}

impl Walk<'_> {
    /// Looks at each aggregate, and prints what `tell` makes of it, a line each. Answers how to go on if Ctrl-C ended it.
    ///
    /// `look` gets the model of the aggregate's type, if there is one, and answers nothing if it did not begin before
    /// Ctrl-C.
    pub(crate) async fn run<T, Lines: IntoIterator<Item = String>>(
        mut self,
        operator: &mut Operator,
        look: impl AsyncFn(&Found, Option<&dyn Model>) -> Option<Result<T, StoreError>>,
        mut tell: impl FnMut(&Found, T) -> Lines,
    ) -> Result<Option<String>, OperateError> {
        let Operator { registry, out, interrupt, .. } = operator;
        let progress = match self.listing {
            Listing::Indexed(_) => Progress::of_part(),
            Listing::Named(_) | Listing::Scanned { .. } => Progress::spinner(),
        };
        let (mut cursor, mut seen) = (self.after, 0_u64);
        let stopped = |cursor: &Option<Cursor>, source| {
            let doing = format!("ended before the end, {}", Cursor::go_on(cursor.as_ref()));
            OperateError::Store { doing, source }
        };
        while let Some(page) = self.listing.next_page().await.map_err(|source| stopped(&cursor, source))? {
            let looks = stream::iter(page).map(async |found| {
                let model = found.key.as_ref().and_then(|key| registry.get(&key.aggregate_type));
                let looked = look(&found, model).await;
                (found, looked)
            });
            let mut looks = pin!(looks.buffered(self.concurrency.get()));
            while let Some((found, looked)) = looks.next().await {
                // They come in order, so whatever comes after this is left too.
                let Some(looked) = looked else { break };
                let lines = tell(&found, looked.map_err(|source| stopped(&cursor, source))?);
                progress.print(|| lines.into_iter().try_for_each(|line| writeln!(out, "{line}")))?;
                seen += 1;
                progress.at(found.part, format!("{seen} aggregates, at {}", found.name));
                cursor = found.cursor.or(cursor);
            }
            if interrupt.is_set() {
                break;
            }
        }
        Ok(interrupt.is_set().then(|| Cursor::go_on(cursor.as_ref())))
    }
}
