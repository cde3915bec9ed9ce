//! `daybook republish`: the messages of a window of time, sent again from the table.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroU32;

use clap::Args;
use daybook_decider::{Model, Registry};
use daybook_event_store::{EventStore, StoreError};
use daybook_stream_relay::{Resend, ResendOutcome};
use daybook_table::{AggregateKey, OutboxItem, keys};
use jiff::Timestamp;
use serde_json::json;
use ulid::Ulid;

use crate::operator::progress::Progress;
use crate::operator::selection::{AggregateName, model, models};
use crate::operator::target::{BusOptions, TO_FIND, TableOptions};
use crate::operator::unsent::Unsent;
use crate::operator::{Exit, OperateError, Operator};

/// Rows that are sent together, at most.
const AT_ONCE: usize = 500;

/// Bytes of details that are sent together, about.
const BYTES_AT_ONCE: usize = 8 * 1024 * 1024;

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The beginning, included: 2026-11-20T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub from: Timestamp,
    /// The end, not included.
    #[arg(long, value_name = "TIME")]
    pub to: Timestamp,
    /// Only of aggregates of this type; several times for several.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// Only of this aggregate; several times for several.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with = "types")]
    pub aggregates: Vec<AggregateName>,
    /// A name that events were stored under and that the code no longer knows; several times for several.
    #[arg(long = "event-type", value_name = "NAME")]
    pub event_types: Vec<String>,
    /// Go on behind this aggregate, with which an earlier run ended.
    #[arg(long, value_name = "TYPE/ID")]
    pub after: Option<AggregateName>,
    /// Do it.
    #[arg(long)]
    pub yes: bool,
    /// Messages a second at most.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
    /// Which table.
    #[command(flatten)]
    pub table: TableOptions,
    /// Which bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

/// The events of an aggregate within the window, each with the count of messages that it tells.
type Events = BTreeMap<u64, Option<u64>>;

/// What became of it all.
#[derive(Default)]
struct Tally {
    events: usize,
    rows: usize,
    gone: u64,
    sent: usize,
    refused: usize,
    unreadable: usize,
    /// The last aggregate with which all is done, and the one after it.
    settled: Option<AggregateKey>,
    current: Option<AggregateKey>,
    unsent: Unsent,
}

/// Sends them, or says what it would send.
///
/// # Errors
///
/// When the table cannot be read, or the bus takes nothing more.
pub async fn run(options: Options, operator: &mut Operator) -> Result<Exit, OperateError> {
    let store = options.table.connect(&operator.environment, TO_FIND).await?;
    let resend = options.bus.connect(&operator.environment, options.rate).await?;
    let names = event_names(&options, &operator.registry)?;
    let window = window(options.from, options.to)?;
    let found = find(&options, &store, &names, window, operator).await?;

    let mut tally = Tally { events: found.values().map(Events::len).sum(), ..Tally::default() };
    let progress = Progress::of(found.len());
    let mut sending = Sending { options: &options, operator, resend, progress, waiting: Vec::new(), bytes: 0 };
    let (mut read, mut unread) = (None, None);
    for (key, events) in found {
        if sending.operator.interrupt.is_set() || tally.unsent.any() {
            break;
        }
        match sending.aggregate(&store, &key, &events, &mut tally).await {
            Ok(()) => read = Some(key),
            Err(OperateError::Store { source, .. }) => {
                unread = Some(source);
                break;
            }
            Err(other) => return Err(other),
        }
    }
    sending.flush(&mut tally).await?;
    drop(sending);
    if unread.is_some() && !tally.unsent.any() {
        tally.settled = read;
    }
    tell(&options, operator, tally, unread)
}

/// The names of all events that may have announced something.
fn event_names<'a>(options: &'a Options, registry: &'a Registry) -> Result<Vec<&'a str>, OperateError> {
    let models: Vec<&dyn Model> = if options.aggregates.is_empty() {
        models(registry, &options.types)?
    } else {
        let mut models = Vec::new();
        for AggregateName(key) in &options.aggregates {
            let model = model(registry, &key.aggregate_type)?;
            if !models.iter().any(|known: &&dyn Model| known.type_name() == model.type_name()) {
                models.push(model);
            }
        }
        models
    };
    let mut names: Vec<&str> = models.iter().flat_map(|model| model.stored_events()).map(|(name, _)| name).collect();
    names.extend(options.event_types.iter().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The ids of events that were decided within the window.
fn window(from: Timestamp, to: Timestamp) -> Result<(Ulid, Ulid), OperateError> {
    let milliseconds = |at: Timestamp| u64::try_from(at.as_millisecond()).ok();
    match (milliseconds(from), milliseconds(to)) {
        (Some(first), Some(end)) if first < end => {
            Ok((Ulid::from_parts(first, 0), Ulid::from_parts(end - 1, u128::MAX)))
        }
        _ => Err(OperateError::Usage("--from must be before --to, and both after 1970".to_owned())),
    }
}

/// The events of the window, by aggregate and number.
async fn find(
    options: &Options,
    store: &EventStore,
    names: &[&str],
    (first, last): (Ulid, Ulid),
    operator: &Operator,
) -> Result<BTreeMap<AggregateKey, Events>, OperateError> {
    let wanted = |key: &AggregateKey| {
        let named = options.aggregates.is_empty() || options.aggregates.iter().any(|name| name.0 == *key);
        let typed = options.types.is_empty() || options.types.contains(&key.aggregate_type);
        named && typed && options.after.as_ref().is_none_or(|after| *key > after.0)
    };
    let mut found: BTreeMap<AggregateKey, Events> = BTreeMap::new();
    let progress = Progress::spinner();
    let mut events = 0;
    for partition in store.admin().index_partitions(names) {
        let mut from = Some(first);
        while let Some(first) = from.filter(|_| !operator.interrupt.is_set()) {
            let page = store.admin().index(&partition, first, last).await.map_err(cannot_read)?;
            for entry in page.items.into_iter().filter(|entry| wanted(&entry.aggregate)) {
                events += 1;
                found.entry(entry.aggregate).or_default().insert(entry.seq_num, entry.message_seq);
            }
            progress.doing(format!("{events} events of {} aggregates, at {partition}", found.len()));
            from = page.next.and_then(|last| last.increment().ok());
        }
    }
    Ok(found)
}

struct Sending<'a> {
    options: &'a Options,
    operator: &'a mut Operator,
    resend: Resend,
    progress: Progress,
    /// Rows to be sent, aggregate after aggregate.
    waiting: Vec<(AggregateKey, OutboxItem)>,
    bytes: usize,
}

impl Sending<'_> {
    /// Reads the rows of an aggregate, and sends them as soon as there are enough.
    async fn aggregate(
        &mut self,
        store: &EventStore,
        key: &AggregateKey,
        events: &Events,
        tally: &mut Tally,
    ) -> Result<(), OperateError> {
        let (Some((&first, _)), Some((&last, _))) = (events.first_key_value(), events.last_key_value()) else {
            return Ok(());
        };
        let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
        let mut announced_before = None;
        let mut after = None;
        // Those of the event at the end of a page, of which the next page may hold more.
        let mut held = Vec::new();
        loop {
            let page = store.admin().outbox(key, first, last, after).await.map_err(cannot_read)?;
            for row in page.unreadable {
                match event_of(&row.sk) {
                    Some(seq_num) if !events.contains_key(&seq_num) => continue,
                    Some(seq_num) => *seen.entry(seq_num).or_default() += 1,
                    None => {}
                }
                tally.unreadable += 1;
                let line = format!("unreadable {key} {}: {}", row.sk, row.reason);
                self.say(line, json!({"aggregate": key.to_string(), "item": row.sk, "why": row.reason}), "unreadable")?;
            }
            after = page.next;
            let cut = after.as_deref().and_then(event_of);
            let mut rows: Vec<_> = std::mem::take(&mut held);
            rows.extend(page.rows.into_iter().filter(|row| events.contains_key(&row.seq_num)));
            // By number: the sort keys of more than ten messages of an event do not sort like that.
            rows.sort_by_key(|row| row.message_seq);
            (held, rows) = rows.into_iter().partition(|row| cut.is_some() && event_of(&row.sk) == cut);
            for row in rows {
                if announced_before.is_none() && row.seq_num == first {
                    announced_before = index(&row).and_then(|index| row.message_seq.checked_sub(index + 1));
                }
                *seen.entry(row.seq_num).or_default() += 1;
                tally.rows += 1;
                self.bytes += row.detail.len();
                self.waiting.push((key.clone(), row));
                if self.waiting.len() >= AT_ONCE || self.bytes >= BYTES_AT_ONCE {
                    self.flush(tally).await?;
                    // What comes after these would overtake them.
                    if tally.unsent.any() {
                        return Ok(());
                    }
                }
            }
            if after.is_none() || self.operator.interrupt.is_set() {
                break;
            }
        }
        // Where it broke off, what was not looked for is not gone.
        if after.is_none() {
            self.gone(store, key, events, &seen, announced_before, tally).await?;
        }
        self.progress.done(1);
        Ok(())
    }

    /// The messages that the events announced and whose rows are not there.
    async fn gone(
        &mut self,
        store: &EventStore,
        key: &AggregateKey,
        events: &Events,
        seen: &BTreeMap<u64, u64>,
        mut announced_before: Option<u64>,
        tally: &mut Tally,
    ) -> Result<(), OperateError> {
        let mut expected = None;
        for (&seq_num, &up_to) in events {
            if expected != Some(seq_num) && announced_before.is_none() {
                announced_before = store.admin().messages_up_to(key, seq_num - 1).await.map_err(cannot_read)?;
            }
            if let (Some(before), Some(up_to)) = (announced_before, up_to) {
                let announced = up_to.saturating_sub(before);
                let gone = announced.saturating_sub(seen.get(&seq_num).copied().unwrap_or_default());
                if gone > 0 {
                    tally.gone += gone;
                    let line = format!("gone {key} event {seq_num}: {gone} of {announced} messages");
                    let json =
                        json!({"aggregate": key.to_string(), "seqNum": seq_num, "messages": gone, "of": announced});
                    self.say(line, json, "gone")?;
                }
            }
            // What is next follows on this, unless the window has a hole there.
            expected = Some(seq_num + 1);
            announced_before = up_to.filter(|_| events.contains_key(&(seq_num + 1)));
        }
        Ok(())
    }

    /// Sends what is waiting, or says that it would.
    async fn flush(&mut self, tally: &mut Tally) -> Result<(), OperateError> {
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        if !self.options.yes {
            for (key, row) in &waiting {
                self.row("would-send", key, row, None)?;
            }
            return Ok(());
        }
        let interrupt = self.operator.interrupt.clone();
        if interrupt.is_set() {
            waiting.iter().for_each(|_| tally.unsent.add(None));
            return Ok(());
        }
        let rows = waiting.iter().map(|(_, row)| row.clone()).collect();
        let outcomes = self.resend.send(rows, interrupt.wait()).await;
        for ((key, row), outcome) in waiting.iter().zip(outcomes) {
            if !tally.unsent.any() && tally.current.as_ref() != Some(key) {
                tally.settled = tally.current.replace(key.clone());
            }
            match outcome {
                ResendOutcome::Sent => {
                    tally.sent += 1;
                    self.row("sent", key, row, None)?;
                }
                ResendOutcome::Refused(refusal) => {
                    tally.refused += 1;
                    self.row("refused", key, row, Some(refusal.to_string()))?;
                }
                ResendOutcome::Unsent(refusal) => tally.unsent.add(refusal),
            }
        }
        Ok(())
    }

    fn row(
        &mut self,
        outcome: &str,
        key: &AggregateKey,
        row: &OutboxItem,
        why: Option<String>,
    ) -> Result<(), OperateError> {
        let reason = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let line = format!("{outcome} {key} {} {} {}{reason}", row.message_seq, row.message_type, row.message_id);
        let json = json!({
            "aggregate": key.to_string(), "messageSeq": row.message_seq, "messageType": row.message_type,
            "messageId": row.message_id, "why": why,
        });
        self.say(line, json, outcome)
    }

    fn say(&mut self, line: String, mut json: serde_json::Value, outcome: &str) -> Result<(), OperateError> {
        let line = if self.options.json {
            json["outcome"] = outcome.into();
            json.to_string()
        } else {
            line
        };
        let out = &mut self.operator.out;
        Ok(self.progress.print(|| writeln!(out, "{line}"))?)
    }
}

/// The summary, and how it ended.
fn tell(
    options: &Options,
    operator: &mut Operator,
    tally: Tally,
    unread: Option<StoreError>,
) -> Result<Exit, OperateError> {
    let Tally { events, rows, gone, sent, refused, unreadable, settled, unsent, .. } = tally;
    let text = if options.yes {
        format!(
            "{events} events in the window: {sent} messages sent, {refused} refused, {unreadable} unreadable, {gone} gone"
        )
    } else {
        format!(
            "{events} events in the window: {rows} messages would be sent, {unreadable} unreadable, {gone} gone; nothing was \
             done, --yes does it"
        )
    };
    let summary = json!({
        "events": events, "messages": rows, "sent": sent, "refused": refused, "unreadable": unreadable, "gone": gone,
    });
    let next = match settled {
        Some(key) if options.yes => format!("go on with --after {key}"),
        _ => "run it again".to_owned(),
    };
    let interrupted = operator.interrupt.is_set();
    let go_on = (interrupted || unsent.any() || unread.is_some()).then_some(next.as_str());
    operator.sum_up(options.json, &text, summary, go_on)?;
    if let Some(source) = unread {
        return Err(OperateError::Store { doing: format!("ended before the end, {next}"), source });
    }
    if interrupted {
        return Ok(Exit::Interrupted);
    }
    if let Some(error) = unsent.into_error(next) {
        return Err(error);
    }
    Ok(if refused == 0 && unreadable == 0 && gone == 0 { Exit::Clean } else { Exit::Findings })
}

/// The number of the event that an outbox row is of, by its sort key.
fn event_of(sk: &str) -> Option<u64> {
    sk.strip_prefix(keys::OUTBOX_PREFIX)?.split_once('#')?.0.parse().ok()
}

/// The message's place among those of its event.
fn index(row: &OutboxItem) -> Option<u64> {
    row.sk.rsplit_once('#')?.1.parse().ok()
}

fn cannot_read(source: StoreError) -> OperateError {
    OperateError::Store { doing: "the events of the window cannot be read".to_owned(), source }
}
