//! The values of the options of `daybook load`.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;

/// A share, from 0 % to 100 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// The number of selected items among the first `count`. The selected ones are spread evenly.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a number of requests")]
    pub(super) fn count(self, count: u64) -> u64 {
        // The small addition is for shares that have no exact binary form: a tenth of 10 is 1.
        (count as f64 * self.0 + 1e-9) as u64
    }

    /// Whether the item `index`, counted from 0, is selected.
    pub(super) fn selects(self, index: u64) -> bool {
        self.count(index + 1) > self.count(index)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.map(|percent| Self(percent / 100.0)).ok_or_else(|| "expected 0% to 100%, as in 20%".to_owned())
    }
}

/// A header of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub(super) name: String,
    pub(super) value: String,
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').filter(|(name, _)| !name.trim().is_empty());
        let (name, value) = parts.ok_or_else(|| "expected NAME: VALUE".to_owned())?;
        Ok(Self { name: name.trim().to_ascii_lowercase(), value: value.trim().to_owned() })
    }
}

/// Parses `90s`, `5m` or `1h 30m`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    parsed.filter(|duration| !duration.is_zero()).ok_or_else(|| "expected a duration, as in 90s, 5m or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_selects_its_part_of_any_number_of_items() {
        for (text, of_100) in [("0%", 0), ("20%", 20), ("33", 33), ("100%", 100), ("10%", 10)] {
            let share: Share = text.parse().unwrap();
            assert_eq!((0..100).filter(|&index| share.selects(index)).count() as u64, of_100, "{text}");
            assert_eq!(share.count(100), of_100, "{text}");
        }
        for wrong in ["", "x", "-1%", "101%", "NaN"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn header_and_duration_are_parsed() {
        let header: Header = "Authorization: Bearer a:b".parse().unwrap();
        assert_eq!((&*header.name, &*header.value), ("authorization", "Bearer a:b"));
        assert!("no header".parse::<Header>().is_err() && ": x".parse::<Header>().is_err());
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        assert!(parse_duration("0s").is_err() && parse_duration("-5s").is_err() && parse_duration("5").is_err());
    }
}
