//! The schedules of erasure: writers, as in [`schedule`](crate::schedule), of customers and of visits with their names, in two
//! releases. Then each customer is forgotten by processes that crash at any step, while others have its values and its key in
//! memory. Then tables are restored, and each customer is forgotten again.
//!
//! Checked in each schedule:
//! - A process that has forgotten a customer answers without its values at once, each other one 150 seconds later: in states of
//!   any version, events, feeds, views, and responses to new and repeated requests. Before, a read has them or fails: a key that
//!   cannot be read does not count as ended.
//! - No personal value is in plain text in a call, a row, a record of the stream, a message, a log line or a span, at any time;
//!   the keys of the customers end, and their claims are released.
//! - Keys that are not restored stay ended. `verify` finds each customer whose restored state and key disagree, and nothing once
//!   it is forgotten again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use axum::{Router, http};
use daybook_admin::{AdminCalls, Derived};
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_projection::Projections;
use daybook_projector::{EventRange, Projecting};
use daybook_settings::Environment;
use daybook_table::AggregateKey;
use daybook_test_support::commands::deadline;
use daybook_test_support::log::{capture_everything, take_everything};
use daybook_test_support::names::Names;
use daybook_test_support::row::uncompressed;
use daybook_view_store::ViewStore;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::ServiceExt;

use crate::bell::{earlier_registry, registry};
use crate::clock::in_virtual_time;
use crate::database::{KEYS_TABLE, TABLE};
use crate::dice::Dice;
use crate::log::LogContents;
use crate::process::{Crash, Process};
use crate::read_models::VIEWS_TABLE;
use crate::schedule::{check_claims, verify, write_and_deliver};
use crate::writers::{EMAILS, PERSONAL, Work};

/// The time after which no process uses a key that has ended.
const KEY_LIFETIME: Duration = Duration::from_secs(151);

/// The maximum number of times that a request crashes. Later, calls do not fail either.
const CRASHES: usize = 4;

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        capture_everything();
        let mut dice = Dice::new(seed, "erasure");
        let types = ["customer", "visit", "customer", "visit", "order"];
        let mut keys: Vec<_> = types.iter().zip(0..).map(|(of, id)| AggregateKey::new(*of, format!("{id}"))).collect();
        keys.truncate(dice.size(1..=5));
        let work = Arc::new(Work::begin(seed, verbose, registry(), keys.clone()));
        write_and_deliver(&work, &mut dice).await;
        let customers = keys.into_iter().filter(|key| key.aggregate_type == "customer").collect();
        Erasure { work: Arc::clone(&work), customers, dice, epoch: 1 }.run().await;
        let written = take_everything();
        work.log.expect(!written.contains(PERSONAL), || format!("the log has a personal value: {written}"));
        work.log.expect(written.contains("otel.kind"), || "the log has no spans".to_owned());
        work.log.contents()
    })
}

struct Erasure {
    work: Arc<Work>,
    customers: Vec<AggregateKey>,
    dice: Dice,
    /// The epoch of new processes.
    epoch: u32,
}

/// A process of the command handler.
struct Instance {
    process: Arc<Process>,
    router: Router,
}

/// An answer: status, headers and body.
type Answer = (u16, String);

impl Instance {
    /// Sends a request. Without an answer, the process has crashed.
    async fn ask(&self, method: Method, path: &str, key: &str, body: &Value) -> Option<Answer> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.process.run(self.router.clone().oneshot(request.body(body).unwrap())).await?;
        let (http::response::Parts { status, headers, .. }, body) = response.unwrap().into_parts();
        let body = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
        Some((status.as_u16(), format!("{headers:?} {body}")))
    }

    /// Sends a request to a process that does not crash.
    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "", &Value::Null).await.expect("it does not crash")
    }

    async fn post(&self, path: &str, key: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, key, &body).await.expect("it does not crash")
    }
}

impl Erasure {
    async fn run(mut self) {
        let views = ViewStore::new(&self.work.database.config(Arc::default()), VIEWS_TABLE);
        views.create_table().await.unwrap();
        let processes: Vec<_> = (0..3).map(|number| self.instance(number)).collect();
        let live = self.warm_up(&processes, &views).await;
        let copy = [TABLE, KEYS_TABLE].map(|table| (table, self.work.database.all_rows(table)));
        for (customer, process) in self.customers.clone().iter().zip(processes.iter().cycle()) {
            self.forget(customer, process).await;
        }
        sleep(KEY_LIFETIME).await;
        for process in processes.iter().chain([&self.instance(0)]) {
            self.check_answers(process).await;
        }
        self.project(&views).await;
        self.check_stored();
        verify(&self.work, &self.store(Arc::default()), &self.keys()).await;

        let tables = self.dice.one_of(&[&[TABLE][..], &[KEYS_TABLE], &[TABLE, KEYS_TABLE]]);
        for (table, rows) in copy.iter().filter(|(table, _)| tables.contains(table)) {
            self.work.database.replace_rows(table, rows);
        }
        self.epoch = 2;
        self.forget_again(tables, &live).await;
    }

    /// Brings the values into the caches of processes. Each customer then exists, and a visit has its name, unless it was
    /// forgotten before. Returns the customers that were not.
    async fn warm_up(&mut self, processes: &[Instance], views: &ViewStore) -> BTreeSet<AggregateKey> {
        let mut live = BTreeSet::new();
        for customer in &self.customers.clone() {
            let id = &customer.id;
            let new = json!({"id": id, "email": format!("{id}@{PERSONAL}"), "name": name(customer)});
            processes[0].post("/customer", "", new).await;
            processes[0].post("/visit", "begin", self.visit(customer)).await;
            if processes[0].get(&format!("/customer/{id}")).await.1.contains(PERSONAL) {
                live.insert(customer.clone());
            }
        }
        for key in &self.keys() {
            let (store, model) = (self.store(Arc::default()), self.work.registry.get(&key.aggregate_type).unwrap());
            if self.dice.chance(0.5) {
                store.take_snapshot(model, key, self.work.clock.timestamp()).await.unwrap();
            }
        }
        self.project(views).await;
        self.work.database.start_faults();
        for process in processes {
            for customer in &live {
                for path in own_paths(customer) {
                    let (status, answer) = process.get(&path).await;
                    let is_right = status >= 500 || answer.contains(PERSONAL);
                    self.work.log.expect(is_right, || format!("{customer} is not forgotten, and {path} is {answer}"));
                }
            }
        }
        self.work.database.stop_faults();
        sleep(Duration::from_secs(60)).await;
        for process in processes {
            let answers = self.answers(process).await;
            self.work.log.expect(live.is_empty() || answers.contains(PERSONAL), || format!("no values in {answers}"));
        }
        live
    }

    /// Forgets a customer: a client repeats the request until it has an answer, also when calls fail and processes crash.
    async fn forget(&mut self, customer: &AggregateKey, first: &Instance) {
        let work = Arc::clone(&self.work);
        work.database.start_faults();
        let (path, body) = (format!("/customer/{}/commands", customer.id), json!({"command": "ForgetCustomer"}));
        let mut replacement = None;
        for attempt in 0.. {
            let by = replacement.as_ref().unwrap_or(first);
            if attempt >= CRASHES {
                work.database.stop_faults();
            }
            let step = self.dice.size(0..=4);
            let crash = self.dice.one_of(&[None, Some(Crash::BeforeCall(step)), Some(Crash::AfterCall(step))]);
            by.process.begin(crash.filter(|_| attempt < CRASHES));
            let answer = by.ask(Method::POST, &path, "forget", &body).await;
            by.process.begin(None);
            work.log.line(|| format!("forgets {customer}, {crash:?}: {:?}", answer.as_ref().map(|(status, _)| status)));
            match answer {
                None => {
                    work.log.count(&format!("forgetting crash {:?}", crash.unwrap()));
                    replacement = Some(self.instance(attempt));
                }
                Some((500.., _)) if attempt < 2 * CRASHES => sleep(Duration::from_secs(1)).await,
                Some((status, answer)) => {
                    work.log.expect(status < 500, || format!("{customer} is not forgotten: {answer}"));
                    work.database.stop_faults();
                    // A process that repeats an answer has not forgotten itself.
                    if status == 200 && !answer.contains("idempotency-replayed") {
                        work.log.count("customer forgotten by a request");
                        let answers = self.answers_about(by, customer).await;
                        self.search("an answer of the process that forgot", &answers);
                    }
                    self.search("the answer", &answer);
                    break;
                }
            }
        }
        // Calls that were sent still arrive.
        sleep(Duration::from_secs(60)).await;
    }

    /// Forgets each customer again after these tables were restored to the time before it was forgotten.
    async fn forget_again(&mut self, tables: &[&str], live: &BTreeSet<AggregateKey>) {
        let (work, store) = (Arc::clone(&self.work), self.store(Arc::default()));
        work.log.count(&format!("restored {}", tables.join(" and ")));
        if !tables.contains(&KEYS_TABLE) {
            self.check_answers(&self.instance(0)).await;
        }
        for customer in live {
            let model = work.registry.get("customer").unwrap();
            let verified = store.admin().verify(model, customer, work.clock.timestamp()).await.unwrap();
            let disagree = !verified.findings.is_empty();
            work.log.expect(disagree || tables.len() == 2, || format!("{customer} is restored, and nothing is found"));
        }
        for customer in &self.customers.clone() {
            let new = self.instance(0);
            self.forget(customer, &new).await;
            store.end_key(customer).await.unwrap();
        }
        let suspects = work.database.claims();
        for customer in &self.customers {
            let model = work.registry.get("customer").unwrap();
            store.admin().correct(model, customer, Derived::Claims(&suspects), true).await.unwrap();
        }
        sleep(KEY_LIFETIME).await;
        self.check_answers(&self.instance(1)).await;
        self.check_stored();
        verify(&work, &store, &self.keys()).await;
        check_claims(&work).await;
    }

    /// Folds the events of the customers into the view.
    async fn project(&self, views: &ViewStore) {
        let (events, projections) = (self.store(Arc::default()), projections());
        let views = views.clone().with_sealing(events.sealing());
        let model = projections.following("customer").next().unwrap();
        let ranges: BTreeMap<_, _> = self.customers.iter().map(|key| (key.clone(), EventRange::default())).collect();
        let projecting = Projecting { model, events: &events, views: &views };
        let projected = projecting.project(ranges, deadline()).await.unwrap();
        let is_done = projected.unfinished.is_empty() && projected.suspended.is_empty();
        self.work.log.expect(is_done, || format!("{projected:?}"));
    }

    /// What a process answers about a customer.
    async fn answers_about(&self, process: &Instance, customer: &AggregateKey) -> String {
        let mut answers = vec![process.post("/visit", "begin", self.visit(customer)).await];
        let leave = format!("/visit/of-{}/commands", customer.id);
        answers.push(process.post(&leave, "", json!({"command": "Leave"})).await);
        for path in own_paths(customer) {
            answers.push(process.get(&path).await);
        }
        self.text_of(answers)
    }

    /// What a process answers about all customers.
    async fn answers(&self, process: &Instance) -> String {
        let mut answers = Vec::new();
        for visit in self.work.keys.iter().filter(|key| key.aggregate_type == "visit") {
            answers.push(process.post(&format!("/{visit}/commands"), "", json!({"command": "Leave"})).await);
        }
        for path in ["/events?type=CustomerRegistered", "/events?type=CustomerEmailChanged", "/events?type=Visited"] {
            answers.push(process.get(path).await);
        }
        for email in EMAILS {
            answers.push(process.get(&format!("/customer?claim=personal-email:{}", email.to_lowercase())).await);
        }
        let mut all = self.text_of(answers);
        for customer in &self.customers {
            all += &self.answers_about(process, customer).await;
        }
        all
    }

    fn text_of(&self, answers: Vec<Answer>) -> String {
        let failed = answers.iter().find(|(status, _)| *status >= 500);
        self.work.log.expect(failed.is_none(), || format!("without faults, the answer is {failed:?}"));
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn check_answers(&self, process: &Instance) {
        self.search("an answer", &self.answers(process).await);
    }

    /// Checks all rows, and the records of the stream.
    fn check_stored(&self) {
        let database = &self.work.database;
        for row in [TABLE, KEYS_TABLE, VIEWS_TABLE].iter().flat_map(|table| database.all_rows(table)) {
            self.search("a row", &uncompressed(&row));
        }
        for record in database.stream() {
            self.search("a record of the stream", &uncompressed(&record["dynamodb"]["NewImage"]));
        }
        for key in database.all_rows(KEYS_TABLE).iter().filter(|row| row["pk"]["S"] != "#KEY") {
            let has_ended = key.get("key").is_none() && key.get("forgottenAt").is_some();
            let is_of_guest = key["pk"]["S"].as_str().unwrap().starts_with("guest/");
            self.work.log.expect(has_ended || is_of_guest, || format!("a key is left: {key}"));
        }
    }

    fn search(&self, what: &str, text: &str) {
        let at = text.find(PERSONAL);
        let around = || text.get(at.unwrap().saturating_sub(300)..).unwrap_or(text);
        self.work.log.expect(at.is_none(), || format!("{what} has a personal value: {:.600}", around()));
    }

    /// A new process. Those with odd numbers have the earlier release.
    fn instance(&self, number: usize) -> Instance {
        let process = Arc::<Process>::default();
        let registry = if number % 2 == 1 { earlier_registry() } else { &self.work.registry };
        let settings = ApiSettings::read(&Environment::default()).unwrap();
        let views = ViewStore::new(&self.work.database.config(Arc::clone(&process)), VIEWS_TABLE);
        let api = Api::new(registry.clone(), self.store(Arc::clone(&process)), settings);
        Instance { process, router: router(api.with_views(projections(), views)) }
    }

    fn store(&self, process: Arc<Process>) -> EventStore {
        let Work { clock, ref database, .. } = *self.work;
        let settings = StoreSettings { epoch: self.epoch, ..StoreSettings::new(TABLE) };
        database.store(process, settings).with_clock(move || clock.timestamp())
    }

    /// The request that begins the visit of a customer.
    fn visit(&self, customer: &AggregateKey) -> Value {
        json!({"id": format!("of-{}", customer.id), "customer": customer.id, "host": name(customer)})
    }

    /// All aggregates.
    fn keys(&self) -> Vec<AggregateKey> {
        let of_customers = self.customers.iter().map(|key| AggregateKey::new("visit", format!("of-{}", key.id)));
        self.work.keys.iter().cloned().chain(of_customers).collect()
    }
}

/// The name of a customer. That of the first one is so long that a snapshot with it is compressed.
fn name(customer: &AggregateKey) -> String {
    PERSONAL.repeat(if customer.id == "0" { 600 } else { 1 })
}

/// The paths of all that is about a customer.
fn own_paths(AggregateKey { id, .. }: &AggregateKey) -> [String; 6] {
    [
        format!("/customer/{id}"),
        format!("/customer/{id}?version=1"),
        format!("/customer/{id}/events"),
        format!("/views/names/{id}"),
        format!("/visit/of-{id}"),
        format!("/visit/of-{id}/events"),
    ]
}

fn projections() -> Projections {
    Projections::default().with::<Names>().unwrap()
}
