//! How long a command takes when the table has many events.
//!
//! `GROWTH_EVENTS=100000 cargo test -p operator --test process growth -- --nocapture` prints the time of a command at 120 and
//! at this number of events. No time is asserted: `dynamodb::engine` of `daybook-local-aws` asserts the steps of the queries.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daybook::Daybook;

/// Events that one request adds.
const BATCH: usize = 40;

/// The events of an aggregate.
const OF_AGGREGATE: usize = 1_000;

/// The commands whose times are measured.
const MEASURED: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn growth_of_the_table_leaves_commands_as_fast() {
    let events = std::env::var("GROWTH_EVENTS").map_or(2_000, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    for data in [Some(folder.path().join("daybook.db")), None] {
        let daybook = data.as_deref().map_or_else(Daybook::in_memory, Daybook::with_data);
        let mut client = Client { daybook, http: reqwest::Client::new(), messages: 0 };
        client.add(0, 120).await;
        let few = client.time_of_a_command("few").await;
        client.add(120, events).await;
        let many = client.time_of_a_command("many").await;
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        let place = data.map_or("in memory", |_| "in a file");
        println!(
            "{place}: a command takes {few:?} at 120 events, {many:?} at {events} events: {ratio:.2} times as long"
        );
    }
}

struct Client {
    daybook: Daybook,
    http: reqwest::Client,
    /// Each event has a message.
    messages: usize,
}

impl Client {
    async fn post(&self, path: &str, body: &Value) {
        let response = self.http.post(format!("{}{path}", self.daybook.api)).json(body).send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }

    /// Adds events until there are `to`.
    async fn add(&mut self, from: usize, to: usize) {
        let update = |n: usize| json!({"command": "UpdateTodo", "data": {"title": n.to_string(), "message": "m"}});
        for first in (from..to).step_by(BATCH) {
            let aggregate = first / OF_AGGREGATE;
            let mut commands: Vec<_> = (first..first + BATCH).map(update).collect();
            if first == 0 || (first - BATCH) / OF_AGGREGATE < aggregate {
                commands[0]["command"] = "CreateTodo".into();
            }
            self.post(&format!("/todo/{aggregate}/commands"), &commands.into()).await;
            self.messages += BATCH;
        }
    }

    /// The median time of a command on an aggregate that the API has in its cache, after all messages were sent.
    async fn time_of_a_command(&mut self, id: &str) -> Duration {
        self.daybook.create_todo(id, "").await;
        self.messages += 1;
        self.daybook.wait_until_printed(self.messages).await;
        let mut times = Vec::new();
        for n in 0..MEASURED {
            let begun = Instant::now();
            self.post(&format!("/todo/{id}"), &json!({"title": n.to_string(), "message": "m"})).await;
            times.push(begun.elapsed());
        }
        self.messages += MEASURED;
        times.sort();
        times[times.len() / 2]
    }
}
