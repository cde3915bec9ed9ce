//! A function instance that can die: at one of its calls, before or after the call took effect.

use std::sync::Mutex;

use tokio::sync::Notify;

/// Where a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Before its call of this number, counted from 0, has gone out.
    BeforeCall(usize),
    /// After it took effect, before the answer.
    AfterCall(usize),
    /// Instead of being polled for this many times.
    AtPoll(usize),
}

/// The life of a process.
#[derive(Debug, Default)]
pub(crate) struct Life {
    state: Mutex<State>,
    dead: Notify,
}

#[derive(Debug, Default)]
struct State {
    crash: Option<Crash>,
    calls: usize,
}

impl Life {
    /// Starts over, to end so.
    pub(crate) fn begin(&self, crash: Option<Crash>) {
        *self.state.lock().unwrap() = State { crash, calls: 0 };
    }

    /// Counts a call, and says whether the process dies before or after it.
    pub(crate) fn call(&self) -> (bool, bool) {
        let mut state = self.state.lock().unwrap();
        let number = state.calls;
        state.calls += 1;
        (state.crash == Some(Crash::BeforeCall(number)), state.crash == Some(Crash::AfterCall(number)))
    }

    /// Dies: whoever runs the process sees [`dead`](Self::dead), and nothing goes on here.
    pub(crate) async fn die(&self) -> ! {
        self.dead.notify_one();
        match std::future::pending::<std::convert::Infallible>().await {}
    }

    /// Ends when the process dies.
    pub(crate) async fn dead(&self) {
        self.dead.notified().await;
    }
}

/// Ends with `None` instead of polling `future` for the `polls`th time.
pub(crate) async fn until_poll<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return std::task::Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}
