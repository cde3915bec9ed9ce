//! Decisions over several aggregates, over HTTP.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::http::Method;
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::instance::{Instance, answer, request, send, settings, whole};

const SEATS: usize = 100;

/// A number from the environment, or else this one.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn course() -> Value {
    json!({"id": "rust", "seats": SEATS})
}

/// `SEATS_PROCESSES=10 SEATS_CLIENTS=64` is the number of processes and of clients, each of which goes on until it is rejected.
/// By default, there are fewer, because a debug build takes long.
#[tokio::test(flavor = "multi_thread")]
async fn each_seat_is_sold_once_and_nobody_is_rejected_while_one_is_free() {
    let (processes, clients) = (number("SEATS_PROCESSES", 4), number("SEATS_CLIENTS", 24));
    let instance = Instance::start().await;
    let new_process = || router(Api::new(aggregates::registry().unwrap(), instance.table.store(), settings()));
    let processes: Vec<_> = (0..processes).map(|_| new_process()).collect();
    let requests = SEATS + clients;
    instance.post("/course", course()).await.expect(201);
    for number in 0..requests {
        instance.post("/student", json!({"id": format!("s{number}")})).await.expect(201);
    }
    let next = AtomicUsize::new(0);
    // Sends a request until it has an answer that is no failure.
    let post = async |client: usize, path: &str, body: Value| {
        let process = &processes[client % processes.len()];
        let key = format!("k{}", body["id"].as_str().unwrap_or_default());
        loop {
            let answer = send(process, Method::POST, path, &[("idempotency-key", &key)], Some(body.clone())).await;
            if answer.status != 503 {
                return answer;
            }
        }
    };
    instance.table.proxy.take_calls();
    let start = Instant::now();
    let sold = join_all((0..clients).map(async |client| {
        let mut sold = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let body = json!({"id": format!("b{number}"), "course": "rust", "student": format!("s{number}")});
            let answer = post(client, "/subscription", body).await;
            if answer.status == 201 {
                sold.push(number);
                continue;
            }
            assert_eq!(answer.expect_problem(422, "refused").body["rejection"], "CourseFull");
            let course = instance.get("/course/rust").await.expect(200);
            assert_eq!(course.body["state"]["taken"], SEATS, "a client was rejected while a seat was free");
            return sold;
        }
    }));
    let sold: Vec<_> = sold.await.into_iter().flatten().collect();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!((sold.len(), sold.iter().collect::<BTreeSet<_>>().len()), (SEATS, SEATS));
    let calls = instance.table.proxy.take_calls();
    let appends: Vec<_> = calls.iter().filter(|call| call.operation == "TransactWriteItems").collect();
    let units: f64 = appends.iter().map(|call| call.table_units + call.index_units).sum();
    let of_sales = SEATS as f64;
    println!(
        "{clients} clients, {} processes: {SEATS} seats in {seconds:.1} s, {:.0} a second; {} transactions, {} of them without \
         effect; {:.1} units a subscription",
        processes.len(),
        of_sales / seconds,
        appends.len(),
        appends.iter().filter(|call| call.status != 200).count(),
        units / of_sales,
    );
    for number in 0..requests {
        let courses = usize::from(sold.contains(&number));
        let student = instance.get(&format!("/student/s{number}")).await.expect(200);
        assert_eq!(student.body["state"]["courses"], courses);
        let subscription = instance.get(&format!("/subscription/b{number}")).await;
        assert_eq!(subscription.status, if courses == 1 { 200 } else { 404 });
    }
    let (rate, units) = rate_of_one_account(&instance, &processes, clients, requests).await;
    println!("one account: {requests} commands, {rate:.0} a second; {units:.1} units each");
}

/// The rate of as many commands to one aggregate, and the units of each, for comparison.
async fn rate_of_one_account(instance: &Instance, processes: &[Router], clients: usize, requests: usize) -> (f64, f64) {
    instance.post("/account", json!({"id": "hot"})).await.expect(201);
    instance.table.proxy.take_calls();
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    join_all((0..clients).map(async |client| {
        while next.fetch_add(1, Ordering::Relaxed) < requests {
            let payment = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}});
            let process = &processes[client % processes.len()];
            while send(process, Method::POST, "/account/hot/commands", &[], Some(payment.clone())).await.status != 200 {
            }
        }
    }))
    .await;
    let seconds = start.elapsed().as_secs_f64();
    let units: f64 = instance.table.proxy.take_calls().iter().map(|call| call.table_units + call.index_units).sum();
    let requests = requests as f64;
    (requests / seconds, units / requests)
}

/// A subscription appends to the course and the student in one transaction, which each other writer of the course makes fail.
#[tokio::test(flavor = "multi_thread")]
async fn request_for_several_aggregates_is_not_starved_by_the_writers_of_one() {
    const SUBSCRIPTIONS: usize = 10;
    let instance = Instance::start().await;
    let [theirs, ours] = [(); 2].map(|()| instance.beside());
    instance.post("/course", course()).await.expect(201);
    for number in 0..SUBSCRIPTIONS {
        instance.post("/student", json!({"id": format!("s{number}")})).await.expect(201);
    }
    let is_done = AtomicBool::new(false);
    let writer = async |client: usize| {
        let mut written = 0;
        while !is_done.load(Ordering::Relaxed) {
            let change = json!({"command": "ChangeSeats", "data": {"seats": SEATS + client + 10 * (written % 2)}});
            let process = if client == 0 { &ours } else { &theirs };
            send(process, Method::POST, "/course/rust/commands", &[], Some(change)).await.expect(200);
            written += 1;
        }
        written
    };
    let subscriber = async {
        for number in 0..SUBSCRIPTIONS {
            let body = json!({"id": format!("b{number}"), "course": "rust", "student": format!("s{number}")});
            send(&ours, Method::POST, "/subscription", &[], Some(body)).await.expect(201);
        }
        is_done.store(true, Ordering::Relaxed);
    };
    let (written, ()) = tokio::join!(join_all((0..9).map(writer)), subscriber);
    assert!(written.iter().all(|written| *written > 0), "{written:?}");
}

async fn joint(instance: &Instance, commands: Value) -> suite_tests::ApiResponse {
    whole(answer(&instance.router, request(Method::POST, "/commands", &[], Some(commands))).await).await
}

fn change(seats: usize) -> Value {
    json!({"aggregate": "course/rust", "command": "ChangeSeats", "data": {"seats": seats}})
}

fn with_version(mut command: Value, version: u64) -> Value {
    command["ifMatch"] = version.into();
    command
}

fn enrol(id: &str) -> Value {
    json!({"aggregate": format!("student/{id}"), "command": "Enrol"})
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_version_is_compared_only_for_commands_that_the_caller_may_send() {
    let instance = Instance::start().await;
    instance.post("/course", course()).await.expect(201);
    instance.post("/student", json!({"id": "ann"})).await.expect(201);
    instance.post("/subscription", json!({"id": "b", "course": "rust", "student": "ann"})).await.expect(201);
    let take = json!({"aggregate": "course/rust", "command": "TakeSeat"});
    joint(&instance, json!([with_version(take.clone(), 7)])).await.expect_problem(403, "forbidden");
    joint(&instance, json!([enrol("1"), with_version(take.clone(), 7)])).await.expect_problem(403, "forbidden");
    // One that comes after a rejected command is not reached.
    let rejected = json!([change(0), with_version(take, 7)]);
    assert_eq!(joint(&instance, rejected).await.expect_problem(422, "refused").body["index"], 0);
    let conflict = joint(&instance, json!([enrol("1"), with_version(change(5), 7)])).await;
    let conflict = conflict.expect_problem(409, "version-conflict").body;
    assert_eq!(
        (&conflict["index"], &conflict["aggregate"], &conflict["actual"]),
        (&1.into(), &"course/rust".into(), &2.into())
    );
    instance.get("/student/1").await.expect(404);
    let exists = json!({"aggregate": "course/rust", "command": "CreateCourse", "data": {"seats": 1}});
    for commands in [json!([exists]), json!([enrol("1"), exists])] {
        let exists = joint(&instance, commands).await.expect_problem(409, "already-exists");
        assert_eq!(exists.header("etag"), "");
    }
    joint(&instance, json!([enrol("1"), with_version(change(5), 2)])).await.expect(200);
    // A new aggregate has no version yet.
    let conflict = joint(&instance, json!([change(6), with_version(enrol("2"), 3)])).await;
    assert_eq!(conflict.expect_problem(409, "version-conflict").body["actual"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_to_several_aggregates_need_an_expected_version_where_it_is_required() {
    let strict = ApiSettings { require_if_match: true, ..settings() };
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let instance = Instance::with(engine, aggregates::registry().unwrap(), strict).await;
    joint(
        &instance,
        json!([enrol("1"), {"aggregate": "course/rust", "command": "CreateCourse", "data": {"seats": 1}}]),
    )
    .await
    .expect(200);
    for commands in [json!([change(2)]), json!([enrol("2"), change(2)])] {
        let required = joint(&instance, commands).await.expect_problem(428, "if-match-required");
        assert_eq!(required.body["aggregate"], "course/rust");
    }
    // One command with it is enough for its aggregate.
    joint(&instance, json!([enrol("2"), with_version(change(2), 1), change(3)])).await.expect(200);
    joint(&instance, json!([{"aggregate": "course/rust", "command": "TakeSeat"}]))
        .await
        .expect_problem(403, "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_aggregates_are_an_error_before_any_call() {
    let instance = Instance::start().await;
    let claimed = |number: usize| {
        let claim = format!("personal-email:{number}@example.com");
        json!({"claim": claim, "command": "ChangeEmail", "data": {"email": "a@example.com"}})
    };
    let many = |command: &dyn Fn(usize) -> Value| (0..12).map(command).collect::<Value>();
    for commands in [many(&|number| enrol(&number.to_string())), many(&claimed)] {
        joint(&instance, commands).await.expect_problem(413, "too-large");
    }
    assert_eq!(instance.table.operations(), [""; 0]);
    joint(&instance, (0..11).map(|number| enrol(&number.to_string())).collect()).await.expect(200);
    // An id that no aggregate can have is not looked up.
    let nobody = json!({"id": "1", "course": "a/b", "student": "\u{0}"});
    let rejected = instance.post("/subscription", nobody).await.expect_problem(422, "refused");
    assert_eq!(rejected.body["rejection"], "NoSuchCourse");
}
