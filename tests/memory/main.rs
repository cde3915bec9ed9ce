//! The memory of the command handler for a request grows at most linearly with the request's body, whatever the body
//! contains.
//!
//! `allocation-counter` replaces the allocator of this test binary and counts the allocations of one thread. The database
//! therefore runs in other threads, and the binary has only one test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod sheet;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use allocation_counter::AllocationInfo;
use axum::Router;
use daybook_command_handler::gateway::{self, ApiEvent};
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_decider::Registry;
use daybook_event_store::EventStore;
use daybook_settings::Environment;
use daybook_test_support::table::TestTable;
use lambda_http::{Context, LambdaEvent};
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};
use tower::ServiceExt;

use self::bodies::SHAPES;
use self::sheet::Sheet;

const KIB: usize = 1024;

/// The bytes of the bodies: a small one and a large one show that the growth is linear.
const SIZES: [usize; 2] = [128 * KIB, 1024 * KIB];

/// The bytes that a request may use at once, besides those for each byte of its body.
const PEAK_WITHOUT_BODY: usize = 256 * KIB;

/// The allocations that a request may make, besides those for each byte of its body.
const ALLOCATIONS_WITHOUT_BODY: usize = 5_000;

#[test]
fn memory_for_a_request_grows_at_most_linearly_with_its_body() {
    let instance = Instance::start();
    instance.send("/sheet", "create", r#"{"id":"1"}"#);
    for shape in &SHAPES {
        for size in SIZES {
            let body = (shape.body)(size);
            assert!(body.len().abs_diff(size) < 10 * KIB, "{}: {} bytes, not {size}", shape.name, body.len());
            let key = format!("{}-{size}", shape.name.replace(' ', "-"));
            let (status, used) = instance.send("/sheet/1/commands", &key, &body);
            let (peak, allocations) =
                (usize::try_from(used.bytes_max).unwrap(), usize::try_from(used.count_total).unwrap());
            let measured = format!("{peak} bytes at once, {allocations} allocations");
            println!("{}, {} KB: {status}, {measured}", shape.name, size / KIB);
            assert!([200, 413, 422].contains(&status), "{}: {status}", shape.name);
            assert!(
                peak <= shape.peak_per_byte * body.len() + PEAK_WITHOUT_BODY,
                "{}, {size} bytes: {measured}",
                shape.name
            );
            assert!(
                allocations <= shape.allocations_per_kilobyte * body.len() / KIB + ALLOCATIONS_WITHOUT_BODY,
                "{}, {size} bytes: {measured}",
                shape.name
            );
        }
    }
}

/// A command handler on the thread of the test, over a table whose database runs in other threads.
struct Instance {
    runtime: Runtime,
    router: Router,
}

impl Instance {
    fn start() -> Self {
        let registry = Registry::new().with::<Sheet>().unwrap();
        let settings = ApiSettings::read(&Environment::default()).unwrap();
        Self {
            runtime: runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            router: router(Api::new(registry, store(), settings)),
        }
    }

    /// Sends a request in API Gateway's form. Returns the status of its response and the memory that both used.
    fn send(&self, path: &str, key: &str, body: &str) -> (u64, AllocationInfo) {
        let event = event(path, key, body).to_string();
        let mut status = 0;
        let used = allocation_counter::measure(|| {
            let event: ApiEvent = serde_json::from_str(&event).unwrap();
            let response = gateway::function(self.router.clone()).oneshot(LambdaEvent::new(event, context()));
            let response = serde_json::to_string(&self.runtime.block_on(response).unwrap()).unwrap();
            allocation_counter::opt_out(|| {
                let response: Value = serde_json::from_str(&response).unwrap();
                status = response["statusCode"].as_u64().unwrap();
            });
        });
        (status, used)
    }
}

/// A store whose table stays until the process ends.
fn store() -> EventStore {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let table = TestTable::new().await;
            sender.send(table.direct_store()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
}

fn event(path: &str, key: &str, body: &str) -> Value {
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "idempotency-key": key},
        "requestContext": {
            "http": {"method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "203.0.113.7"},
            "stage": "$default",
            "timeEpoch": 0,
        },
        "body": body,
        "isBase64Encoded": false,
    })
}

/// An invocation with so much time left that no test fails on a slow machine.
fn context() -> Context {
    let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(300);
    let mut context = Context::default();
    context.deadline = u64::try_from(end.as_millis()).unwrap();
    context
}
