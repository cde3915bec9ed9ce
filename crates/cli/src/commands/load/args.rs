//! The options of `daybook load`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::Args;

use super::options::{Header, Share, parse_duration};
use crate::operator::target::STACK_HELP;

/// Send commands and reads to an API at a fixed rate, and report latencies, responses, units and costs.
///
/// The commands are the examples of the API document, in the order in which the aggregates accept them: an aggregate is
/// created, gets each of the commands, and then the next one is created. The latency of a request is measured from its planned
/// time, not from the time at which it was sent: if the API is slower than the rate, the wait counts. Requests that could
/// not be sent before the end are counted as not sent.
///
/// Every aggregate that the command creates has an id that begins with `load-`. Its events cannot be removed, except with
/// the table. Use a stack of its own for load tests. For an API that is not on this machine, the command only prints what it
/// would send and what that would cost; `--yes` sends it. It signs the requests with your AWS credentials, unless you give a
/// header `authorization`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct LoadArgs {
    /// URL of the API: that of `daybook dev`, or the stack's output ApiUrl.
    #[arg(long, env = "API_URL", value_name = "URL", default_value = "http://127.0.0.1:3000", hide_env_values = true)]
    pub url: String,
    /// Header of every request, such as `authorization: Bearer …`; can be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<Header>,
    /// Only aggregates of this type; can be repeated. Default: all types.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// Requests per second.
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,
    /// How long requests are sent, such as `90s`, `5m` or `1h`.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Maximum requests that wait for their responses at the same time.
    #[arg(long, value_name = "N", default_value = "32")]
    pub concurrency: NonZeroUsize,
    /// Share of reads among the requests. A read gets the state of an aggregate that the run has created.
    #[arg(long, value_name = "PERCENT", default_value = "20%")]
    pub reads: Share,
    /// Share of the commands that go to a few hot aggregates, which many senders write at the same time.
    #[arg(long, value_name = "PERCENT", default_value = "0%")]
    pub hot: Share,
    /// The number of hot aggregates.
    #[arg(long, value_name = "N", default_value = "1")]
    pub hot_aggregates: NonZeroUsize,
    /// Send the commands to hot aggregates with `If-Match` and the version that was last seen, so that a lost race is a 409
    /// conflict instead of another attempt of the API.
    #[arg(long)]
    pub if_match: bool,
    /// Send the requests to an API that is not on this machine; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}
