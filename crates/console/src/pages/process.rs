//! *A process beside its sources*: its events and those of the aggregates that it follows or sends commands to, on one time line.

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::Arc;

use axum::extract::State;
use daybook_admin::{AdminCalls, FollowProgress, Outcome};
use daybook_decider::{CommandRejection, Model, RecordedEvent, personal};
use daybook_event_store::{EventStore, Page as EventPage, StoreError, StoredDeadline};
use daybook_table::{AggregateKey, DeadlineState, keys};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use maud::{Markup, html};

use super::aggregate::{PAGE, aggregate};
use super::correlation::arrow;
use super::{deadlines, stream};
use crate::console::Console;
use crate::frame::{Failure, Page, table};
use crate::request::PagePath;
use crate::{json, paths, time};

/// Maximum other aggregates.
const OTHERS: usize = 6;

/// Maximum dispatches to each of them, and maximum deadlines that have fired.
const OUTCOMES: i32 = 100;

/// Maximum bytes of an event's data.
const MAX_LINE: usize = 120;

struct Column {
    key: AggregateKey,
    events: EventPage<RecordedEvent, u64>,
}

/// A dispatch that a shown event has set, and that was executed.
struct Sent {
    name: String,
    /// The number of the event that has set it.
    number: u64,
    /// The column of its target.
    to: usize,
    outcome: Outcome,
}

struct Beside<'a> {
    model: &'a dyn Model,
    /// The process, and then the others.
    columns: Vec<Column>,
    /// Whether there are more others.
    more: bool,
    /// The deadlines and dispatches that its state declares.
    declared: Vec<StoredDeadline>,
    sent: Vec<Sent>,
    /// The outcomes of input and of answers, by their keys.
    outcomes: BTreeMap<String, Outcome>,
    fired: Vec<Outcome>,
    followed: BTreeMap<AggregateKey, FollowProgress>,
    now: Timestamp,
    /// The column and the number of each event, by its id.
    events: BTreeMap<String, (usize, u64)>,
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PagePath(path): PagePath<(String, String)>,
) -> Result<Page, Failure> {
    let (model, key) = aggregate(&console, path)?;
    if model.sources().is_empty() {
        return Err(Failure::missing(format!("{} is no process: it has no sources.", key.aggregate_type)));
    }
    let beside = Beside::read(&console.store, model, &key).await?;
    if beside.columns[0].events.items.is_empty() && beside.columns[0].events.unreadable.is_empty() {
        return Err(Failure::missing(format!("There is no process {key}.")));
    }
    let content = html! {
        div.heading {
            h1 { a href=(paths::aggregate(&key)) { (key) } " beside its sources" }
            p.facts {
                "The latest " (PAGE) " events of the process, and of each aggregate whose events are its input, or that it sends commands to."
            }
        }
        (beside.time_line())
        (beside.left_out())
        (beside.open())
    };
    Ok(Page::new(format!("{key} beside its sources"), "Aggregates", content))
}

async fn latest(
    store: &EventStore,
    key: &AggregateKey,
    version: u64,
) -> Result<EventPage<RecordedEvent, u64>, StoreError> {
    let before = version.saturating_sub(PAGE);
    match usize::try_from(version - before) {
        Ok(count @ 1..) => store.events(key, before, count).await,
        _ => Ok(EventPage::empty(0)),
    }
}

impl<'a> Beside<'a> {
    async fn read(store: &EventStore, model: &'a dyn Model, key: &AggregateKey) -> Result<Self, StoreError> {
        let admin = store.admin();
        let (progress, declared, (sources, more), fired) = tokio::try_join!(
            admin.progress(key),
            store.deadlines_of(key),
            admin.sources_of(key, OTHERS),
            admin.outcomes_with(key, keys::DEADLINE_KEYS, OUTCOMES),
        )?;
        let declared = declared.items;
        let own = latest(store, key, progress.version).await?;
        let mut others = others(key, &declared, sources, targets(model, &own.items));
        let more = more || others.len() > OTHERS;
        others.truncate(OTHERS);
        let (of_others, dispatches) = (others.iter().cloned().collect(), keys::dispatch_keys(key));
        let read = others.iter().map(|other| admin.outcomes_with(other, &dispatches, OUTCOMES));
        let (followed, sent) = tokio::try_join!(admin.followed(model.type_name(), &of_others), try_join_all(read))?;
        let version = |other| followed.get(other).map_or(0, |progress: &FollowProgress| progress.version);
        let events = try_join_all(others.iter().map(|other| latest(store, other, version(other)))).await?;
        let mut of_others: Vec<_> = others.into_iter().zip(events).zip(sent).collect();
        // Those without events, which get the command of a dispatch that is pending, are the last ones.
        let begins = |events: &EventPage<RecordedEvent, u64>| events.items.first().map(|event| event.occurred_at);
        of_others.sort_by_key(|((_, events), _)| begins(events).unwrap_or(Timestamp::MAX));

        let first = own.items.first().map_or(0, |event| event.seq_num);
        let mut beside = Self {
            model,
            columns: vec![Column { key: key.clone(), events: own }],
            more,
            declared,
            sent: Vec::new(),
            outcomes: BTreeMap::new(),
            fired,
            followed,
            now: store.now(),
            events: BTreeMap::new(),
        };
        for ((key, events), outcomes) in of_others {
            let to = beside.columns.len();
            let sent = |outcome: Outcome| {
                let (name, number) = outcome.key.strip_prefix(&dispatches)?.split_once(' ')?;
                Some(Sent { name: name.to_owned(), number: number.parse().ok()?, to, outcome })
            };
            beside.sent.extend(outcomes.into_iter().filter_map(sent).filter(|sent| sent.number >= first));
            beside.columns.push(Column { key, events });
        }
        let events = beside.steps().map(|(at, event)| (event.event_id.to_string(), (at, event.seq_num)));
        beside.events = events.collect();
        let input = beside.steps().filter(|&(at, event)| beside.is_input(at, event));
        let input = input.map(|(at, event)| keys::input_key(&beside.columns[at].key, event.seq_num));
        let answers = beside.sent.iter().map(|sent| keys::answer_key(&sent.name, sent.number));
        beside.outcomes = admin.outcomes(key, input.chain(answers).collect()).await?;
        Ok(beside)
    }

    /// All events, each with its column.
    fn steps(&self) -> impl Iterator<Item = (usize, &RecordedEvent)> {
        let columns = self.columns.iter().enumerate();
        columns.flat_map(|(at, column)| column.events.items.iter().map(move |event| (at, event)))
    }

    fn key(&self) -> &AggregateKey {
        &self.columns[0].key
    }

    fn is_input(&self, at: usize, event: &RecordedEvent) -> bool {
        let of = &self.columns[at].key;
        let source = self.model.source(&of.aggregate_type).filter(|_| at > 0);
        let input = source.and_then(|source| source.input(&of.id, event).ok().flatten());
        input.is_some_and(|input| input.process == *self.key())
    }

    /// The column of the cause of an event, and its name.
    fn cause(&self, at: usize, event: &RecordedEvent) -> Option<(usize, String)> {
        let &(from, number) = self.events.get(event.meta.causation_id.as_deref()?)?;
        let sent = self.sent.iter().filter(|sent| sent.number == number);
        let mut causes = Vec::new();
        match (from, at) {
            (0, 0) => {
                let fired = self.fired.iter().filter_map(|outcome| Some((outcome, deadline_of(outcome, number)?)));
                causes.extend(fired.map(|(outcome, name)| (outcome.version, 0, format!("by deadline {name}"))));
                let answers = sent.filter_map(|sent| Some((sent, self.answer(sent)?)));
                causes.extend(
                    answers.map(|(sent, answer)| (answer.version, sent.to, format!("by the answer to {}", sent.name))),
                );
            }
            (0, _) => {
                let to_this = sent.filter(|sent| sent.to == at);
                causes.extend(to_this.map(|sent| (sent.outcome.version, 0, format!("by dispatch {}", sent.name))));
            }
            (_, 0) if self.outcomes.contains_key(&keys::input_key(&self.columns[from].key, number)) => {
                return Some((from, format!("input {} {number}", self.columns[from].key)));
            }
            _ => {}
        }
        // The outcome that has this event has the next version. Only the outcome of a deadline always has events.
        let causes = causes.into_iter().filter(|(version, ..)| *version >= event.seq_num);
        let first = causes.min_by_key(|(version, ..)| *version).map(|(_, from, name)| (from, name));
        first.or_else(|| Some((from, format!("after {} {number}", self.columns[from].key))))
    }

    fn answer(&self, sent: &Sent) -> Option<&Outcome> {
        self.outcomes.get(&keys::answer_key(&sent.name, sent.number))
    }

    /// What became of an event as the input of the process, unless that is an event of the process.
    fn fate(&self, at: usize, event: &RecordedEvent) -> Option<Markup> {
        let key = self.is_input(at, event).then(|| keys::input_key(&self.columns[at].key, event.seq_num))?;
        let source = &self.columns[at].key;
        let own = &self.columns[0].events.items;
        let id = event.event_id.to_string();
        let Some(outcome) = self.outcomes.get(&key) else {
            let position = &self.followed.get(source)?.position;
            let suspension = position.suspension(&self.key().id);
            let handled = suspension.map_or(position.seq_num, |(_, suspension)| suspension.seq_num);
            let is_suspended = suspension.is_some_and(|(_, suspension)| !suspension.is_resumed);
            return (event.seq_num > handled).then(|| match event.seq_num == handled + 1 && is_suspended {
                true => html! { span.bad { "suspended" } },
                false => html! { span.warn { "not input yet" } },
            });
        };
        if own.iter().any(|own| own.meta.causation_id.as_ref() == Some(&id)) {
            return None;
        }
        let first = own.first().map_or(0, |event| event.seq_num);
        Some(match &outcome.rejection {
            Some(rejection) => rejected(rejection),
            None if outcome.version < first => {
                html! { "input of " a href=(paths::version(self.key(), outcome.version)) { "version " (outcome.version) } }
            }
            None => html! { span.hint { "input, no event" } },
        })
    }

    fn time_line(&self) -> Markup {
        let mut steps: Vec<_> = self.steps().collect();
        steps.sort_by_key(|(_, event)| (event.occurred_at, event.event_id));
        let began = steps.first().map(|(_, event)| event.occurred_at);
        html! {
            div.sequence.beside.scroll tabindex="0" { table {
                thead { tr { th { "When" } @for Column { key, .. } in &self.columns { th { a href=(paths::aggregate(key)) { (key) } } } } }
                tbody { @for &(at, event) in &steps {
                    @let (cause, fate) = (self.cause(at, event), self.fate(at, event));
                    // A cell has one arrow: from the cause, or to the process.
                    @let (from, to) = match &cause { Some((from, _)) => (Some(*from), at), None => (fate.as_ref().map(|_| at), 0) };
                    tr data-row {
                        td { (time::since(event.occurred_at, began, self.now)) }
                        @for column in 0..self.columns.len() { td class=[arrow(from, to, column)] {
                            @if column == at { (self.step(at, event, cause.as_ref().map(|(_, name)| name.as_str()))) }
                            @else if let (0, Some(fate)) = (column, &fate) { div.step { span.tag { (fate) } } }
                        } }
                    }
                } }
            } }
        }
    }

    fn step(&self, at: usize, event: &RecordedEvent, cause: Option<&str>) -> Markup {
        let of_this = |number: u64| at == 0 && number == event.seq_num;
        let is_sent =
            |row: &StoredDeadline| self.sent.iter().any(|sent| of_this(sent.number) && sent.name == row.item.name());
        html! {
            div.step {
                a.tag href=(paths::version(&self.columns[at].key, event.seq_num)) { (event.event_type) }
                p.hint { (event.seq_num) @if let Some(cause) = cause { " · " (cause) } @else if let Some(actor) = &event.meta.actor { " by " (actor) } }
                @if event.data.text() != "{}" { p { (json::line(&personal::shown(event.data.text()), MAX_LINE)) } }
                @if at == 0 { ul.messages {
                    @for sent in self.sent.iter().filter(|sent| of_this(sent.number)) { li {
                        span.message { (sent.name) } " to " (self.columns[sent.to].key) ": "
                        @match &sent.outcome.rejection { Some(rejection) => (rejected(rejection)), None => span.good { "accepted" } }
                        @if let Some(rejection) = self.answer(sent).and_then(|answer| answer.rejection.as_ref()) { ", answer " (rejected(rejection)) }
                    } }
                    @for row in self.declared.iter().filter(|row| of_this(row.item.seq_num) && row.item.to.is_some() && !is_sent(row)) { li {
                        span.message { (row.item.name()) } " to " (row.item.to.as_deref().unwrap_or_default()) ": " (deadlines::state(row, self.now))
                    } }
                } }
            }
        }
    }

    fn left_out(&self) -> Markup {
        let earlier = |column: &&Column| column.events.items.first().is_some_and(|first| first.seq_num > 1);
        let earlier: Vec<_> = self.columns.iter().filter(earlier).collect();
        let unreadable = self.columns.iter().flat_map(|column| &column.events.unreadable);
        html! {
            @if !earlier.is_empty() {
                p.hint { "Earlier events are left out: " @for (index, Column { key, events }) in earlier.iter().enumerate() {
                    @let until = events.items.first().map_or(1, |first| first.seq_num - 1);
                    @if index > 0 { ", " } a href=(paths::version(key, until)) { (key) " until " (until) }
                } "." }
            }
            @if self.more { p.hint { "Other aggregates are left out: " (OTHERS) " are shown at most." } }
            @for row in unreadable { p.notice.bad role="alert" { "A row cannot be read: " code { (row) } ": " (row.reason) } }
        }
    }

    /// What is pending, has failed or is suspended.
    fn open(&self) -> Markup {
        let suspended = self.followed.iter().filter_map(|(source, FollowProgress { position, .. })| {
            let (who, suspension) = position.suspension(&self.key().id).filter(|(_, one)| !one.is_resumed)?;
            Some((source, position.name_of(who), suspension))
        });
        let suspended: Vec<_> = suspended.collect();
        let open: Vec<_> = self.declared.iter().filter(|row| row.item.state() != DeadlineState::Fired).collect();
        html! {
            h2 { "Pending and failed" }
            @if open.is_empty() { p.empty { "No deadline or dispatch is pending, and none has failed." } } @else {
                (table(&["Name", "To", "Due", "State"], &html! { @for row in open {
                    @let to = row.item.to.as_deref().and_then(|to| to.parse().ok());
                    tr data-row {
                        td { (row.item.name()) } td { @if let Some(to) = to { a href=(paths::aggregate(&to)) { (to) } } @else { "itself" } }
                        td { (time::relative(row.due, self.now)) } td { (deadlines::state(row, self.now)) }
                    }
                } }))
            }
            @if !suspended.is_empty() { h2 { "Suspended input" } (stream::suspensions(suspended.into_iter(), self.now)) }
        }
    }
}

fn rejected(CommandRejection { name, detail }: &CommandRejection) -> Markup {
    html! { span.bad title=(detail) { "rejected: " (name) } }
}

/// The name of the deadline that has fired, if the event with this number has set it.
fn deadline_of(outcome: &Outcome, number: u64) -> Option<&str> {
    let (name, rest) = outcome.key.strip_prefix(keys::DEADLINE_KEYS)?.split_once(' ')?;
    rest.rsplit_once(' ').filter(|(_, set_by)| set_by.parse() == Ok(number)).map(|_| name)
}

/// The other aggregates: those first that get the command of a dispatch that is pending or has failed, then the sources.
fn others(
    process: &AggregateKey,
    declared: &[StoredDeadline],
    sources: Vec<AggregateKey>,
    targets: Vec<AggregateKey>,
) -> Vec<AggregateKey> {
    let (fired, open): (Vec<_>, Vec<_>) = declared.iter().partition(|row| row.item.state() == DeadlineState::Fired);
    let of_rows = |rows: Vec<&StoredDeadline>| -> Vec<_> {
        rows.into_iter().filter_map(|row| row.item.to.as_deref()?.parse().ok()).collect()
    };
    let mut others = Vec::new();
    for other in [of_rows(open), sources, of_rows(fired), targets].into_iter().flatten() {
        if other != *process && !others.contains(&other) {
            others.push(other);
        }
    }
    others
}

/// The targets of all dispatches of a process, if these are all its events. Rows do not show those that its state declares no more.
fn targets(model: &dyn Model, events: &[RecordedEvent]) -> Vec<AggregateKey> {
    let (mut folded, mut targets) = (model.before_first_event(), Vec::new());
    for event in events {
        match model.fold(folded, from_ref(event)) {
            Ok(next) => folded = next,
            Err(_) => break,
        }
        targets.extend(model.deadlines(&folded).unwrap_or_default().into_iter().filter_map(|declared| declared.to));
    }
    targets
}
