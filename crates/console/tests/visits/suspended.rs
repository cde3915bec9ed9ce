//! The suspended aggregates of projections.

use std::sync::atomic::{AtomicBool, Ordering};

use aggregates::Todo;
use daybook_decider::Aggregate;
use daybook_local_stack::Project;
use daybook_projection::{FollowedEvent, Follows, Projection, Projections, Source};

use crate::stack::Visit;

/// Whether the code of [`Titles`] has an error.
static HAS_ERROR: AtomicBool = AtomicBool::new(true);

struct Titles;

impl Projection for Titles {
    const NAME: &'static str = "titles";
    const VERSION: u32 = 1;

    type Row = u32;
    type Change = ();

    fn sources() -> Vec<Source<Self>> {
        vec![Source::of::<Todo>()]
    }

    fn apply(row: Option<u32>, (): &()) -> Option<u32> {
        Some(row.unwrap_or_default() + 1)
    }
}

impl Follows<Todo> for Titles {
    type State = ();

    fn advance((): (), _: &FollowedEvent<'_, <Todo as Aggregate>::Event>) {
        assert!(!HAS_ERROR.load(Ordering::Relaxed), "no <b>title</b>");
    }

    fn changes((): &(), _: &FollowedEvent<'_, <Todo as Aggregate>::Event>, (): &()) -> Vec<(String, ())> {
        vec![("all".to_owned(), ())]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_aggregates_are_listed_and_the_selected_ones_resumed() {
    let projections = || Projections::new().with::<Titles>();
    let visit = Visit::of(Project { aggregates: aggregates::registry, projections }, &[]).await;
    for id in ["1", "2"] {
        visit.create_todo(id, "t").await;
        visit.page_with("/stream", &format!("value=\"todo/{id}\"")).await;
    }
    let stream = visit.page("/stream").await;
    stream
        .has("todo/1/events/1\">todo/1 1</a>")
        .has("titles version 1")
        .has("no &lt;b&gt;title&lt;/b&gt;")
        .has(">Resume the selected<");

    // The code still has the error.
    let resumed = visit.submit("/projections", &[("aggregate", "todo/1")]).await;
    assert_eq!(resumed.path, "/_console/stream");
    resumed.has("1 aggregate was resumed.");
    visit.page_with("/stream", "value=\"todo/1\"").await.has("value=\"todo/2\"");

    HAS_ERROR.store(false, Ordering::Relaxed);
    visit.submit("/projections", &[("aggregate", "todo/1")]).await.has("1 aggregate was resumed.");
    visit.page_with("/stream", "1 of 2").await.lacks("value=\"todo/1\"").has("value=\"todo/2\"");
    assert_eq!(visit.json("/views/titles/all").await["row"], 1);
    for nothing in [[].as_slice(), &[("aggregate", "todo/1")], &[("aggregate", "todo")], &[("aggregate", "other/1")]] {
        visit.submit("/projections", nothing).await.has("Nothing was resumed");
    }
    let both = [("aggregate", "todo/1"), ("aggregate", "todo/2")];
    visit.submit("/projections", &both).await.has("1 aggregate was resumed.");
    let begun = std::time::Instant::now();
    while visit.json("/views/titles/all").await["row"] != 2 {
        assert!(begun.elapsed().as_secs() < 20, "todo/2 is not folded");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    visit.page("/stream").await.lacks("Resume the selected");
    visit.stop().await;
}
