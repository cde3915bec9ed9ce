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
use daybook_decider::{Caller, CommandRequest, DecisionInput, Folded, Json, Meta, Model, Registry};
use daybook_function_runtime::with_causes;
use daybook_local_stack::http::{HttpClient, HttpError, TextResponse};
use daybook_operations::selection::models;
use daybook_operations::signed_calls::{aws_config, signer};
use daybook_operations::stack::is_loopback;
use daybook_operations::{OperatorError, Stack};
use daybook_projection::Projections;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
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
        let client = HttpClient::new(url, signer);
        Ok(Self { client, url: url.trim_end_matches('/').to_owned(), headers, is_local })
    }

    async fn send(&self, path: &str, body: Option<String>) -> Result<TextResponse, HttpError> {
        let mut headers = self.headers.clone();
        headers.extend(body.is_some().then(|| ("content-type".to_owned(), "application/json".to_owned())));
        let method = if body.is_some() { "POST" } else { "GET" };
        self.client.send(method, &format!("{}{path}", self.url), &headers, body).await
    }

    /// The usage that a local stack has counted; `None` for another API.
    pub(super) async fn usage(&self) -> Result<Option<Value>, OperatorError> {
        if !self.is_local {
            return Ok(None);
        }
        let failed = |error: HttpError| {
            OperatorError::Failed(format!(
                "the API at {} does not respond: {}; check --url",
                self.url,
                with_causes(&*error)
            ))
        };
        let response = self.send("/_dev/usage", None).await.map_err(failed)?;
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

/// The requests of a run, and what they got.
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

/// The requests to an aggregate of one type, in an order that it accepts.
pub(super) struct Script {
    aggregate_type: &'static str,
    /// The command that creates the aggregate, and those that follow. None deletes it, so it can always be read.
    commands: Vec<Value>,
}

pub(super) fn scripts(registry: &Registry, types: &[String]) -> Result<Vec<Script>, OperatorError> {
    let document = daybook_command_handler::openapi::document(registry, &Projections::new());
    let scripts = models(registry, types)?.into_iter().map(|model| Script::of_examples(model, &document));
    let scripts: Vec<_> = scripts.filter(|script| !script.commands.is_empty()).collect();
    let reason = "the API document has no example that creates an aggregate; add `#[schemars(example = …)]` to its fields; \
         types with claims are left out";
    if scripts.is_empty() { Err(OperatorError::Usage(reason.to_owned())) } else { Ok(scripts) }
}

impl Script {
    fn of_examples(model: &dyn Model, document: &Value) -> Self {
        let path = format!("/{}/{{id}}/commands", model.type_name());
        let examples =
            &document["paths"][path.as_str()]["post"]["requestBody"]["content"]["application/json"]["examples"];
        let later = examples["several"]["value"].as_array().into_iter().flatten();
        let (mut now, mut commands) = (model.before_first_event(), Vec::new());
        for command in std::iter::once(&examples["creation"]["value"][0]).chain(later) {
            match after(model, &now, command).filter(|next| !model.is_deleted(next)) {
                // The examples of all aggregates would claim the same value.
                Some(next) if model.claims(&next).is_ok_and(|claims| !claims.is_empty()) => {
                    commands.clear();
                    break;
                }
                Some(next) => now = next,
                None if commands.is_empty() => break,
                None => continue,
            }
            commands.push(command.clone());
        }
        Self { aggregate_type: model.type_name(), commands }
    }

    /// The path and the body of the request with a command; of a read, if there is no command.
    fn request(&self, command: Option<usize>, id: &str) -> (String, Option<String>) {
        let (collection, Some(number)) = (format!("/{}", self.aggregate_type), command) else {
            return (format!("/{}/{id}", self.aggregate_type), None);
        };
        let command = &self.commands[number];
        if number > 0 {
            return (format!("{collection}/{id}/commands"), Some(command.to_string()));
        }
        let mut body = command.get("data").cloned().unwrap_or(json!({}));
        body["id"] = id.into();
        (collection, Some(body.to_string()))
    }
}

/// The aggregate after a command; `None` if it is rejected.
fn after(model: &dyn Model, before: &Folded, command: &Value) -> Option<Folded> {
    let data = Json::of(command.get("data").unwrap_or(&json!({}))).ok()?;
    let request = CommandRequest { command: command["command"].as_str()?.to_owned(), data };
    let (now, seed) = (Timestamp::now(), Ulid::generate());
    let input = DecisionInput::new(now, seed, Meta::default(), Caller::anonymous(), 1);
    let decided = model.decide(before, "load", &[request], &input).ok()?;
    decided.rejection.is_none().then_some(decided.after)
}
