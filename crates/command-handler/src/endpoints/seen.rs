//! The parameter `seen`: an event that a view must show before the response is made, so that callers read their own
//! writes.

use std::time::Duration;

use daybook_decider::Caller;
use daybook_event_store::StoreError;
use daybook_table::AggregateKey;
use daybook_table::keys::MAX_SEQ_NUM;
use daybook_view_store::Position;
use tokio::time::{Instant, sleep_until};

use super::authorization::reading;
use crate::api::{Api, NamedView};
use crate::problem::{self, Problem, ProblemType};
use crate::request::bounds::Bounds;

/// The pause after the first read of a position. It doubles with each further read.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST_PAUSE: Duration = Duration::from_millis(200);

pub(super) const SEEN_PROBLEMS: &[&ProblemType] =
    &[&problem::BAD_QUERY, &problem::NOT_FOUND, &problem::NO_SUCH_VERSION, &problem::BEHIND, &problem::NEWER_RELEASE];

/// Waits until the view shows the event that `seen` names, and returns its aggregate; `None` without `seen`.
pub(super) async fn wait_until_seen(
    api: &Api,
    view: NamedView<'_>,
    seen: Option<&str>,
    caller: &Caller,
    bounds: &Bounds,
) -> Result<Option<AggregateKey>, Problem> {
    let Some(seen) = seen else { return Ok(None) };
    let (key, seq_num) = parse(seen).ok_or_else(|| {
        Problem::new(&problem::BAD_QUERY, format!("seen is {seen:?}, expected TYPE/ID@NUMBER, such as account/123@7"))
    })?;
    let follows = view.model.follows();
    let model = api.registry.get(&key.aggregate_type).filter(|model| follows.contains(&model.type_name()));
    let model = model.ok_or_else(|| {
        let known = follows.join(", ");
        let unknown =
            format!("seen names the type {:?}, which this view does not show; it shows {known}", key.aggregate_type);
        Problem::new(&problem::BAD_QUERY, unknown)
    })?;
    // The response shows whether the event exists, which not every caller may know.
    let (authorization, _) = reading(&api.store, model, &key, Some(caller)).await?;
    if !authorization.is_allowed() {
        return Err(problem::forbidden("Read"));
    }
    let (rows, aggregates) = (view.rows(), [key.clone()].into());
    let read = || async { Ok::<_, StoreError>(view.store.positions(&rows, &aggregates).await?.remove(&key)) };
    let mut position = read().await?;
    if !ends_wait(position.as_ref(), seq_num) {
        // No view ever shows an event that does not exist.
        let found = api.store.events(&key, seq_num - 1, 1).await?;
        if found.items.is_empty() && found.unreadable.is_empty() {
            return Err(problem::no_such_event(&key, seq_num));
        }
        let until = bounds.read_until().min(Instant::now() + api.settings.seen_wait);
        position = wait(position, seq_num, until, read).await?;
    }
    let reached = position.as_ref().map_or(0, |position| position.seq_num);
    if reached < seq_num {
        let is_suspended = position.is_some_and(|position| position.suspended.is_some());
        return Err(problem::behind(&key, seq_num, reached, is_suspended));
    }
    Ok(Some(key))
}

/// The aggregate and the number of the event in `account/123@7`.
fn parse(seen: &str) -> Option<(AggregateKey, u64)> {
    let (aggregate, seq_num) = seen.rsplit_once('@')?;
    let is_number = !seq_num.starts_with('0') && seq_num.bytes().all(|byte| byte.is_ascii_digit());
    let seq_num = seq_num.parse().ok().filter(|seq_num| is_number && (1..=MAX_SEQ_NUM).contains(seq_num))?;
    Some((aggregate.parse().ok()?, seq_num))
}

/// Whether the event is shown, or waiting does not help.
fn ends_wait(position: Option<&Position>, seq_num: u64) -> bool {
    position.is_some_and(|position| position.seq_num >= seq_num || position.suspended.is_some())
}

/// Reads the position again and again, until the event is shown, waiting does not help, or the time is up.
async fn wait<E, R: Future<Output = Result<Option<Position>, E>>>(
    mut position: Option<Position>,
    seq_num: u64,
    until: Instant,
    read: impl Fn() -> R,
) -> Result<Option<Position>, E> {
    let mut pause = FIRST_PAUSE;
    while !ends_wait(position.as_ref(), seq_num) && Instant::now() < until {
        sleep_until(until.min(Instant::now() + pause)).await;
        pause = LONGEST_PAUSE.min(pause * 2);
        position = read().await?;
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use daybook_decider::Json;

    use super::*;

    fn position(seq_num: u64, suspended: Option<&str>) -> Option<Position> {
        Some(Position {
            seq_num,
            state: Json::empty_object(),
            suspended: suspended.map(str::to_owned),
            resumed_at: None,
        })
    }

    /// The milliseconds at which the position was read, if it becomes `last` at the given one, and the last position.
    async fn reads(wait_ms: u64, last: Option<Position>, last_at_ms: u64) -> (Vec<u128>, Option<Position>) {
        let (began, times) = (Instant::now(), RefCell::new(Vec::new()));
        let read = || async {
            times.borrow_mut().push(began.elapsed().as_millis());
            let is_last = began.elapsed() >= Duration::from_millis(last_at_ms);
            Ok::<_, Infallible>(if is_last { last.clone() } else { position(6, None) })
        };
        let Ok(found) = wait(None, 7, began + Duration::from_millis(wait_ms), read).await;
        (times.into_inner(), found)
    }

    #[tokio::test(start_paused = true)]
    async fn position_is_read_after_growing_pauses_until_the_time_is_up() {
        let (times, found) = reads(2_000, None, u64::MAX).await;
        assert_eq!(times, [20, 60, 140, 300, 500, 700, 900, 1_100, 1_300, 1_500, 1_700, 1_900, 2_000]);
        assert_eq!(found, position(6, None));
        let (times, _) = reads(50, None, u64::MAX).await;
        assert_eq!(times, [20, 50]);
        assert_eq!(reads(0, None, u64::MAX).await, (Vec::new(), None));
    }

    #[tokio::test(start_paused = true)]
    async fn wait_ends_when_the_event_is_shown_or_the_aggregate_is_suspended() {
        for last in [position(7, None), position(9, None), position(6, Some("a reason"))] {
            assert_eq!(reads(2_000, last.clone(), 100).await, (vec![20, 60, 140], last));
        }
    }

    #[test]
    fn seen_names_an_aggregate_and_the_number_of_an_event() {
        assert_eq!(parse("account/123@7"), Some((AggregateKey::new("account", "123"), 7)));
        assert_eq!(
            parse("account/~a.b_c-d@999999999999"),
            Some((AggregateKey::new("account", "~a.b_c-d"), MAX_SEQ_NUM))
        );
        for odd in [
            "",
            "account",
            "account/123",
            "account/123@",
            "account/123@0",
            "account/123@07",
            "account/123@+7",
            "account/123@1000000000000",
            "account/123@x",
            "account@7",
            "account/@7",
            "account/..@7",
            "account/1/2@7",
            "account/a b@7",
            "account/123@7@8",
            "account/123@-1",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
