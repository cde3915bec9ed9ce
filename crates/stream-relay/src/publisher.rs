//! Publishes messages: makes the calls that the per-aggregate queues return, until all messages are settled or a limit
//! is reached.

use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use daybook_queue::Queue;
use daybook_table::Clock;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::breaker::Breaker;
use crate::clients::{BusCheck, NoSuchBus, WARM, check_bus};
use crate::dead_letter::{self, MAX_ATTEMPTS};
use crate::memory::Memory;
use crate::message::{EntryError, PendingMessage, Published};
use crate::put_events::{Failure, FailureKind, entry_results, is_tls_failure};
use crate::queues::{AggregateQueues, Disposition, NextCall};
use crate::settings::RelaySettings;
use crate::spans;

const CHECK_BUS_EVERY: Duration = Duration::from_secs(60);
/// Maximum requests of an invocation while the breaker is open: as many as 1,000 messages take.
const MAX_PROBES: usize = 100;
/// A message that failed this often with undocumented codes counts as unsendable.
const MAX_UNKNOWN_FAILURES: u32 = 5;

/// Sends messages to the bus, each aggregate's in order.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    /// A client that does not retry by itself.
    pub(crate) bus: aws_sdk_eventbridge::Client,
    pub(crate) settings: RelaySettings,
    /// The queue for messages that can never be sent: such a message is unsettled until the queue has accepted it.
    /// Without a queue, the message counts as settled, and the caller reports it.
    pub(crate) dead_letter_queue: Option<Queue>,
    pub(crate) memory: Memory,
    pub(crate) clock: Clock,
}

impl Publisher {
    /// Checks whether the bus was deleted, at most once a minute, beside a batch that has messages: `PutEvents` does not report
    /// that. Without a result, the last one counts, so a bus is missing until a check finds it.
    pub(crate) async fn check_bus(&self, has_messages: bool) -> Option<NoSuchBus> {
        let now = Instant::now();
        let checked = self.memory.lock().bus_checked;
        if !has_messages || checked.is_some_and(|at| now.duration_since(at) < CHECK_BUS_EVERY) {
            return None;
        }
        let check = check_bus(&self.bus, &self.settings.event_bus_name, WARM).await;
        let mut known = self.memory.lock();
        match check {
            BusCheck::Exists => known.missing_bus = None,
            BusCheck::Missing(missing) => {
                if known.missing_bus.replace(missing).is_none() {
                    known.forget_records();
                }
            }
            BusCheck::NotAllowed(_) | BusCheck::Failed(_) => {}
        }
        known.bus_checked = known.missing_bus.is_none().then_some(now);
        known.missing_bus.clone()
    }

    /// Settles as many of the messages as the limits allow. No new call starts after `stop`, after an error of the
    /// deployment, or when all responses have been failures for longer than `limits.patience`. Calls in flight are
    /// awaited.
    pub(crate) async fn publish(
        &self,
        messages: Vec<PendingMessage>,
        limits: &mut Limits,
        stop: impl Future<Output = ()>,
    ) -> Published {
        let queues = AggregateQueues::new(messages.iter().map(PendingMessage::queue_item));
        let queues = queues.with_max_requests(limits.max_requests);
        let mut publishing = Publishing {
            publisher: self,
            limits,
            queues,
            breaker: Breaker::new(self.memory.clone(), self.settings.retry),
            calls: JoinSet::new(),
            stopped: false,
            probes: 0,
            failing_since: None,
            published: Published { messages, ..Published::default() },
        };
        publishing.run(stop).await;
        publishing.end()
    }
}

struct Publishing<'a> {
    publisher: &'a Publisher,
    limits: &'a mut Limits,
    queues: AggregateQueues,
    breaker: Breaker,
    calls: JoinSet<FinishedCall>,
    stopped: bool,
    /// The number of requests that started while the breaker was open.
    probes: usize,
    failing_since: Option<Instant>,
    published: Published,
}

enum FinishedCall {
    PutEvents { request: Vec<usize>, results: Vec<Result<(), Failure>> },
    DeadLetter { index: usize, result: Result<(), String> },
}

impl Publishing<'_> {
    async fn run(&mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let cutoff = self.limits.cutoff;
        loop {
            // All decisions of one pass use the same time. The loop waits for anything that is due later.
            let now = Instant::now();
            if cutoff.is_some_and(|cutoff| now >= cutoff) {
                break;
            }
            self.judge_held(now);
            self.start_calls(now);
            let next_start = self.next_start(now);
            if self.calls.is_empty() && next_start.is_none() {
                return;
            }
            let wake = next_start.or(cutoff);
            tokio::select! {
                // Finished calls are handled before new ones start, so that the same responses always lead to the same
                // calls.
                biased;
                () = &mut stop, if !self.stopped => self.stopped = true,
                Some(call) = self.calls.join_next() => self.finish(call),
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
            }
        }
        while let Some(call) = self.calls.try_join_next() {
            self.finish(call);
        }
    }

    /// Lets held messages go to the dead-letter queue once their rejections count as those of single messages.
    fn judge_held(&mut self, now: Instant) {
        let is_decided = self.breaker.has_accepted() || (self.queues.is_quiet() && !self.breaker.is_open());
        if self.queues.has_held() && is_decided {
            self.breaker.presume_single(now);
            self.queues.release_held();
        }
    }

    /// Whether a call may start. While the breaker is open, calls start one after the other: they are probes of whether
    /// the bus accepts other messages.
    fn may_start(&self) -> bool {
        !self.stopped && (!self.breaker.is_open() || (self.calls.is_empty() && self.probes < MAX_PROBES))
    }

    fn start_calls(&mut self, now: Instant) {
        while self.may_start()
            && self.limits.next_request_at.is_none_or(|at| at <= now)
            && let Some(step) = self.queues.next(now)
        {
            match step {
                NextCall::Send(request) => self.send(request),
                NextCall::DeadLetter(index) => self.send_dead_letter(index),
            }
        }
    }

    /// The time at which a call may start next if none in flight finishes before; `None` if never.
    fn next_start(&self, now: Instant) -> Option<Instant> {
        let rate_allows_at = self.limits.next_request_at.filter(|&at| at > now && !self.queues.is_idle());
        let at = rate_allows_at.or_else(|| self.queues.next_attempt_at(now));
        at.filter(|&at| self.may_start() && self.limits.cutoff.is_none_or(|cutoff| at < cutoff))
    }

    fn send(&mut self, request: Vec<usize>) {
        self.limits.request_started(request.len());
        self.probes += usize::from(self.breaker.is_open());
        self.published.calls += 1;
        self.published.retried.extend(request.iter().filter(|&&index| self.queues.attempts(index) > 1));
        request.iter().for_each(|&index| self.published.messages[index].attempts.count += 1);
        let Publisher { bus, settings, .. } = self.publisher;
        let entries = request.iter().filter_map(|&index| self.published.messages[index].entry(settings));
        let call = bus.put_events().set_entries(Some(entries.collect())).send();
        let span = spans::put_events(request.iter().map(|&index| &self.published.messages[index].span));
        // Boxed, because the call is a large value, which would be copied several times on its way into the set.
        self.calls.spawn(Box::pin(async move {
            let results = entry_results(request.len(), call.await);
            let failed = results.iter().filter(|result| result.is_err()).count();
            span.record("daybook.failed_entries", failed);
            if failed > 0 {
                span.record("otel.status_code", "error");
            }
            FinishedCall::PutEvents { request, results }
        }));
    }

    fn send_dead_letter(&mut self, index: usize) {
        let Some(queue) = self.publisher.dead_letter_queue.clone() else {
            self.queues.dead_letter_finished(index, true);
            return;
        };
        let body = dead_letter::body(&self.published.messages[index], self.publisher.clock.now().into());
        let cutoff = self.limits.cutoff;
        self.calls.spawn(async move {
            let result = match body {
                Ok(body) => queue.send(&body, MAX_ATTEMPTS, cutoff).await,
                Err(error) => Err(error.to_string()),
            };
            FinishedCall::DeadLetter { index, result }
        });
    }

    fn finish(&mut self, call: Result<FinishedCall, JoinError>) {
        match call {
            Ok(FinishedCall::PutEvents { request, results }) => self.finish_request(&request, results),
            Ok(FinishedCall::DeadLetter { index, result }) => self.finish_dead_letter(index, result),
            // The messages of the call stay in flight, and so remain unsettled.
            Err(error) => tracing::error!(%error, "a call ended abnormally"),
        }
    }

    fn finish_request(&mut self, request: &[usize], results: Vec<Result<(), Failure>>) {
        // All failed entries wait equally long, so that they share a request again.
        let attempts = request.iter().map(|&index| self.queues.attempts(index)).max().unwrap_or_default();
        let now = Instant::now();
        let retry_at = now + self.publisher.settings.retry.waits.after(attempts);

        self.published.tls_failures += usize::from(results.iter().any(is_tls_failure));
        let mut dispositions = Vec::with_capacity(request.len());
        for (&index, result) in request.iter().zip(results) {
            let disposition = match result {
                Ok(()) => {
                    self.published.count_sent(index, self.publisher.clock.now().into());
                    self.breaker.accepted(now);
                    spans::end(&mut self.published.messages[index].span, "sent");
                    Disposition::Sent
                }
                Err(failure) => self.failed(index, failure, now, retry_at),
            };
            dispositions.push((index, disposition));
        }
        let fails = |disposition| matches!(disposition, Disposition::RetryAt(_) | Disposition::RetryAlone);
        if dispositions.iter().any(|&(_, disposition)| !fails(disposition)) {
            self.failing_since = None;
        } else {
            let since = *self.failing_since.get_or_insert_with(Instant::now);
            self.stopped |= self.limits.patience.is_some_and(|patience| since.elapsed() >= patience);
        }
        self.queues.request_finished(dispositions);
    }

    fn failed(&mut self, index: usize, failure: Failure, now: Instant, retry_at: Instant) -> Disposition {
        if failure.kind == FailureKind::Deployment {
            self.stopped = true;
            self.published.deployment_error.get_or_insert_with(|| failure.error.clone());
        }
        let message = &mut self.published.messages[index];
        let (attempts, code) = (&mut message.attempts, &failure.error.code);
        message.unknown_failures += u32::from(failure.kind == FailureKind::Unknown);
        let has_queue = self.publisher.dead_letter_queue.is_some();
        let disposition = match failure.kind {
            FailureKind::Transient if has_queue && self.breaker.is_given_up(index, attempts, code, now) => {
                Disposition::Unsendable
            }
            FailureKind::Transient | FailureKind::Throttled | FailureKind::Deployment => Disposition::RetryAt(retry_at),
            FailureKind::Unknown if message.unknown_failures < MAX_UNKNOWN_FAILURES => Disposition::RetryAt(retry_at),
            FailureKind::Unknown | FailureKind::Permanent => Disposition::Held,
            FailureKind::Suspect => Disposition::RetryAlone,
        };
        if disposition == Disposition::Held && has_queue {
            self.breaker.rejected(index, message.id(), code, now);
        }
        if matches!(disposition, Disposition::Held | Disposition::Unsendable) {
            message.permanent_error = Some(failure.error);
        } else {
            message.last_error = Some(failure.error);
            self.published.last_failed = Some(index);
        }
        disposition
    }

    fn end(mut self) -> Published {
        self.published.unsettled = self.queues.unsettled().collect();
        for &index in &self.published.unsettled {
            spans::end(&mut self.published.messages[index].span, "unsettled");
        }
        let rejected = self.breaker.rejected_by_the_bus().map(|index| &self.published.messages[index]);
        self.published.breaker_error = rejected.and_then(|message| message.permanent_error.clone());
        self.published
    }

    fn finish_dead_letter(&mut self, index: usize, result: Result<(), String>) {
        let message = &mut self.published.messages[index];
        let id = message.id();
        let (code, text) = EntryError::fields(message.permanent_error.as_ref());
        match &result {
            Ok(()) => {
                self.published.dead_lettered += 1;
                tracing::warn!(id, code, text, "sent to the dead-letter queue");
                spans::end(&mut message.span, "dead-lettered");
            }
            Err(error) => {
                tracing::error!(id, code, text, error, "the dead-letter queue rejected a message");
                message.last_error = Some(EntryError::new("NotDeadLettered", error));
                message.attempts.rejection = message.permanent_error.clone();
                self.published.last_failed = Some(index);
            }
        }
        self.queues.dead_letter_finished(index, result.is_ok());
    }
}

/// The limits of publishing. Without limits, it ends when nothing more can be settled.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// The time at which publishing ends. Calls in flight are abandoned; their messages count as unsettled, although
    /// they may have arrived.
    pub(crate) cutoff: Option<Instant>,
    /// Publishing ends when the bus has returned nothing but failures for this long.
    pub(crate) patience: Option<Duration>,
    /// Maximum concurrent requests; `None` for those of the relay.
    pub(crate) max_requests: Option<usize>,
    /// Maximum messages per second, over all batches that are published with these limits.
    pub(crate) rate: Option<NonZeroU32>,
    /// The time before which no request starts, because of the rate.
    pub(crate) next_request_at: Option<Instant>,
}

impl Limits {
    /// Delays the next request by the time that this one takes at the maximum rate.
    pub(crate) fn request_started(&mut self, entries: usize) {
        if let Some(rate) = self.rate {
            let time = Duration::from_secs(1) * u32::try_from(entries).unwrap_or(u32::MAX) / rate.get();
            let now = Instant::now();
            self.next_request_at = Some(self.next_request_at.map_or(now, |at| at.max(now)) + time);
        }
    }
}
