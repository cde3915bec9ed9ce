//! A stack with views: two versions of a projection, the projector's queue, instances of the projector, and an API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aggregates::Account;
use aggregates::account::Event;
use aws_sdk_sqs::types::Message;
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::Server;
use daybook_projection::{FollowedEvent, Follows, Parts, Projection, ProjectionRegistrationError, Projections, Source};
use daybook_projector::{Projector, QueueBatch, QueueRecord};
use daybook_settings::Environment;
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_test_support::table::VIEWS_TABLE;
use daybook_view_store::{RowRange, VersionMark, View, ViewStore};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::Setup;

/// Each account, and all of them together. Version 4 fails at an amount of 13.
pub(crate) struct Totals<const VERSION: u32>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Total {
    pub(crate) version: u32,
    pub(crate) events: i64,
    pub(crate) balance: i64,
}

impl<const VERSION: u32> Projection for Totals<VERSION> {
    const NAME: &'static str = "totals";
    const VERSION: u32 = VERSION;
    const PARTS: Parts<Total> = Parts::merged(8, |one, other| Total {
        version: VERSION,
        events: one.events + other.events,
        balance: one.balance + other.balance,
    });

    type Row = Total;
    type Change = i64;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<Total>, amount: &i64) -> Option<Total> {
        let Total { events, balance, .. } = row.unwrap_or_default();
        Some(Total { version: VERSION, events: events + 1, balance: balance + amount })
    }
}

impl<const VERSION: u32> Follows<Account> for Totals<VERSION> {
    type State = ();

    fn advance((): (), event: &FollowedEvent<'_, Event>) {
        assert!(
            VERSION != 4 || !matches!(event.event, Event::TransactionAccepted { amount: 13, .. }),
            "13 is too much"
        );
    }

    fn changes((): &(), event: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, i64)> {
        let amount = if let Event::TransactionAccepted { amount, .. } = event.event { *amount } else { 0 };
        vec![(format!("account:{}", event.aggregate_id), amount), ("total".to_owned(), amount)]
    }
}

/// Version 4 of [`Totals`] without its error.
pub(crate) struct RepairedTotals;

impl Projection for RepairedTotals {
    const NAME: &'static str = "totals";
    const VERSION: u32 = 4;
    const PARTS: Parts<Total> = Totals::<4>::PARTS;

    type Row = Total;
    type Change = i64;

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<Total>, amount: &i64) -> Option<Total> {
        Totals::<4>::apply(row, amount)
    }
}

impl Follows<Account> for RepairedTotals {
    type State = ();

    fn advance((): (), _: &FollowedEvent<'_, Event>) {}

    fn changes(before: &(), event: &FollowedEvent<'_, Event>, after: &()) -> Vec<(String, i64)> {
        <Totals<4> as Follows<Account>>::changes(before, event, after)
    }
}

/// The projections of a release.
pub(crate) type Registered = Result<Projections, ProjectionRegistrationError>;

/// The previous release.
pub(crate) fn version_1() -> Registered {
    Projections::new().with::<Totals<1>>()
}

/// The release that changes the projection.
pub(crate) fn versions_1_and_2() -> Registered {
    version_1()?.with::<Totals<2>>()
}

/// The next release.
pub(crate) fn version_2() -> Registered {
    Projections::new().with::<Totals<2>>()
}

/// A release whose new version cannot fold every event.
pub(crate) fn versions_1_and_4() -> Registered {
    version_1()?.with::<Totals<4>>()
}

impl Setup {
    /// A stack with views, whose commands know these projections.
    pub(crate) async fn with_views(projections: fn() -> Registered) -> Self {
        let mut setup = Self::new().await;
        setup.table.views().await;
        setup.bus.create_work_queue("changes");
        setup.settings.push(("VIEWS_TABLE_NAME", VIEWS_TABLE.to_owned()));
        setup.settings.push(("CHANGES_QUEUE_URL", setup.changes_url()));
        setup.projections = projections;
        setup
    }

    pub(crate) fn changes_url(&self) -> String {
        self.queue_url().replace("/dlq", "/changes")
    }

    pub(crate) fn sqs(&self) -> aws_sdk_sqs::Client {
        let url = self.queue_url();
        let endpoint = url.split_once("/000000000000").unwrap().0;
        aws_sdk_sqs::Client::new(&aws_config_at(endpoint))
    }

    /// Opens an account with these transactions, of which no projector learns.
    pub(crate) async fn quiet_account(&self, id: &str, amounts: &[i64]) {
        let aggregate = format!("account/{id}");
        self.command(&aggregate, "OpenAccount", serde_json::json!({})).await;
        for amount in amounts {
            self.deposit(id, *amount).await;
        }
    }

    pub(crate) async fn deposit(&self, id: &str, amount: i64) {
        let data = serde_json::json!({"desc": "A", "amount": amount});
        self.command(&format!("account/{id}"), "RecordTransaction", data).await;
    }

    /// Sends an account to the projector, as the relay does.
    pub(crate) async fn notify_projector(&self, id: &str) {
        let body = ChangedAggregates::one(AggregateKey::new("account", id), 0).to_body();
        self.sqs().send_message().queue_url(self.changes_url()).message_body(body).send().await.unwrap();
    }

    /// The mark of a version.
    pub(crate) async fn mark(&self, version: u32) -> VersionMark {
        self.table.direct_views().mark(&View::new("totals", version)).await.unwrap().unwrap_or_default()
    }

    /// A projector of these projections. Its calls go to `endpoint`.
    pub(crate) fn projector(&self, projections: Registered, endpoint: &str) -> Projector {
        let config = aws_config_at(endpoint);
        let events = daybook_event_store::EventStore::new(&config, daybook_test_support::table::settings());
        Projector::new(projections.unwrap(), events, ViewStore::new(&config, VIEWS_TABLE))
    }

    /// Starts an instance of the projector with these projections. Its calls go to `endpoint`.
    pub(crate) fn worker(&self, projections: Registered, endpoint: &str) -> Worker {
        self.slow_worker(projections, endpoint, Duration::ZERO)
    }

    /// Does the same with a pause after each invocation.
    pub(crate) fn slow_worker(&self, projections: Registered, endpoint: &str, pause: Duration) -> Worker {
        let projector = self.projector(projections, endpoint);
        let (sqs, url) = (self.sqs(), self.changes_url());
        let (stop, mut stopped) = watch::channel(false);
        let hidden = self.hidden_seconds;
        let receives = self.receives.clone();
        let running = tokio::spawn(async move {
            loop {
                receives.fetch_add(1, Relaxed);
                let receive = sqs.receive_message().queue_url(&url).max_number_of_messages(2);
                let receive = receive.wait_time_seconds(1).visibility_timeout(hidden).send();
                let received = tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                    received = receive => received,
                };
                let messages = received.unwrap().messages.unwrap_or_default();
                invoke(&projector, (&sqs, &url), messages, hidden).await;
                sleep(pause).await;
            }
        });
        Worker { running, stop }
    }

    /// An API with these projections.
    pub(crate) async fn api(&self, projections: Registered) -> ApiReader {
        let settings = ApiSettings::read(&Environment::default()).unwrap();
        let api = Api::new(aggregates::registry().unwrap(), self.table.direct_store(), settings);
        let server =
            Server::start(router(api.with_views(projections.unwrap(), self.table.direct_views()))).await.unwrap();
        ApiReader(Arc::new(server), reqwest::Client::new())
    }

    /// All rows of a version.
    pub(crate) async fn view(&self, version: u32) -> BTreeMap<String, Total> {
        let model = versions_1_and_2().unwrap();
        let model = model.get("totals", version).unwrap();
        let (view, views) = (View::new("totals", version), self.table.direct_views());
        let (mut rows, mut after) = (BTreeMap::new(), None);
        loop {
            let range = RowRange { after: after.as_deref(), ..RowRange::default() };
            let (page, more) = views.list(&view, model.part_count(), range, 1000).await.unwrap();
            after = page.last().map(|row| row.key.clone()).or(after);
            rows.extend(page.into_iter().map(|row| {
                let merged = model.merge(&row.parts).unwrap().unwrap();
                (row.key, merged.read::<Total>().unwrap())
            }));
            if !more {
                return rows;
            }
        }
    }

    /// Makes the last switch an old one.
    pub(crate) async fn age_switch(&self) {
        self.set_time("#POINTER", "switchedAt").await;
    }

    /// Makes a version a filled one, as releases did that let no version lead.
    pub(crate) async fn set_filled(&self, version: u32) {
        self.set_time(&format!("VERSION#{version}"), "filledAt").await;
    }

    async fn set_time(&self, sk: &str, attribute: &str) {
        let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
        let update = self.table.raw.update_item().table_name(VIEWS_TABLE).key("pk", text("PROJECTION#totals"));
        let update = update.key("sk", text(sk)).update_expression(format!("SET {attribute} = :old"));
        update.expression_attribute_values(":old", text("2026-01-01T00:00:00Z")).send().await.unwrap();
    }
}

/// Passes messages to the projector, and deletes those that it has handled.
pub(crate) async fn invoke(
    projector: &Projector,
    (sqs, url): (&aws_sdk_sqs::Client, &str),
    messages: Vec<Message>,
    time_out: i32,
) {
    let record =
        |message: &Message| QueueRecord::new(message.message_id.clone().unwrap(), message.body.clone().unwrap());
    let batch = QueueBatch { records: messages.iter().map(record).collect() };
    let deadline = Instant::now() + Duration::from_secs(time_out.unsigned_abs().into());
    let response = projector.handle(batch, deadline).await;
    for message in messages {
        let is_failed = |id: &str| response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
        if !is_failed(&message.message_id.unwrap()) {
            sqs.delete_message().queue_url(url).receipt_handle(message.receipt_handle.unwrap()).send().await.unwrap();
        }
    }
}

/// An instance of the projector.
pub(crate) struct Worker {
    pub(crate) running: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Worker {
    /// Ends it after the invocation that is running.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.running.await.unwrap();
    }
}

/// A client of an API.
#[derive(Clone)]
pub(crate) struct ApiReader(Arc<Server>, reqwest::Client);

impl ApiReader {
    /// A row of the view `totals`, if it exists.
    pub(crate) async fn row(&self, key: &str) -> Option<Total> {
        let response = self.1.get(format!("{}/views/totals/{key}", self.0.url())).send().await.unwrap();
        let status = response.status();
        let body: Value = response.json().await.unwrap();
        if status == 404 {
            assert_eq!(body["type"], "urn:daybook:problem:no-such-row", "{body}");
            return None;
        }
        assert_eq!(status, 200, "{body}");
        Some(serde_json::from_value(body["row"].clone()).unwrap())
    }
}
