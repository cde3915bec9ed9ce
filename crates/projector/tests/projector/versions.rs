//! Several versions of a projection: the version that is read shows an event only after all versions to which readers
//! may be switched show it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use aggregates::Account;
use aggregates::account::Event;
use daybook_projection::{FollowedEvent, Follows, Projection, Projections, Source};
use daybook_projector::{Projector, QueueBatch, QueueRecord, QueueResponse};
use daybook_table::{AggregateKey, ChangedAggregates};
use daybook_test_support::fault_proxy::RecordedCall;
use daybook_view_store::{ProjectionVersions, View};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::setup::Setup;

/// Counts the events of each account. Version 3 fails at an amount of 13.
struct Counted<const VERSION: u32>;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Count {
    events: u64,
}

impl<const VERSION: u32> Projection for Counted<VERSION> {
    const NAME: &'static str = "counted";
    const VERSION: u32 = VERSION;

    type Row = Count;
    type Change = ();

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Account>()]
    }

    fn apply(row: Option<Count>, (): &()) -> Option<Count> {
        Some(Count { events: row.unwrap_or_default().events + 1 })
    }
}

impl<const VERSION: u32> Follows<Account> for Counted<VERSION> {
    type State = ();

    fn advance((): (), event: &FollowedEvent<'_, Event>) {
        assert!(
            VERSION != 3 || !matches!(event.event, Event::TransactionAccepted { amount: 13, .. }),
            "13 is too much"
        );
    }

    fn changes((): &(), event: &FollowedEvent<'_, Event>, (): &()) -> Vec<(String, ())> {
        vec![(event.aggregate_id.to_owned(), ())]
    }
}

fn versions_1_and_2() -> Projections {
    Projections::new().with::<Counted<1>>().unwrap().with::<Counted<2>>().unwrap()
}

fn view(version: u32) -> View {
    View::new("counted", version)
}

impl Setup {
    /// The number of the last event that a version shows; `None` without a position.
    async fn reached(&self, version: u32, key: &AggregateKey) -> Option<u64> {
        let positions = self.direct_views().positions(&view(version), &[key.clone()].into()).await.unwrap();
        positions.get(key).map(|position| position.seq_num)
    }

    /// An instance of a release that registers these projections.
    fn projector(&self, projections: Projections) -> Projector {
        Projector::new(projections, self.table.store(), self.views())
    }
}

fn message(key: &AggregateKey) -> QueueBatch {
    QueueBatch { records: vec![QueueRecord::new("1", ChangedAggregates::one(key.clone(), 0).to_body())] }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn transactions(calls: &[RecordedCall]) -> usize {
    calls.iter().filter(|call| call.operation == "TransactWriteItems").count()
}

#[tokio::test]
async fn version_that_is_being_filled_comes_after_the_version_that_is_read() {
    let setup = Setup::new(versions_1_and_2()).await;
    let key = setup.account("a", &[1, 2]).await;
    let projector = setup.projector(versions_1_and_2());
    let mut run = Box::pin(projector.handle(message(&key), soon()));
    setup.table.proxy.hold(&mut run, |calls| transactions(calls) == 1).await;
    // It ends between the two.
    drop(run);
    assert_eq!((setup.reached(1, &key).await, setup.reached(2, &key).await), (Some(3), None));
    assert_eq!(projector.handle(message(&key), soon()).await, QueueResponse::default());
    assert_eq!(setup.reached(2, &key).await, Some(3));
}

#[tokio::test]
async fn version_that_leads_shows_each_event_before_the_version_that_is_read() {
    let setup = Setup::new(versions_1_and_2()).await;
    let views = setup.direct_views();
    let projector = setup.projector(versions_1_and_2());
    let key = setup.account("a", &[1, 2]).await;
    projector.handle(message(&key), soon()).await;
    views.lead(&view(2), "{}", Timestamp::now()).await.unwrap();

    for (read, leading) in [(1, 2), (2, 1)] {
        let before = setup.reached(read, &key).await.unwrap();
        setup.transactions(&key, &[5]).await;
        setup.table.proxy.take_calls();
        let mut run = Box::pin(projector.handle(message(&key), soon()));
        setup.table.proxy.hold(&mut run, |calls| transactions(calls) == 1).await;
        let reached = (setup.reached(leading, &key).await, setup.reached(read, &key).await);
        assert_eq!(reached, (Some(before + 1), Some(before)), "version {read} is read");
        // A further event, whose message another invocation gets.
        setup.transactions(&key, &[6]).await;
        assert_eq!(run.await, QueueResponse::default());
        let reached = (setup.reached(leading, &key).await, setup.reached(read, &key).await);
        assert_eq!(reached, (Some(before + 1), Some(before + 1)), "version {read} is read");
        projector.handle(message(&key), soon()).await;
        assert_eq!(setup.reached(read, &key).await, Some(before + 2));
        if read == 1 {
            let pointer = views.pointer("counted").await.unwrap();
            assert_eq!(pointer, None);
            let before = views.projection_versions("counted").await.unwrap();
            assert!(views.switch(&view(1), &view(2), &before, Timestamp::now()).await.unwrap());
        }
    }
}

#[tokio::test]
async fn aggregate_that_is_unfinished_in_a_leading_version_waits_and_a_suspended_one_does_not() {
    let with = || Projections::new().with::<Counted<1>>().unwrap().with::<Counted<3>>().unwrap();
    let setup = Setup::new(with()).await;
    setup.direct_views().lead(&view(3), "{}", Timestamp::now()).await.unwrap();
    let projector = setup.projector(with());
    let key = setup.account("a", &[1]).await;
    for _ in 0..3 {
        let throttled =
            daybook_test_support::fault_proxy::InjectedFault::Refuse { status: 400, code: "AccessDeniedException" };
        setup.table.proxy.fail_next("TransactWriteItems", throttled);
    }
    let response = projector.handle(message(&key), soon()).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!((setup.reached(1, &key).await, setup.reached(3, &key).await), (None, None));
    setup.table.proxy.take_faults();
    projector.handle(message(&key), soon()).await;
    assert_eq!((setup.reached(1, &key).await, setup.reached(3, &key).await), (Some(2), Some(2)));

    setup.transactions(&key, &[13, 5]).await;
    assert_eq!(projector.handle(message(&key), soon()).await, QueueResponse::default());
    assert_eq!((setup.reached(1, &key).await, setup.reached(3, &key).await), (Some(4), Some(2)));
}

/// After a rollback, only version 1 follows the events.
#[tokio::test]
async fn version_that_a_release_does_not_have_leads_no_longer() {
    let setup = Setup::new(versions_1_and_2()).await;
    let views = setup.direct_views();
    let key = setup.account("a", &[1]).await;
    setup.projector(versions_1_and_2()).handle(message(&key), soon()).await;
    let mark = async || views.mark(&view(2)).await.unwrap().unwrap();

    views.begin_rebuild(&view(2), "{}", Timestamp::now()).await.unwrap();
    views.lead(&view(2), "{}", Timestamp::now()).await.unwrap();
    assert!(views.end_rebuild(&view(2), Some(Timestamp::now())).await.unwrap());
    setup.projector(versions_1_and_2()).handle(message(&key), soon()).await;
    assert!(mark().await.leads_since.is_some() && mark().await.missed_since.is_none());

    setup.transactions(&key, &[5]).await;
    let previous = setup.projector(Projections::new().with::<Counted<1>>().unwrap());
    setup.table.proxy.take_calls();
    let mut run = Box::pin(previous.handle(message(&key), soon()));
    setup.table.proxy.hold(&mut run, |calls| transactions(calls) == 1).await;
    // It is recorded before the first event is folded.
    let marked = mark().await;
    assert_eq!((marked.leads_since, marked.filled_at, marked.missed_since.is_some()), (None, None, true));
    run.await;
    assert_eq!((setup.reached(1, &key).await, setup.reached(2, &key).await), (Some(3), Some(2)));

    // A rebuild that is under way cannot end.
    views.lead(&view(2), "{}", Timestamp::now()).await.unwrap();
    assert_eq!(mark().await.missed_since, None);
    let later = setup.projector(Projections::new().with::<Counted<1>>().unwrap());
    later.handle(message(&key), soon()).await;
    assert!(!views.end_rebuild(&view(2), Some(Timestamp::now())).await.unwrap());
    assert_eq!(mark().await.filled_at, None);
}

#[tokio::test]
async fn projection_with_one_version_reads_the_marks_once_in_an_instance() {
    let one = || Projections::new().with::<Counted<1>>().unwrap();
    let setup = Setup::new(one()).await;
    let key = setup.account("a", &[1]).await;
    let mut counts = BTreeMap::new();
    for (versions, projections) in [(1, one()), (2, versions_1_and_2())] {
        let projector = setup.projector(projections);
        let of_pointer = |call: &&RecordedCall| call.request.to_string().contains("PROJECTION#counted");
        setup.table.proxy.take_calls();
        projector.handle(message(&key), soon()).await;
        assert_eq!(setup.table.proxy.take_calls().iter().filter(of_pointer).count(), 1);
        projector.handle(message(&key), soon()).await;
        let calls = setup.table.proxy.take_calls();
        counts.insert(versions, (calls.len(), calls.iter().filter(of_pointer).count()));
    }
    // Each version reads a position and the events after it.
    assert_eq!(counts, BTreeMap::from([(1, (2, 0)), (2, (5, 1))]));
}

#[tokio::test]
async fn pointer_to_a_version_that_the_code_does_not_have_leads_to_the_version_below() {
    let setup = Setup::new(versions_1_and_2()).await;
    let views = setup.direct_views();
    views.switch(&view(1), &view(9), &ProjectionVersions::default(), Timestamp::now()).await.unwrap();
    views.lead(&view(2), "{}", Timestamp::now()).await.unwrap();
    let key = setup.account("a", &[1]).await;
    let projector = setup.projector(versions_1_and_2());
    let mut run = pin!(projector.handle(message(&key), soon()));
    setup.table.proxy.hold(&mut run, |calls| transactions(calls) == 1).await;
    assert_eq!((setup.reached(1, &key).await, setup.reached(2, &key).await), (Some(2), None));
    run.await;
    assert_eq!(setup.reached(2, &key).await, Some(2));
}

#[test]
fn registry_holds_several_versions_of_a_name_and_each_only_once() {
    let projections = versions_1_and_2().with::<Counted<7>>().unwrap();
    let version = |pointer| projections.read_version("counted", pointer).unwrap().version();
    let read = [None, Some(1), Some(2), Some(6), Some(7), Some(9)].map(version);
    assert_eq!(read, [1, 1, 2, 2, 7, 7]);
    let higher = Projections::new().with::<Counted<3>>().unwrap();
    assert_eq!(higher.read_version("counted", Some(2)).unwrap().version(), 3);
    assert!(projections.read_version("other", None).is_none() && projections.versions("other").is_empty());
    assert_eq!(projections.names().collect::<Vec<_>>(), ["counted"]);
    assert_eq!(projections.iter().count(), 3);
    assert!(projections.get("counted", 2).is_some() && projections.get("counted", 3).is_none());
    let error = projections.with::<Counted<2>>().err().unwrap();
    assert_eq!(error.to_string(), "projection \"counted\": NAME is registered already with VERSION 2");
}
