//! Sends the requests at their planned times, and measures the responses.
//!
//! Invariant: the planned time of a request depends on the rate only, never on earlier responses, and its latency is measured
//! from then on. Otherwise the wait behind a slow response would be left out (coordinated omission).

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use axum::http::Uri;
use daybook_api_documents::accepted_examples;
use daybook_command_handler::openapi::document;
use daybook_decider::{Model, Registry};
use daybook_function_runtime::with_causes;
use daybook_local_stack::http::{HttpClient, HttpError, TextResponse};
use daybook_operations::selection::models;
use daybook_operations::signed_calls::{aws_config, signer};
use daybook_operations::stack::is_loopback;
use daybook_operations::{OperatorError, Stack};
use daybook_projection::Projections;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use ulid::Ulid;

use crate::commands::load::args::LoadArgs;

pub(super) struct Api {
    client: HttpClient,
    url: String,
    headers: Vec<(String, String)>,
    /// Whether it is on this machine. Then its requests cost nothing, and are not signed.
    pub(super) is_local: bool,
}

impl Api {
    pub(super) async fn connect(args: &LoadArgs, stack: &Stack) -> Result<Self, OperatorError> {
        let (url, headers) = (&args.url, args.headers.clone());
        let uri = url.parse::<Uri>().ok();
        if !uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()) {
            return Err(OperatorError::Usage(format!("--url is {url:?}, expected http://HOST:PORT or https://HOST")));
        }
        let is_local = is_loopback(url);
        let signer = match is_local || headers.iter().any(|(name, _)| name == "authorization") {
            true => None,
            // The variable for another endpoint of API Gateway, as AWS's own tools would name it.
            false => {
                Some(signer(&aws_config(&stack.environment, "AWS_ENDPOINT_URL_EXECUTE_API").await?, "execute-api"))
            }
        };
        Ok(Self { client: HttpClient::new(url, signer), url: url.trim_end_matches('/').to_owned(), headers, is_local })
    }

    async fn send(&self, path: &str, body: Option<String>) -> Result<TextResponse, HttpError> {
        let mut headers = self.headers.clone();
        headers.extend(body.is_some().then(|| ("content-type".to_owned(), "application/json".to_owned())));
        let (method, url) = (if body.is_some() { "POST" } else { "GET" }, format!("{}{path}", self.url));
        self.client.send(method, &url, &headers, body).await
    }

    /// The usage that a local stack has counted; `None` for another API.
    pub(super) async fn usage(&self) -> Result<Option<Value>, OperatorError> {
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
            match self.usage().await.ok()? {
                now if now == last => break,
                now => last = now,
            }
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
}

impl Run {
    pub(super) fn new(scripts: Vec<Script>) -> Self {
        Self { scripts, prefix: format!("load-{}", Ulid::generate().to_string().to_lowercase()), ..Self::default() }
    }

    /// Sends the planned requests, until the end of the duration or Ctrl-C. Waits for the responses.
    pub(super) async fn send_all(self, args: &LoadArgs, api: &Api, stack: &Stack) -> Self {
        let (start, run, interrupt) = (Instant::now(), RefCell::new(self), &stack.interrupt);
        let duration = args.duration.unsigned_abs();
        let requests = stream::iter(0..args.planned())
            .take_while(|_| ready(!interrupt.is_set() && start.elapsed() < duration))
            .map(async |index| {
                let due = start + Duration::from_secs_f64(index as f64 / f64::from(args.rate.get()));
                tokio::select! {
                    biased;
                    () = interrupt.wait() => {}
                    () = sleep_until(due) => send(&run, api, args.is_read(index), due).await,
                }
            });
        let mut responses = pin!(requests.buffer_unordered(args.concurrency.get()));
        while responses.next().await.is_some() {
            let fraction = start.elapsed().as_secs_f64() / duration.as_secs_f64();
            stack.progress.show(Some(fraction), format!("{} failures", run.borrow().failures));
        }
        run.take()
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
}

async fn send(run: &RefCell<Run>, api: &Api, is_read: bool, due: Instant) {
    let (number, command, (path, body)) = {
        let mut run = run.borrow_mut();
        let (number, command) = run.next(is_read);
        (number, command, run.script(number).request(command, &format!("{}-{number}", run.prefix)))
    };
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

/// The requests to an aggregate of one type. No command deletes it, so it can always be read.
pub(super) struct Script {
    aggregate_type: &'static str,
    commands: Vec<Value>,
}

pub(super) fn scripts(registry: &Registry, types: &[String]) -> Result<Vec<Script>, OperatorError> {
    let document = document(registry, &Projections::new());
    let script =
        |model: &dyn Model| Script { aggregate_type: model.type_name(), commands: accepted_examples(model, &document) };
    let mut scripts: Vec<_> = models(registry, types)?.into_iter().map(script).collect();
    scripts.retain(|script| !script.commands.is_empty());
    let reason =
        "the API document has no example that creates an aggregate; add `#[schemars(example = …)]` to its fields";
    if scripts.is_empty() { Err(OperatorError::Usage(reason.to_owned())) } else { Ok(scripts) }
}

impl Script {
    /// The path and the body of the request with a command; of a read, if there is no command.
    fn request(&self, command: Option<usize>, id: &str) -> (String, Option<String>) {
        let collection = format!("/{}", self.aggregate_type);
        match command {
            None => (format!("{collection}/{id}"), None),
            Some(0) => {
                let mut body = self.commands[0].get("data").cloned().unwrap_or(json!({}));
                body["id"] = id.into();
                (collection, Some(body.to_string()))
            }
            Some(number) => (format!("{collection}/{id}/commands"), Some(self.commands[number].to_string())),
        }
    }
}
