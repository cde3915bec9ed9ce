//! The options, and the requests, which are sent at their planned times.
//!
//! Invariant: the planned time of a request depends on the rate only, never on earlier responses, and its latency is measured
//! from then on. Otherwise the wait behind a slow response would be left out (coordinated omission).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::num::{NonZeroU32, NonZeroUsize};
use std::pin::pin;
use std::time::Duration;

use axum::http::Uri;
use clap::Args;
use daybook_aws_clients::http::{HttpClient, HttpError, TextResponse};
use daybook_command_handler::openapi::execute;
use daybook_decider::{Decided, Model, Registry, samples};
use daybook_function_runtime::with_causes;
use daybook_operations::selection::models;
use daybook_operations::signed_calls::{aws_config, signer};
use daybook_operations::stack::is_loopback;
use daybook_operations::{OperatorError, Stack};
use futures_util::{StreamExt, stream};
use jiff::SignedDuration;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use ulid::Ulid;

/// Send commands and reads to an API at a fixed rate, and report latencies, responses, units and costs.
///
/// The commands are the examples of the API document, in an order that the aggregates accept. The latency of a request is measured
/// from its planned time: if the API is slower than the rate, the wait counts. The events of a run cannot be removed, except with
/// the table, so use a stack of its own for load tests. Requests to an API on another machine are signed with your AWS
/// credentials, unless you give a header `authorization`, and are sent only with `--yes`.
#[derive(Clone, Debug, Args)]
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
}

pub(super) struct Api {
    client: HttpClient,
    url: String,
    headers: Vec<(String, String)>,
    /// Whether it is on this machine. Then its requests cost nothing, and are not signed.
    pub(super) is_local: bool,
}

impl Api {
    pub(super) async fn connect(args: &LoadArgs, stack: &Stack) -> Result<Self, OperatorError> {
        let (url, mut headers) = (&args.url, args.headers.clone());
        let uri = url.parse::<Uri>().ok();
        if !uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()) {
            return Err(OperatorError::Usage(format!("--url is {url:?}, expected http://HOST:PORT or https://HOST")));
        }
        let is_local = is_loopback(url);
        let is_authorized = is_local || headers.iter().any(|(name, _)| name == "authorization");
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        // The variable for another endpoint of API Gateway, as AWS's own tools would name it.
        let config = async || aws_config(&stack.environment, "AWS_ENDPOINT_URL_EXECUTE_API").await;
        let signer = if is_authorized { None } else { Some(signer(&config().await?, "execute-api")) };
        let client = HttpClient::new(url, signer);
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), headers, is_local })
    }

    async fn send(&self, path: &str, body: Option<String>) -> Result<TextResponse, HttpError> {
        let method = if body.is_some() { "POST" } else { "GET" };
        self.client.send(method, &format!("{}{path}", self.url), &self.headers, body).await
    }

    /// The usage that a local stack has counted; `None` for another API.
    pub(super) async fn usage(&self) -> Result<Option<Value>, OperatorError> {
        if !self.is_local {
            return Ok(None);
        }
        let response = self.send("/_dev/usage", None).await.map_err(|error| {
            let (url, cause) = (&self.url, with_causes(&*error));
            OperatorError::Failed(format!("the API at {url} does not respond: {cause}; check --url"))
        })?;
        Ok(serde_json::from_str(&response.body).ok().filter(|_| response.status == 200))
    }

    /// The usage after the stream functions have finished: it no longer changes. They get ten seconds.
    pub(super) async fn quiet_usage(&self) -> Option<Value> {
        let mut last = None;
        for _ in 0..17 {
            let now = self.usage().await.ok()?;
            if now == last {
                break;
            }
            last = now;
            sleep(Duration::from_millis(600)).await;
        }
        last
    }
}

#[derive(Default)]
pub(super) struct Run {
    scripts: Vec<Script>,
    pub(super) prefix: String,
    begun: usize,
    /// The numbers of the aggregates that exist.
    pub(super) created: Vec<usize>,
    /// The aggregates that wait for their next command, with its number. Each gets one command at a time.
    idle: VecDeque<(usize, usize)>,
    /// The latencies of commands and of reads, in milliseconds.
    pub(super) latencies: [Vec<f64>; 2],
    /// By status and type of the problem, or by the reason why there is no response.
    pub(super) responses: BTreeMap<String, u64>,
    pub(super) failures: u64,
    pub(super) elapsed: Duration,
}

impl Run {
    /// Sends the planned requests, until the end of the duration or Ctrl-C. Waits for the responses.
    pub(super) async fn of_requests(scripts: Vec<Script>, args: &LoadArgs, api: &Api, stack: &Stack) -> Self {
        let prefix = format!("load-{}", Ulid::generate().to_string().to_lowercase());
        let run = RefCell::new(Self { scripts, prefix, ..Self::default() });
        let (start, interrupt, duration) = (Instant::now(), &stack.interrupt, args.duration.unsigned_abs());
        let requests = stream::iter(0..args.planned())
            .take_while(|_| ready(!interrupt.is_cancelled() && start.elapsed() < duration))
            .map(async |index| {
                let due = start + Duration::from_secs_f64(index as f64 / f64::from(args.rate.get()));
                let is_read = (index + 1) * args.reads / 100 > index * args.reads / 100;
                if interrupt.run_until_cancelled(sleep_until(due)).await.is_some() {
                    send(&run, api, is_read, due).await;
                }
            });
        let mut responses = pin!(requests.buffer_unordered(args.concurrency.get()));
        while responses.next().await.is_some() {
            let fraction = start.elapsed().as_secs_f64() / duration.as_secs_f64();
            (stack.progress)(Some(fraction), format!("{} failures", run.borrow().failures));
        }
        let elapsed = start.elapsed();
        Self { elapsed, ..run.take() }
    }

    fn script(&self, number: usize) -> &Script {
        &self.scripts[number % self.scripts.len()]
    }

    /// The aggregate of the next request, with the number of its command; a read has none, unless no aggregate exists.
    fn next(&mut self, is_read: bool) -> (usize, Option<usize>) {
        if is_read && let Some(position) = self.latencies[1].len().checked_rem(self.created.len()) {
            return (self.created[position], None);
        }
        let (number, command) = self.idle.pop_front().unwrap_or((self.begun, 0));
        self.begun = self.begun.max(number + 1);
        (number, Some(command))
    }

    /// The path and the body of the request with a command; of a read, if there is no command.
    fn request(&self, number: usize, command: Option<usize>) -> (String, Option<String>) {
        let Script { aggregate_type, commands } = self.script(number);
        let (collection, id) = (format!("/{aggregate_type}"), format!("{}-{number}", self.prefix));
        match command {
            None => (format!("{collection}/{id}"), None),
            Some(0) => {
                let mut body = commands[0]["data"].clone();
                body["id"] = id.into();
                (collection, Some(body.to_string()))
            }
            Some(command) => (format!("{collection}/{id}/commands"), Some(commands[command].to_string())),
        }
    }
}

async fn send(run: &RefCell<Run>, api: &Api, is_read: bool, due: Instant) {
    let (number, command) = run.borrow_mut().next(is_read);
    let (path, body) = run.borrow().request(number, command);
    let sent = api.send(&path, body).await;
    let latency = due.elapsed().as_secs_f64() * 1e3;
    let accepted = sent.as_ref().is_ok_and(|response| (200..300).contains(&response.status));
    let response = match sent {
        Ok(response) => {
            let problem = serde_json::from_str::<Value>(&response.body).unwrap_or_default();
            let problem = problem["type"].as_str().and_then(|name| name.strip_prefix("urn:daybook:problem:"));
            format!("{} {}", response.status, problem.unwrap_or_default()).trim_end().to_owned()
        }
        Err(error) => format!("missing: {}", with_causes(&*error)),
    };
    let mut run = run.borrow_mut();
    run.latencies[usize::from(command.is_none())].push(latency);
    *run.responses.entry(response).or_default() += 1;
    run.failures += u64::from(!accepted);
    if let Some(command) = command.filter(|_| accepted) {
        run.created.extend((command == 0).then_some(number));
        let is_last = command + 1 == run.script(number).commands.len();
        run.idle.extend((!is_last).then_some((number, command + 1)));
    }
}

/// The requests to an aggregate of one type, in an order that it accepts.
pub(super) struct Script {
    aggregate_type: &'static str,
    /// The command that creates the aggregate, and those that follow. None deletes it, so it can always be read.
    commands: Vec<Value>,
}

pub(super) fn scripts(registry: &Registry, types: &[String]) -> Result<Vec<Script>, OperatorError> {
    let scripts = models(registry, types)?.into_iter().map(|model| Script::of_samples(registry, model));
    let scripts: Vec<_> = scripts.filter(|script| !script.commands.is_empty()).collect();
    let reason = "the API document has no example that creates an aggregate; add `#[schemars(example = …)]` to its fields; \
         types with claims are left out";
    if scripts.is_empty() { Err(OperatorError::Usage(reason.to_owned())) } else { Ok(scripts) }
}

impl Script {
    fn of_samples(registry: &Registry, model: &dyn Model) -> Self {
        let (mut now, mut commands, mut samples) = (model.before_first_event(), Vec::new(), samples(model));
        samples.sort_by_key(|sample| sample["command"] != model.commands().create);
        for sample in samples {
            let is_accepted = |decided: &Decided| decided.rejection.is_none() && !model.is_deleted(&decided.after);
            let after =
                execute(registry, model, &now, &[&sample], None).filter(is_accepted).map(|decided| decided.after);
            match after {
                // The samples of all aggregates would claim the same value.
                Some(next) if model.claims(&next).is_ok_and(|claims| !claims.is_empty()) => {
                    commands.clear();
                    break;
                }
                Some(next) => now = next,
                None if commands.is_empty() => break,
                None => continue,
            }
            commands.push(sample);
        }
        Self { aggregate_type: model.type_name(), commands }
    }
}
