//! The options, and what follows from them.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use jiff::SignedDuration;

use crate::operator::target::STACK_HELP;

/// Send commands and reads to an API at a fixed rate, and report latencies, responses, units and costs.
///
/// The commands are the examples of the API document, in an order that the aggregates accept. The latency of a request is measured
/// from its planned time: if the API is slower than the rate, the wait counts. The events of a run cannot be removed, except with
/// the table, so use a stack of its own for load tests. Requests to an API on another machine are signed with your AWS
/// credentials, unless you give a header `authorization`, and are sent only with `--yes`.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct LoadArgs {
    /// URL of the API: that of `daybook dev`, or the stack's output ApiUrl.
    #[arg(long, env = "API_URL", value_name = "URL", default_value = "http://127.0.0.1:3000", hide_env_values = true)]
    pub(super) url: String,
    /// Header of every request, such as `authorization: Bearer …`; can be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    pub(super) headers: Vec<(String, String)>,
    /// Only aggregates of this type; can be repeated. Default: all types without claims.
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) types: Vec<String>,
    /// Requests per second.
    #[arg(long, value_name = "N", default_value = "20")]
    pub(super) rate: NonZeroU32,
    /// How long requests are sent, such as `90s`, `5m` or `1h`.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(super) duration: SignedDuration,
    /// Maximum requests that wait for their responses at the same time.
    #[arg(long, value_name = "N", default_value = "32")]
    pub(super) concurrency: NonZeroUsize,
    /// Share of reads among the requests. A read gets the state of an aggregate that the run has created.
    #[arg(long, value_name = "PERCENT", default_value = "20", value_parser = clap::value_parser!(u64).range(..=100))]
    pub(super) reads: u64,
    /// Send the requests to an API that is not on this machine; without this option, the command is a dry run.
    #[arg(long)]
    pub(super) yes: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').filter(|(name, _)| !name.trim().is_empty());
    let (name, value) = parts.ok_or_else(|| "expected NAME: VALUE".to_owned())?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

impl LoadArgs {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive number of requests")]
    pub(super) fn planned(&self) -> u64 {
        (self.duration.as_secs_f64() * f64::from(self.rate.get())).ceil() as u64
    }

    pub(super) fn is_read(&self, index: u64) -> bool {
        (index + 1) * self.reads / 100 > index * self.reads / 100
    }
}
