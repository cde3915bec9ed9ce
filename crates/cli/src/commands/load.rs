//! `daybook load`: sends commands and reads to an API at a fixed rate, and reports latencies, responses and costs.
//!
//! In reading order:
//! - `args`, `options`: the options and their values.
//! - `workload`: which request comes next, from the examples of the API document.
//! - `target`: the API, and the credentials for it. `aggregate_pool`: the aggregates that get one request at a time.
//!   `sender`: sends the requests at their planned times.
//! - `measurements`: latencies and responses.
//! - `prices`, `costs`: what the requests cost. `report`: the end of the output.

mod aggregate_pool;
mod args;
mod costs;
mod measurements;
mod options;
mod prices;
mod report;
mod sender;
mod target;
mod workload;

use std::io::Write;
use std::num::NonZeroU32;
use std::time::Duration;

use serde_json::json;
use ulid::Ulid;

pub(super) use self::args::LoadArgs;
use self::costs::UsedUnits;
use self::report::LoadReport;
use self::sender::Sender;
use self::target::LoadTarget;
use self::workload::{Mix, Workload};
use crate::dev::Usage;
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// How long the report waits for the stream functions of a local stack to finish.
const QUIET_LIMIT: Duration = Duration::from_secs(10);

/// The stream functions are finished when the usage has not changed for this time.
const QUIET_FOR: Duration = Duration::from_millis(600);

/// Sends the requests, and prints the report.
///
/// # Errors
///
/// When an option is wrong, there are no credentials, or the API does not respond at the beginning.
pub(super) async fn run(args: LoadArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let mix = Mix { reads: args.reads, hot: args.hot, hot_aggregates: args.hot_aggregates.get() };
    let prefix = format!("load-{}", Ulid::generate().to_string().to_lowercase());
    let workload = Workload::of_examples(&context.registry, &args.types, mix, prefix)?;
    let planned = planned_requests(args.rate, args.duration);
    let target = LoadTarget::connect(&args.url, &args.headers, &context.environment).await?;
    if !(target.is_local || args.yes) {
        let expected = UsedUnits::estimated(planned - args.reads.count(planned), args.reads.count(planned));
        let text = format!(
            "would send {planned} requests in {:?} to {}, for about {:.6} USD; the events stay in its table: use a stack for \
             tests; nothing was sent, run it again with --yes",
            args.duration,
            args.url,
            expected.costs().total()
        );
        let json = json!({"dryRun": true, "requests": planned, "url": args.url, "costUsd": expected.costs().total()});
        writeln!(context.out, "{}", output_line(args.json, json!({ "summary": json }), text))?;
        return Ok(Exit::Clean);
    }
    let before = target.usage().await?;
    let sender = Sender::new(&args, &target, &workload, context.interrupt.clone());
    sender.create_hot_aggregates().await?;
    let measured = sender.send_all(planned).await;
    let after = if before.is_some() { quiet_usage(&target).await } else { None };
    let used = match (before, after) {
        (Some(before), Some(after)) => UsedUnits::between(&before, &after, measured.commands()),
        _ => UsedUnits::estimated(measured.commands(), measured.reads()),
    };
    let interrupted = context.interrupt.is_set();
    let report = LoadReport { prefix: &workload.prefix, measured: &measured, used: &used, interrupted };
    report.print(args.json, &mut context.out)?;
    Ok(match interrupted {
        true => Exit::Interrupted,
        false if measured.is_clean() => Exit::Clean,
        false => Exit::Findings,
    })
}

/// The number of requests whose planned time is within the duration.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of requests")]
fn planned_requests(rate: NonZeroU32, duration: Duration) -> u64 {
    (duration.as_secs_f64() * f64::from(rate.get())).ceil() as u64
}

/// The usage of a local stack after its stream functions have finished.
async fn quiet_usage(target: &LoadTarget) -> Option<Usage> {
    let watch = async {
        let mut last = target.usage().await.ok().flatten()?;
        loop {
            tokio::time::sleep(QUIET_FOR).await;
            let now = target.usage().await.ok().flatten()?;
            if now == last {
                return Some(now);
            }
            last = now;
        }
    };
    match tokio::time::timeout(QUIET_LIMIT, watch).await {
        Ok(usage) => usage,
        Err(_) => target.usage().await.ok().flatten(),
    }
}
