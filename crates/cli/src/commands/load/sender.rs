//! Sends the requests of a workload at their planned times.
//!
//! Invariant: the planned time of a request depends on the rate only, never on earlier responses, and its latency is measured
//! from then on. A slow response therefore makes the requests behind it late, as it would for callers that do not wait for
//! each other (without this, the wait would be left out: coordinated omission).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::aggregate_pool::{AggregatePool, PooledAggregate, TakenAggregate};
use super::args::LoadArgs;
use super::measurements::{Measured, Measurements, ResponseKind};
use super::target::LoadTarget;
use super::workload::{RequestKind, Script, Workload};
use crate::http::{HttpError, TextResponse};
use crate::operator::progress::{ProgressLine, is_terminal};
use crate::operator::{Interrupt, OperatorError};

/// How often the progress is shown on a terminal, and printed elsewhere.
const SHOW_EVERY: Duration = Duration::from_millis(250);
const PRINT_EVERY: Duration = Duration::from_secs(10);

/// The beginning of a problem's type.
const PROBLEM_TYPE: &str = "urn:daybook:problem:";

/// Sends the requests of a workload.
pub(super) struct Sender<'a> {
    args: &'a LoadArgs,
    target: &'a LoadTarget,
    workload: &'a Workload,
    interrupt: Interrupt,
    hot: Vec<HotAggregate<'a>>,
    pool: AggregatePool<'a>,
    /// The next request.
    next: AtomicU64,
    measurements: Mutex<Measurements>,
}

/// An aggregate that all senders write.
struct HotAggregate<'a> {
    script: &'a Script,
    id: String,
    /// The version that a sender last saw.
    version: AtomicU64,
}

/// A request, and what it is for.
struct PlannedRequest<'a> {
    kind: RequestKind,
    /// The aggregate that no other sender uses meanwhile.
    aggregate: Option<PooledAggregate<'a>>,
    method: &'static str,
    path: String,
    body: Option<String>,
    if_match: Option<String>,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        args: &'a LoadArgs,
        target: &'a LoadTarget,
        workload: &'a Workload,
        interrupt: Interrupt,
    ) -> Self {
        let hot = workload.hot_aggregates().into_iter().enumerate().map(|(number, script)| HotAggregate {
            script,
            id: format!("{}-hot-{number}", workload.prefix),
            version: AtomicU64::new(1),
        });
        Self {
            args,
            target,
            workload,
            interrupt,
            hot: hot.collect(),
            pool: AggregatePool::new(workload),
            next: AtomicU64::default(),
            measurements: Mutex::new(Measurements::new()),
        }
    }

    /// Creates the hot aggregates. These requests are not measured.
    pub(super) async fn create_hot_aggregates(&self) -> Result<(), OperatorError> {
        for HotAggregate { script, id, .. } in &self.hot {
            let sent = self.target.send("POST", &script.create_path(), Some(script.create_body(id)), None).await;
            let cause = match sent {
                Ok(response) if response.status == 201 => {
                    self.measurements().aggregates += 1;
                    continue;
                }
                Ok(response) => format!("a hot aggregate cannot be created: {} {}", response.status, response.body),
                Err(error) => daybook_function_runtime::with_causes(&*error),
            };
            return Err(OperatorError::Api { url: self.args.url.clone(), cause });
        }
        Ok(())
    }

    /// Sends this number of requests, until the end of the duration or Ctrl-C. Waits for the responses.
    pub(super) async fn send_all(self, planned: u64) -> Measurements {
        let start = Instant::now();
        let senders = join_all((0..self.args.concurrency.get()).map(|_| self.send_next(start, planned)));
        tokio::select! {
            _ = senders => {}
            () = self.show(start) => {}
        }
        let mut measurements = self.measurements.into_inner().unwrap_or_else(PoisonError::into_inner);
        measurements.elapsed = start.elapsed();
        if !self.interrupt.is_set() {
            measurements.not_sent = planned - measurements.requests();
        }
        measurements
    }

    /// Sends one request after the other, each at its planned time, or later if that has passed.
    async fn send_next(&self, start: Instant, planned: u64) {
        let end = start + self.args.duration;
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= planned || self.interrupt.is_set() || Instant::now() >= end {
                return;
            }
            let due = start + Duration::from_secs_f64(index as f64 / f64::from(self.args.rate.get()));
            tokio::select! {
                biased;
                () = self.interrupt.wait() => return,
                () = sleep_until(due) => {}
            }
            let request = self.request(self.workload.kind(index));
            let PlannedRequest { kind, aggregate, method, path, body, if_match } = request;
            let sent = self.target.send(method, &path, body, if_match).await;
            let result = ResponseKind::of(&sent);
            let accepted = matches!(result, ResponseKind::Status { status: 200..=299, .. });
            let is_creation = aggregate.as_ref().is_some_and(|aggregate| aggregate.accepted.is_none());
            let created = is_creation && accepted;
            self.measurements().add(Measured { kind, latency: due.elapsed(), created, result });
            match (kind, aggregate, sent) {
                (RequestKind::Command, Some(aggregate), _) => self.pool.after_command(aggregate, accepted),
                (RequestKind::Read, Some(aggregate), _) => self.pool.put_back(aggregate),
                (RequestKind::Hot(number), _, Ok(response)) => self.hot[number].saw(response.etag.as_deref()),
                _ => {}
            }
        }
    }

    /// The next request of a kind. Without an aggregate to read, a read becomes a command.
    fn request(&self, kind: RequestKind) -> PlannedRequest<'a> {
        if let RequestKind::Hot(number) = kind {
            let HotAggregate { script, id, version } = &self.hot[number];
            let if_match = self.args.if_match.then(|| format!("\"{}\"", version.load(Ordering::Relaxed)));
            let (path, body) = (script.commands_path(id), script.repeatable.as_ref().map(Value::to_string));
            return PlannedRequest { kind, aggregate: None, method: "POST", path, body, if_match };
        }
        let (kind, method, path, body, aggregate) = match self.pool.take(kind == RequestKind::Read) {
            TakenAggregate::ToRead(path, aggregate) => (RequestKind::Read, "GET", path, None, aggregate),
            TakenAggregate::ForCommand(aggregate) => {
                let PooledAggregate { script, id, accepted } = &aggregate;
                let (path, body) = match accepted.and_then(|accepted| script.commands.get(accepted)) {
                    Some(step) => (script.commands_path(id), step.command.to_string()),
                    None => (script.create_path(), script.create_body(id)),
                };
                (RequestKind::Command, "POST", path, Some(body), Some(aggregate))
            }
        };
        PlannedRequest { kind, aggregate, method, path, body, if_match: None }
    }

    /// Shows the progress, forever.
    async fn show(&self, start: Instant) {
        let progress = ProgressLine::of_fraction();
        let is_terminal = is_terminal();
        loop {
            sleep(if is_terminal { SHOW_EVERY } else { PRINT_EVERY }).await;
            let text = self.progress_text(start.elapsed());
            if is_terminal {
                progress.set_fraction(start.elapsed().as_secs_f64() / self.args.duration.as_secs_f64(), text);
            } else {
                eprintln!("{} s: {text}", start.elapsed().as_secs());
            }
        }
    }

    fn progress_text(&self, elapsed: Duration) -> String {
        let measurements = self.measurements();
        let requests = measurements.requests();
        let latencies = measurements.latencies();
        let (p50, p99) = latencies.last().map_or((0.0, 0.0), |(_, all)| (all.p50_ms, all.p99_ms));
        let (conflicts, failures) = (measurements.conflicts(), measurements.failures());
        let rate = requests as f64 / elapsed.as_secs_f64();
        format!(
            "{requests} responses, {rate:.1}/s, p50 {p50:.1} ms, p99 {p99:.1} ms, {conflicts} conflicts, {failures} failures"
        )
    }

    fn measurements(&self) -> MutexGuard<'_, Measurements> {
        self.measurements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HotAggregate<'_> {
    /// Stores the version of an `ETag`, such as `"4-1"`, if it is later than the stored one.
    fn saw(&self, etag: Option<&str>) {
        let version = etag.and_then(|etag| etag.trim_matches('"').split('-').next()?.parse().ok());
        self.version.fetch_max(version.unwrap_or_default(), Ordering::Relaxed);
    }
}

impl ResponseKind {
    fn of(sent: &Result<TextResponse, HttpError>) -> Self {
        #[derive(Deserialize)]
        struct Problem {
            #[serde(rename = "type")]
            problem_type: String,
        }
        match sent {
            Ok(response) => {
                let problem = (response.status >= 400).then(|| serde_json::from_str::<Problem>(&response.body).ok());
                let problem = problem.flatten().map(|problem| problem.problem_type.replace(PROBLEM_TYPE, ""));
                Self::Status { status: response.status, problem }
            }
            Err(error) => Self::None { reason: daybook_function_runtime::with_causes(&**error) },
        }
    }
}
