//! `daybook dlq redrive`: the way back.
//!
//! Invariant: whatever becomes of the output, what was sent is deleted and the rest is put back.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use daybook_stream_relay::ResendOutcome;
use serde_json::json;

use crate::operator::dead_letter_queue::{Filter, LOOK, Queue, Received};
use crate::operator::progress::Progress;
use crate::operator::target::{BusOptions, QueueOptions};
use crate::operator::unsent::Unsent;
use crate::operator::{Exit, OperateError, Operator};

/// Letters that are sent before those that were taken are deleted.
const AT_ONCE: usize = 500;

/// What a run may take beyond what the rate says: a bus that is waited for, and the queue's own calls.
const SPARE: Duration = Duration::from_secs(600);

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Which letters.
    #[command(flatten)]
    pub filter: Filter,
    /// Do it.
    #[arg(long)]
    pub yes: bool,
    /// Messages a second at most.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Letters to look through at most; run it again for more.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
    /// Which queue.
    #[command(flatten)]
    pub queue: QueueOptions,
    /// Which bus.
    #[command(flatten)]
    pub bus: BusOptions,
}

#[derive(Default)]
struct Tally {
    sent: usize,
    refused: usize,
    kept: usize,
    not_whole: usize,
}

/// Sends them, or says what it would send.
///
/// # Errors
///
/// When the queue cannot be read, or the bus takes nothing more.
pub async fn run(options: Options, operator: &mut Operator) -> Result<Exit, OperateError> {
    let mut resend = options.bus.connect(&operator.environment, options.rate).await?;
    let queue = Queue::new(options.queue.connect(&operator.environment).await?);
    let hidden = queue.counts().await?.hidden;
    let limit = u32::try_from(options.limit).unwrap_or(u32::MAX);
    let hide = if options.yes { SPARE + Duration::from_secs((limit / options.rate.get()).into()) } else { LOOK };
    let letters = queue.receive(options.limit, hide, &operator.interrupt).await?;
    let mut lines = Lines { out: &mut *operator.out, as_json: options.json, failure: None };
    let (mut chosen, others): (Vec<_>, Vec<_>) = letters.into_iter().partition(|letter| options.filter.passes(letter));
    queue.put_back(&others).await;
    chosen.sort_by_cached_key(Received::order);
    let whole = chosen.partition_point(|letter| letter.letter.is_ok());
    let not_whole = chosen.split_off(whole);
    queue.put_back(&not_whole).await;
    let mut tally = Tally { not_whole: not_whole.len(), ..Tally::default() };
    for letter in &not_whole {
        lines.say("left", letter, Some("no whole message"));
    }
    let not_seen = if hidden > 0 { format!("; about {hidden} more are hidden from this look") } else { String::new() };
    let messages = gather(chosen);
    if !options.yes {
        queue.put_back(&messages.concat()).await;
        for letters in &messages {
            lines.say("would-send", &letters[0], None);
        }
        lines.end()?;
        let text = format!("{} messages would be sent{not_seen}; nothing was done, --yes does it", messages.len());
        let summary = json!({"wouldSend": messages.len(), "notWhole": tally.not_whole, "hidden": hidden});
        operator.sum_up(options.json, &text, summary, None)?;
        return Ok(if tally.not_whole == 0 { Exit::Clean } else { Exit::Findings });
    }

    let progress = Progress::of(messages.len());
    let mut left: Vec<Received> = Vec::new();
    let mut unsent = Unsent::default();
    for some in messages.chunks(AT_ONCE) {
        // What comes after one that was not sent would overtake it, and nobody would read what becomes of more.
        if unsent.any() || lines.failure.is_some() || operator.interrupt.is_set() {
            left.extend(some.iter().flatten().cloned());
            continue;
        }
        let rows = some.iter().filter_map(|letters| Some(letters[0].letter.as_ref().ok()?.row.clone())).collect();
        let outcomes = resend.send(rows, operator.interrupt.wait()).await;
        let mut taken = Vec::new();
        for (letters, outcome) in some.iter().zip(outcomes) {
            match outcome {
                ResendOutcome::Sent => {
                    tally.sent += 1;
                    taken.extend_from_slice(letters);
                    progress.print(|| lines.say("sent", &letters[0], None));
                }
                ResendOutcome::Refused(refusal) => {
                    tally.refused += 1;
                    left.extend_from_slice(letters);
                    progress.print(|| lines.say("refused", &letters[0], Some(&refusal.to_string())));
                }
                ResendOutcome::Unsent(refusal) => {
                    left.extend_from_slice(letters);
                    unsent.add(refusal);
                }
            }
        }
        for (letter, why) in queue.delete(&taken).await {
            tally.kept += 1;
            progress.print(|| lines.say("sent-and-kept", &letter, Some(&why)));
        }
        progress.done(some.len());
    }
    drop(progress);
    queue.put_back(&left).await;
    lines.end()?;
    let Tally { sent, refused, kept, not_whole } = tally;
    let rest = messages.len() - sent - refused;
    let not_deleted = if kept > 0 { format!(" but for {kept} letters, which SQS kept") } else { String::new() };
    let text = format!(
        "{sent} messages sent and deleted from the queue{not_deleted}; left there: {refused} that the bus refuses, \
         {not_whole} no whole messages, {rest} not sent{not_seen}"
    );
    let summary = json!({
        "sent": sent, "refused": refused, "kept": kept, "notWhole": not_whole, "unsent": rest, "hidden": hidden,
    });
    let go_on = operator.interrupt.is_set().then_some("run it again");
    operator.sum_up(options.json, &text, summary, go_on)?;
    if operator.interrupt.is_set() {
        return Ok(Exit::Interrupted);
    }
    if let Some(error) = unsent.into_error("the rest is in the queue, run it again".to_owned()) {
        return Err(error);
    }
    Ok(if refused + kept + not_whole == 0 { Exit::Clean } else { Exit::Findings })
}

/// The letters of each message together: the relay may have parked one twice.
fn gather(letters: Vec<Received>) -> Vec<Vec<Received>> {
    let same = |one: &Received, other: &Received| match (&one.letter, &other.letter) {
        (Ok(one), Ok(other)) => one.row == other.row,
        _ => false,
    };
    let mut messages: Vec<Vec<Received>> = Vec::new();
    for letter in letters {
        match messages.last_mut().filter(|last| same(&last[0], &letter)) {
            Some(last) => last.push(letter),
            None => messages.push(vec![letter]),
        }
    }
    messages
}

/// What becomes of letters, a line each. Should the output be gone, no more is written, and what went wrong is told at the end.
struct Lines<'a> {
    out: &'a mut (dyn Write + Send),
    as_json: bool,
    failure: Option<io::Error>,
}

impl Lines<'_> {
    fn say(&mut self, outcome: &str, letter: &Received, why: Option<&str>) {
        if self.failure.is_none() {
            let line = self.line(outcome, letter, why);
            self.failure = writeln!(self.out, "{line}").err();
        }
    }

    fn line(&self, outcome: &str, letter: &Received, why: Option<&str>) -> String {
        if self.as_json {
            let mut line = letter.json();
            line["outcome"] = json!(outcome);
            line["why"] = json!(why);
            return line.to_string();
        }
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        match &letter.letter {
            Ok(whole) => format!(
                "{outcome} {} {} {} {}{why}",
                whole.aggregate, whole.row.message_seq, whole.row.message_type, whole.row.message_id
            ),
            Err(_) => format!("{outcome} {letter}"),
        }
    }

    fn end(self) -> io::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}
