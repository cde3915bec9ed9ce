//! Times: relative to now, and exact in UTC when the pointer is over them. The script adds the viewer's zone.

use jiff::Timestamp;
use maud::{Markup, html};

/// A time, relative to `now`: the time in the stack, which may not be that of this machine.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> Markup {
    let exact = format!("{at:.3}");
    let text = age_text(now.as_millisecond() - at.as_millisecond());
    html! { time datetime=(exact) title=(exact) { (text) } }
}

/// A time relative to the first one of a list; that one relative to `now`.
pub(crate) fn since(at: Timestamp, first: Option<Timestamp>, now: Timestamp) -> Markup {
    match first.map_or(0, |first| at.as_millisecond() - first.as_millisecond()) {
        0 => relative(at, now),
        since => html! { span title=(format!("{at:.3}")) { (span_text(since)) " later" } },
    }
}

/// [`relative`] for a time in milliseconds since 1970.
pub(crate) fn relative_ms(milliseconds: u64, now: Timestamp) -> Markup {
    let at = i64::try_from(milliseconds).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    at.map_or_else(|| html! { (milliseconds) }, |at| relative(at, now))
}

/// An exact time in UTC, to which the script adds the viewer's zone.
pub(crate) fn exact(at: Timestamp) -> Markup {
    let exact = format!("{at:.3}");
    html! { time.exact datetime=(exact) { (exact) } }
}

/// A time span in the unit that suits it.
pub(crate) fn span_text(milliseconds: i64) -> String {
    match milliseconds.max(0) {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms @ 60_000..3_600_000 => format!("{} min", ms / 60_000),
        ms @ 3_600_000..172_800_000 => format!("{} h", ms / 3_600_000),
        ms => format!("{} days", ms / 86_400_000),
    }
}

/// The same without a fraction of a second.
fn whole_text(milliseconds: i64) -> String {
    if milliseconds < 60_000 { format!("{} s", milliseconds / 1_000) } else { span_text(milliseconds) }
}

fn age_text(milliseconds: i64) -> String {
    match milliseconds {
        -999..1_000 => "just now".to_owned(),
        ms @ ..0 => format!("in {}", whole_text(-ms)),
        ms => format!("{} ago", whole_text(ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_unit_that_suits_them() {
        for (milliseconds, text) in [
            (-5, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (61_000, "1 min"),
            (7_200_000, "2 h"),
            (864_000_000, "10 days"),
        ] {
            assert_eq!(span_text(milliseconds), text);
        }
        assert_eq!(age_text(59_999), "59 s ago");
        assert_eq!(age_text(-1), "just now");
        assert_eq!([-1_250, -599_000].map(age_text), ["in 1 s", "in 9 min"]);
    }
}
