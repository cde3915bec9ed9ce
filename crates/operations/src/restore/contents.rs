//! The steps that read the rows of the tables, and send messages again.

use std::num::NonZeroUsize;

use daybook_decider::Model;
use jiff::{SignedDuration, Timestamp};
use ulid::Ulid;

use super::{Restore, Stop, interrupted};
use crate::error::OperatorError;
use crate::moment::Moment;
use crate::republish::{RepublishCounts, RepublishOptions, Window, republish};
use crate::selection::Selection;
use crate::stack::SETTINGS_TO_REPUBLISH;
use crate::verify::verify;
use crate::walk::WalkOptions;

/// Maximum difference of two clocks: an event of 12:00:05 may have been stored before a restore to 12:00:00.
const CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(10);

const PAGE: usize = 100;
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not 0");

impl Restore<'_> {
    pub(super) async fn verify(&mut self, epoch: u32) -> Result<(), Stop> {
        let (into, rate) = (self.options.into.clone(), self.options.rate);
        // The functions of the stack may not be allowed to use another key.
        let (table, key) = (self.table(&into).await?.unwrap_or_default(), self.description.parameter("KmsKeyArn"));
        let used = table["SSEDescription"]["KMSMasterKeyArn"].as_str().unwrap_or("a key of AWS");
        if !key.is_empty() && key != used {
            return Err(Stop::Here(format!("{into} is encrypted with {used}, not with KmsKeyArn of the stack, {key}")));
        }
        let options = WalkOptions { selection: Selection::default(), rate, concurrency: CONCURRENCY };
        let mut stack = self.stack_over(&into);
        // The table may have messages of a stack with a higher epoch than this one.
        stack.environment = stack.environment.with("EPOCH", (epoch - 1).to_string());
        let verified = verify(&stack, &options, true, |aggregate, finding| {
            self.report("found", &format!("{aggregate} {} {}: {}", finding.item, finding.kind, finding.detail))
        });
        let verified = verified.await?;
        match (verified.how_to_go_on, verified.counts.findings) {
            (Some(_), _) => Err(interrupted()),
            (None, 0) => Ok(()),
            (None, found) => Err(Stop::Here(format!("{found} findings; docs/restore.md, \"Incomplete appends\""))),
        }
    }

    /// Reports the events of the old table around and after the time of the restore that the new one does not contain.
    pub(super) async fn list_lost_events(&mut self) -> Result<(), Stop> {
        if self.table(&self.source).await?.is_none() {
            return Ok(self.report("note", &format!("{} does not exist, so its events are not listed", self.source))?);
        }
        let store = async |table: &str| self.stack_over(table).store(SETTINGS_TO_REPUBLISH).await;
        let (old, new, registry) =
            (store(&self.source).await?, store(&self.options.into).await?, self.stack.registry.clone());
        let types: Vec<_> = registry.iter().flat_map(Model::stored_events).map(|(name, _)| name).collect();
        let since = self.options.at.unwrap_or_default() - CLOCK_DIFFERENCE;
        let mut after = Ulid::from_parts(u64::try_from(since.as_millisecond()).unwrap_or_default(), 0);
        let settled_up_to = old.settled_up_to(Timestamp::now());
        let failed = OperatorError::store("cannot compare the tables");
        loop {
            let page = old.feed(&types, Some(after), PAGE, settled_up_to).await.map_err(&failed)?;
            for (aggregate, event) in page.items.iter().map(|found| (&found.aggregate, &found.event)) {
                let now = new.events(aggregate, event.seq_num - 1, 1).await.map_err(&failed)?;
                if now.items.first().is_none_or(|now| now.event_id != event.event_id) {
                    let (number, name, id) = (event.seq_num, &event.event_type, event.event_id);
                    self.report("lost", &format!("{aggregate} event {number} {name} {id} of {}", event.occurred_at))?;
                }
            }
            for row in &page.unreadable {
                self.report("found", &format!("{} {}: {}", row.pk, row.sk, row.reason))?;
            }
            match page.more {
                true if self.stack.interrupt.is_cancelled() => return Err(interrupted()),
                true => after = page.cursor,
                false => return Ok(()),
            }
        }
    }

    pub(super) async fn republish(&mut self) -> Result<(), Stop> {
        let at = self.options.at.unwrap_or_default();
        let from = self.options.republish_from.unwrap_or(at - SignedDuration::from_hours(1));
        let (to, rate) = (at + CLOCK_DIFFERENCE, self.options.rate);
        let window = Window {
            from: Moment::At(from),
            to: Moment::At(to),
            types: Vec::new(),
            aggregates: Vec::new(),
            message_types: Vec::new(),
            event_types: Vec::new(),
        };
        let options = RepublishOptions { window, yes: true, rate, concurrency: CONCURRENCY };
        let republished = republish(&self.stack, &options, |_| Ok(())).await?;
        let RepublishCounts { sent, rejected, unreadable, gone, .. } = republished.counts;
        let listed = format!("`daybook republish --from {from} --to {to}` lists them");
        let lost = format!("{rejected} rejected by the bus, {unreadable} unreadable, {gone} no longer exist");
        self.report("note", &format!("{sent} messages sent, {lost}; {listed}"))?;
        match (republished.failure, republished.how_to_go_on) {
            (Some(failure), _) => Err(failure.into()),
            (None, Some(_)) => Err(interrupted()),
            (None, None) => Ok(()),
        }
    }
}
