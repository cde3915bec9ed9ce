//! `daybook dlq show`.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::operator::dead_letter_queue::{Filter, LOOK, Queue};
use crate::operator::target::QueueOptions;
use crate::operator::{Exit, OperateError, Operator};

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The message id, or the id that SQS gave the letter: `daybook dlq list` prints both.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Letters to look through at most.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
    /// Which queue.
    #[command(flatten)]
    pub queue: QueueOptions,
}

/// Shows.
///
/// # Errors
///
/// When the queue cannot be read.
pub async fn run(options: Options, operator: &mut Operator) -> Result<Exit, OperateError> {
    let queue = Queue::new(options.queue.connect(&operator.environment).await?);
    let letters = queue.receive(options.limit, LOOK, &operator.interrupt).await?;
    queue.put_back(&letters).await;
    let filter = Filter { id: vec![options.id.clone()], ..Filter::default() };
    let mut found = false;
    for letter in letters.iter().filter(|letter| filter.passes(letter)) {
        found = true;
        match serde_json::from_str::<Value>(&letter.body) {
            Ok(json) => writeln!(operator.out, "{json:#}")?,
            Err(_) => writeln!(operator.out, "{}", letter.body)?,
        }
    }
    if found {
        return Ok(Exit::Clean);
    }
    eprintln!(
        "no letter has the id {:?} among {} that were seen; `daybook dlq list` prints the ids, and another look may see more",
        options.id,
        letters.len()
    );
    Ok(Exit::Findings)
}
