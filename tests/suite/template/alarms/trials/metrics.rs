//! The counters that the functions record on one thread. Each trial has its own thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString, Unit,
    set_default_local_recorder,
};

/// The counters of this thread, from their creation until they are dropped.
pub(super) struct ThreadCounters {
    counters: &'static Counters,
    _guard: LocalRecorderGuard<'static>,
}

impl ThreadCounters {
    pub(super) fn start() -> Self {
        let counters: &'static Counters = Box::leak(Box::default());
        Self { counters, _guard: set_default_local_recorder(counters) }
    }

    /// A count since it was last taken.
    pub(super) fn get(&self, name: &str) -> u64 {
        self.counters.0.lock().unwrap().get(name).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The latest value of a histogram since it was last taken.
    pub(super) fn latest(&self, name: &str) -> Option<f64> {
        self.counters.1.lock().unwrap().get(name)?.0.lock().unwrap().take()
    }

    /// The counts since they were last taken, without those of zero, which a function does not write.
    pub(super) fn take(&self) -> BTreeMap<String, u64> {
        let counters = self.counters.0.lock().unwrap();
        let counts = counters.iter().map(|(name, count)| (name.clone(), count.swap(0, Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>, Mutex<BTreeMap<String, Arc<Latest>>>);

/// The latest value of a histogram.
#[derive(Default)]
struct Latest(Mutex<Option<f64>>);

impl HistogramFn for Latest {
    fn record(&self, value: f64) {
        *self.0.lock().unwrap() = Some(value);
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(key.name().to_owned()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(self.1.lock().unwrap().entry(key.name().to_owned()).or_default()))
    }
}
