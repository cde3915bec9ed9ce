//! Times on the command line: a point in time, or a duration before now.

use std::str::FromStr;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};

/// A time on the command line: `2026-11-20T08:00:00Z`, `now`, or a duration before now, such as `90s`, `30m`, `2h`, `7d`, `1w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    Ago(SignedDuration),
}

impl Moment {
    /// The point in time, if it is `now` at the moment.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "now" {
            return Ok(Self::Ago(SignedDuration::ZERO));
        }
        if let Some(ago) = text.parse::<Span>().ok().filter(|span| !span.is_negative())
            && let Ok(ago) = ago.to_duration(SpanRelativeTo::days_are_24_hours())
        {
            return Ok(Self::Ago(ago));
        }
        text.parse().map(Self::At).map_err(|_| {
            "expected a time such as 2026-11-20T08:00:00Z, a duration before now such as 30m, 2h or 7d, or now"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_absolute_or_a_duration_before_now() {
        let now: Timestamp = "2026-11-20T08:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("now", "2026-11-20T08:00:00Z"),
            ("90s", "2026-11-20T07:58:30Z"),
            ("30m", "2026-11-20T07:30:00Z"),
            ("2h", "2026-11-20T06:00:00Z"),
            ("7d", "2026-11-13T08:00:00Z"),
            ("1w", "2026-11-13T08:00:00Z"),
            ("2026-11-19T23:00:00+01:00", "2026-11-19T22:00:00Z"),
            // Before the first time that can be written.
            ("7304484d", "-009999-01-02T01:59:59Z"),
        ] {
            let moment: Moment = text.parse().unwrap();
            assert_eq!(moment.resolve(now).to_string(), expected, "{text}");
        }
        for text in ["", "2", "h", "-2h", "2y", "tomorrow", "99999999999999999999d", "9999999999999999d"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
