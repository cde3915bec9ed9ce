//! A function instance that can crash: at one of its calls, before or after the call took effect.

use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

/// The point of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Before the call with this number, counted from 0, is sent.
    BeforeCall(usize),
    /// After the call took effect, before its response.
    AfterCall(usize),
    /// Instead of the poll with this number.
    AtPoll(usize),
}

/// The state of a process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    state: Mutex<State>,
    crashed: Notify,
    /// How much longer its calls take than those of others: by this multiple.
    slowness: u32,
}

#[derive(Debug, Default)]
struct State {
    crash: Option<Crash>,
    calls: usize,
    /// The partition whose calls the table refuses.
    unreachable: Option<String>,
}

impl Process {
    /// A process whose calls take longer.
    pub(crate) fn slow(slowness: u32) -> Self {
        Self { slowness, ..Self::default() }
    }

    pub(crate) fn latency(&self, usual: Duration) -> Duration {
        usual * (1 + self.slowness)
    }

    /// Starts an invocation or a command, which crashes at this point, if any.
    pub(crate) fn begin(&self, crash: Option<Crash>) {
        *self.state.lock().unwrap() = State { crash, calls: 0, unreachable: None };
    }

    /// From now on until the next [`begin`](Self::begin), the table refuses the calls of this partition.
    pub(crate) fn lose_partition(&self, pk: String) {
        self.state.lock().unwrap().unreachable = Some(pk);
    }

    /// Whether the table refuses a call with this body.
    pub(crate) fn is_refused(&self, body: &str) -> bool {
        let state = self.state.lock().unwrap();
        state.unreachable.as_ref().is_some_and(|pk| body.contains(&format!("{{\"S\":\"{pk}\"}}")))
    }

    /// Counts a call, and returns whether the process crashes before or after it.
    pub(crate) fn call(&self) -> (bool, bool) {
        let mut state = self.state.lock().unwrap();
        let number = state.calls;
        state.calls += 1;
        (state.crash == Some(Crash::BeforeCall(number)), state.crash == Some(Crash::AfterCall(number)))
    }

    /// Crashes: [`run`](Self::run) ends, and this future never continues.
    pub(crate) async fn crash(&self) -> ! {
        self.crashed.notify_one();
        match std::future::pending::<std::convert::Infallible>().await {}
    }

    /// Runs an invocation or a command that has [begun](Self::begin). Without a result, it has crashed.
    pub(crate) async fn run<F: Future>(&self, running: F) -> Option<F::Output> {
        let crash = self.state.lock().unwrap().crash;
        let mut polls = if let Some(Crash::AtPoll(polls)) = crash { polls } else { usize::MAX };
        let mut running = std::pin::pin!(running);
        let polled = std::future::poll_fn(|context| {
            if polls == 0 {
                return Poll::Ready(None);
            }
            polls -= 1;
            running.as_mut().poll(context).map(Some)
        });
        tokio::select! {
            biased;
            result = polled => result,
            () = self.crashed.notified() => None,
        }
    }
}
