//! `daybook dlq list`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::operator::dead_letter_queue::{Filter, LOOK, Queue};
use crate::operator::target::QueueOptions;
use crate::operator::{Exit, OperateError, Operator};

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Which letters.
    #[command(flatten)]
    pub filter: Filter,
    /// Letters at most.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
    /// Which queue.
    #[command(flatten)]
    pub queue: QueueOptions,
}

/// Lists.
///
/// # Errors
///
/// When the queue cannot be read.
pub async fn run(options: Options, operator: &mut Operator) -> Result<Exit, OperateError> {
    let queue = Queue::new(options.queue.connect(&operator.environment).await?);
    let counts = queue.counts().await?;
    let mut letters = queue.receive(options.limit, LOOK, &operator.interrupt).await?;
    queue.put_back(&letters).await;
    let seen = letters.len();
    letters.retain(|letter| options.filter.passes(letter));
    letters.sort_by_cached_key(|letter| letter.order());
    for letter in &letters {
        if options.json {
            writeln!(operator.out, "{}", letter.json())?;
        } else {
            writeln!(operator.out, "{letter}")?;
        }
    }
    let not_whole = letters.iter().filter(|letter| letter.letter.is_err()).count();
    let text = format!(
        "{} letters of {seen} seen, {not_whole} of them no whole messages; SQS counts about {} waiting and {} that other \
         readers have",
        letters.len(),
        counts.waiting,
        counts.hidden
    );
    let summary = json!({
        "letters": letters.len(), "seen": seen, "notWhole": not_whole, "waiting": counts.waiting, "hidden": counts.hidden,
    });
    operator.sum_up(options.json, &text, summary, None)?;
    Ok(if operator.interrupt.is_set() { Exit::Interrupted } else { Exit::Clean })
}
