//! The clock of the stack: its endpoint, and what the pages show.

use std::pin::pin;

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry, Rejection};
use daybook_local_stack::Project;
use daybook_projection::Projections;
use futures_util::future::{Either, select};
use reqwest::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::stack::Visit;

const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;

/// An aggregate with a rule that depends on the time: a trial ends after two weeks.
struct Trial;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct TrialState {
    ends_at: i64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum TrialCommand {
    Begin {},
    Use {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum TrialEvent {
    Begun { ends_at: i64 },
    Used {},
}

impl Aggregate for Trial {
    const TYPE: &'static str = "trial";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Begun", 1), EventType::new("Used", 1)];

    type State = TrialState;
    type Command = TrialCommand;
    type Event = TrialEvent;

    fn decide(state: &TrialState, command: TrialCommand, context: &Context<'_, TrialEvent>) -> Decision<TrialEvent> {
        let now = context.now().as_second();
        match command {
            TrialCommand::Begin {} => Ok(vec![TrialEvent::Begun { ends_at: now + 14 * DAY }]),
            TrialCommand::Use {} if now >= state.ends_at => Err(Rejection::new("TrialHasEnded", "it has ended")),
            TrialCommand::Use {} => Ok(vec![TrialEvent::Used {}]),
        }
    }

    fn evolve(state: TrialState, event: &TrialEvent) -> TrialState {
        match event {
            TrialEvent::Begun { ends_at } => TrialState { ends_at: *ends_at },
            TrialEvent::Used {} => state,
        }
    }
}

/// The times of the events of an aggregate, in milliseconds since 1970.
async fn times(visit: &Visit, aggregate: &str) -> Vec<i64> {
    let page = visit.json(&format!("/{aggregate}/events")).await;
    let events = page["events"].as_array().unwrap();
    events.iter().map(|event| milliseconds(&event["occurredAt"])).collect()
}

fn milliseconds(at: &Value) -> i64 {
    at.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

async fn update_todo(visit: &Visit, title: &str) {
    let updated = visit.post("/todo/1", &[], &json!({"title": title, "message": "m"})).await;
    assert!(updated["version"].is_u64(), "{updated}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_that_depends_on_the_time_sees_the_moved_clock() {
    let registry = || Registry::new().with::<Trial>();
    let visit = Visit::of(Project { aggregates: registry, projections: || Ok(Projections::new()) }, &[]).await;
    visit.post("/trial", &[], &json!({"id": "1"})).await;
    let try_it = json!({"command": "Use", "data": {}});
    for (by, version) in [("13d", 2), ("23h", 3)] {
        visit.move_clock(by).await;
        assert_eq!(visit.post("/trial/1/commands", &[], &try_it).await["version"], version);
    }
    visit.move_clock("1h").await;
    assert_eq!(visit.post("/trial/1/commands", &[], &try_it).await["rejection"], "TrialHasEnded");
    let times = times(&visit, "trial/1").await;
    let days: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000 / HOUR).collect();
    assert_eq!(days, [13 * 24, 23]);
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_expire_until_then_are_deleted_and_nothing_is_lost() {
    let visit = Visit::start().await;
    let (todo, headers) = (json!({"id": "1", "title": "t", "message": "m"}), [("idempotency-key", "k")]);
    assert_eq!(visit.post("/todo", &headers, &todo).await["version"], 1);
    // The message may still be on its way. It is sent before.
    visit.move_clock("14d").await;
    assert_eq!(visit.bus().await.len(), 1);
    assert_eq!(visit.json("/_dev/discarded").await, json!([]));
    update_todo(&visit, "later").await;
    visit.page_with("/bus", "<strong>2</strong> messages").await;
    assert_eq!(visit.rows("OUTBOX#").await.len(), 1);
    assert!(visit.rows("IDEMP").await.is_empty());
    // The key is new again, so the request is another one. A later key expires later.
    assert_eq!(visit.post("/todo", &headers, &todo).await["status"], 409);
    for _ in 0..2 {
        let other = json!({"id": "2", "title": "t", "message": "m"});
        assert_eq!(visit.post("/todo", &[("idempotency-key", "l")], &other).await["version"], 1);
    }

    let times = times(&visit, "todo/1").await;
    assert!(times[1] - times[0] >= 14 * DAY * 1_000, "{times:?}");
    let messages = visit.post("/_dev/console/messages", &[], &json!({"aggregate": "todo/1"})).await;
    let accepted: Vec<_> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sent| sent["entry"]["accepted_at"].as_i64().unwrap())
        .collect();
    for (event, accepted) in times.iter().zip(&accepted) {
        assert!((*event..event + HOUR * 1_000).contains(accepted), "{times:?} {accepted:?}");
    }
    let page = visit.page("/aggregates/todo/1").await;
    page.has(">14 days ago</time>").has("on the bus after ");
    visit.page("").await.has("<td class=\"number\">2</td><td class=\"number\">1</td>");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_written_during_a_move_are_not_discarded() {
    let visit = Visit::start().await;
    let mut created = 0;
    for _ in 0..5 {
        let mut moved = pin!(visit.move_clock("2d"));
        loop {
            let id = created.to_string();
            created += 1;
            match select(moved, pin!(visit.create_todo(&id, "t"))).await {
                Either::Left((_, create)) => break create.await,
                Either::Right((_, moving)) => moved = moving,
            }
        }
    }
    visit.page_with("/bus", &format!("<strong>{created}</strong> messages")).await;
    assert_eq!(visit.json("/_dev/discarded").await, json!([]));
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_paused_function_get_older_until_they_are_discarded() {
    let visit = Visit::start().await;
    visit.create_todo("1", "t").await;
    visit.page_with("/bus", "<strong>1</strong> messages").await;
    visit.set_faults(&json!({"paused": ["stream-relay"]})).await;
    update_todo(&visit, "late").await;
    visit.page_with("/stream", "<span class=\"warn\">2</span>").await;
    visit.move_clock("2h").await;
    let age = visit
        .json("/_dev/mappings")
        .await
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|mapping| mapping["shards"][0]["oldestAgeMs"].as_i64())
        .max();
    assert!(age.is_some_and(|age| (2 * HOUR * 1_000..3 * HOUR * 1_000).contains(&age)), "{age:?}");
    visit.page("/stream").await.has("<td class=\"number\">2 h</td>");
    visit.set_faults(&json!({})).await;
    visit.page_with("/bus", "<strong>2</strong> messages").await;
    visit.page_with("/aggregates/todo/1", "on the bus after 2 h").await;

    visit.set_faults(&json!({"paused": ["stream-relay"]})).await;
    update_todo(&visit, "too late").await;
    visit.page_with("/stream", "<span class=\"warn\">2</span>").await;
    visit.move_clock("1d").await;
    visit.set_faults(&json!({})).await;
    visit.page_with("/stream", "batches of records were discarded").await;
    assert_eq!(visit.bus().await.len(), 2);
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_is_only_moved_forward_and_within_its_limit() {
    let visit = Visit::start().await;
    let at_first = visit.json("/_dev/clock").await;
    assert_eq!((&at_first["aheadBy"], &at_first["aheadBySeconds"]), (&json!("0s"), &json!(0)));
    for (by, reason) in [
        (json!({"forwardBy": "0d"}), "\"0d\" is not a duration of at least 1s; give one such as 90s, 30m, 2h or 14d"),
        (json!({"forwardBy": "-1d"}), "\"-1d\" is not a duration of at least 1s"),
        (json!({"forwardBy": "36501d"}), "the clock can be at most 36500d ahead of the machine's; give at most 36500d"),
        (json!({"forwardBy": 14}), "forwardBy"),
        (json!({"backBy": "1d"}), "backBy"),
        (json!({}), "forwardBy"),
    ] {
        let (status, text) = visit.try_move(&by).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{by}: {text}");
        assert!(text.contains(reason), "{by}: {text}");
    }
    let now = visit.json("/_dev/clock").await;
    assert_eq!(now["aheadBySeconds"], 0);
    assert!(milliseconds(&now["now"]) - milliseconds(&at_first["now"]) < HOUR * 1_000, "{now}");
    let moved = visit.move_clock("36500d").await;
    assert_eq!((&moved["aheadBy"], &moved["aheadBySeconds"]), (&json!("36500d"), &json!(36_500 * DAY)));
    assert!(milliseconds(&moved["now"]) - milliseconds(&now["now"]) >= 36_500 * DAY * 1_000, "{moved}");
    // The stack also works at the end.
    visit.create_todo("1", "t").await;
    visit.page_with("/bus", "<strong>1</strong> messages").await;
    visit.page("/aggregates/todo/1").await.has(">just now</time>");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn form_moves_the_clock_and_each_page_shows_it() {
    let visit = Visit::start().await;
    visit.create_todo("1", "t").await;
    visit.page("/faults").await.has("The clock cannot be moved back").lacks("data-ahead-seconds").lacks("is ahead of");
    let moved = visit.submit("/faults", &[("action", "clock"), ("forward-by", "14d")]).await;
    moved.has("The clock was moved forward by 14d.").has("data-ahead-seconds=\"1209600\"");
    // Loading the page again does not move the clock again.
    assert_eq!(moved.query.as_deref(), Some("moved=14d"));
    visit.page("/faults?moved=14d").await.has("The clock was moved forward by 14d.").has("<strong>14d</strong> ahead");
    visit.page("/faults?moved=a+lot").await.lacks("was moved forward");
    for path in
        ["", "/aggregates/todo/1", "/bus", "/dead-letters", "/correlation", "/stream", "/faults", "/command/todo"]
    {
        visit.page(path).await.has("The clock of the stack is <strong>14d</strong> ahead of the machine's: <time");
    }
    let missing = visit.get("/nothing").await.text().await.unwrap();
    assert!(missing.contains("<strong>14d</strong> ahead of the machine's"), "{missing}");
    visit.page("/bus").await.has(">14 days ago</time>");
    visit.page("").await.has(">14 days ago</time>");

    let wrong = visit.submit("/faults", &[("action", "clock"), ("forward-by", "<b>")]).await;
    wrong.has("role=\"alert\"").has("&quot;&lt;b&gt;&quot; is not a duration").lacks("<b>").has("<strong>14d</strong>");
    visit.submit("/faults", &[("action", "clock")]).await.has("&quot;&quot; is not a duration");
    visit.submit("/faults", &[("action", "reset")]).await.has("<strong>14d</strong> ahead of the machine's");
    visit.stop().await;
}
