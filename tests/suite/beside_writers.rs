//! Readers beside 32 writers, on the local stack: a feed skips no event, and every read shows the writes that were
//! acknowledged before it.

use std::array::from_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use suite_tests::{PATIENCE, Suite};
use tokio::time::Instant;

const WRITERS: usize = 32;

/// The API of the stack. Responses are not compared with the OpenAPI document, so that readers are fast.
struct Http<'a> {
    client: Client,
    url: &'a str,
}

impl<'a> Http<'a> {
    fn of(suite: &'a Suite) -> Self {
        Self { client: Client::new(), url: suite.stack.api_url() }
    }

    async fn get(&self, path: &str) -> Value {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// The response to a write, which is repeated if a slow machine leaves it no time.
    async fn post(&self, path: &str, key: &str, body: &Value) -> Value {
        loop {
            let request = self.client.post(format!("{}{path}", self.url)).header("idempotency-key", key).json(body);
            let response = request.send().await.unwrap();
            if response.status() != 503 {
                assert!(response.status().is_success(), "{path}: {}", response.status());
                return response.json().await.unwrap();
            }
        }
    }
}

/// The id and the time of an event, both of which sort by time.
fn event(json: &Value) -> (String, String) {
    let text = |name: &str| json[name].as_str().unwrap().to_owned();
    (text("eventId"), text("occurredAt"))
}

/// A reader that follows the feed of an event type.
struct Reader<'a> {
    http: &'a Http<'a>,
    event_type: &'static str,
    after: String,
    /// The ids of the events that it has seen.
    seen: Vec<String>,
}

impl<'a> Reader<'a> {
    fn of(http: &'a Http<'a>, event_type: &'static str) -> Self {
        Self { http, event_type, after: String::new(), seen: Vec::new() }
    }

    /// Reads the next page. Returns the time up to which the feed is complete.
    async fn read(&mut self) -> String {
        let page = self.http.get(&format!("/events?type={}&limit=1000{}", self.event_type, self.after)).await;
        self.after = format!("&after={}", page["cursor"].as_str().unwrap());
        self.seen.extend(page["events"].as_array().unwrap().iter().map(|json| event(json).0));
        page["settledUpTo"].as_str().unwrap().to_owned()
    }

    /// Reads until the feed contains an event that was acknowledged before. It must contain it at the latest when it is
    /// complete up to a later time.
    async fn read_up_to(&mut self, (id, at): &(String, String)) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let settled_up_to = self.read().await;
            if self.seen.contains(id) {
                return;
            }
            assert!(settled_up_to <= *at, "the feed up to {settled_up_to} skips {id} of {at}");
            assert!(Instant::now() < give_up, "the feed stays at {settled_up_to}, before {id} of {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reader_that_follows_a_feed_beside_writers_sees_every_event_once_and_in_order() {
    let suite = Suite::start().await;
    let (http, ended, written) = (Http::of(&suite), AtomicBool::new(false), Mutex::new(Vec::new()));
    let write = async |writer: usize| {
        for number in 0..10 {
            let id = format!("{writer}-{number}");
            let created = http.post("/todo", &id, &json!({"id": id, "title": "x", "message": ""})).await;
            written.lock().unwrap().push((event(&created["events"][0]), Instant::now()));
        }
    };
    let mut reader = Reader::of(&http, "TodoCreated");
    // When each page was requested, and the number of events up to its end.
    let mut pages = Vec::new();
    let follow = async {
        while !ended.load(Ordering::Relaxed) {
            let requested = Instant::now();
            reader.read().await;
            pages.push((requested, reader.seen.len()));
        }
    };
    let work = async {
        join_all((0..WRITERS).map(write)).await;
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, follow);
    let mut written = written.into_inner().unwrap();
    written.sort();
    reader.read_up_to(&written.last().unwrap().0).await;
    // How long after the response to its write a page was requested that contains an event, if the page before was requested
    // after the response too, and did not contain it.
    let delays = written.iter().enumerate().filter_map(|(index, (_, answered))| {
        let first = pages.iter().position(|(_, end)| *end > index)?;
        let (missed, _) = pages.get(first.checked_sub(1)?)?;
        (missed > answered).then(|| pages[first].0 - *answered)
    });
    let delays: Vec<_> = delays.collect();
    let (late, pages, longest) = (delays.len(), pages.len(), delays.iter().max());
    eprintln!("{late} of {} events were not in the next of {pages} pages: at most {longest:?} late", WRITERS * 10);
    let written: Vec<_> = written.into_iter().map(|((id, _), _)| id).collect();
    assert_eq!((reader.seen.len(), reader.seen), (WRITERS * 10, written));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_read_shows_the_writes_that_were_acknowledged_before_it() {
    const ACCOUNTS: usize = 4;
    let suite = Suite::start().await;
    let http = Http::of(&suite);
    for account in 0..ACCOUNTS {
        http.post("/account", "open", &json!({"id": account.to_string()})).await;
    }
    // The highest version of each account that a response has contained.
    let known: [AtomicU64; ACCOUNTS] = from_fn(|_| AtomicU64::new(1));
    let learn = |account: usize, response: &Value| {
        let version = response["version"].as_u64().unwrap();
        known[account].fetch_max(version, Ordering::SeqCst);
        version
    };
    let written = Mutex::new(Vec::new());
    let client = async |writer: usize| {
        let mut reader = Reader::of(&http, "TransactionAccepted");
        for number in 0..5 {
            let account = (writer + number) % ACCOUNTS;
            let command = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}});
            let key = format!("{writer}-{number}");
            let before = known[account].load(Ordering::SeqCst);
            let accepted = http.post(&format!("/account/{account}/commands"), &key, &command).await;
            let version = learn(account, &accepted);
            assert!(version > before, "version {version} of {account} is written after {before}");
            assert_eq!(accepted["state"]["balance"], version - 1);
            let event = event(&accepted["events"][0]);
            written.lock().unwrap().push(event.0.clone());

            for account in [account, number % ACCOUNTS] {
                let before = known[account].load(Ordering::SeqCst);
                let read = http.get(&format!("/account/{account}")).await;
                let version = learn(account, &read);
                assert!(version >= before, "version {version} of {account} is read after {before}");
                assert_eq!(read["state"]["balance"], version - 1);
            }
            reader.read_up_to(&event).await;
        }
        reader.seen
    };
    let seen = join_all((0..WRITERS).map(client)).await;
    let mut written = written.into_inner().unwrap();
    written.sort();
    assert_eq!(written.len(), WRITERS * 5);
    for seen in seen {
        assert_eq!(seen, written[..seen.len()], "no reader skips an event");
    }
}
