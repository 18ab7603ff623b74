//! The partner's clock: when it says that it signed, and how far that may be from ours.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Reject;
use super::place::{Parts, Place, Unfit};

/// How a timestamp is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Whole seconds since 1970.
    S,
    /// Whole milliseconds since 1970.
    Ms,
    /// `2026-01-31T12:00:00Z`, with any offset.
    Rfc3339,
}

/// A timestamp of a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Timestamp {
    pub(crate) place: Place,
    pub(crate) unit: Unit,
    /// How old it may be.
    pub(crate) past: Duration,
    /// How far ahead of our clock it may be.
    pub(crate) future: Duration,
}

impl Timestamp {
    /// Reads it.
    ///
    /// # Errors
    /// [`Reject`] where it is missing or not written as it should be.
    pub(crate) fn read(&self, parts: &Parts<'_>) -> Result<DateTime<Utc>, Reject> {
        let text = match parts.text(&self.place) {
            Ok(Some(text)) if !text.is_empty() => text,
            Ok(_) => return Err(Reject::MissingTimestamp),
            Err(Unfit::Repeated) => return Err(Reject::RepeatedPart),
            Err(Unfit::NoText) => return Err(Reject::MalformedTimestamp),
            Err(Unfit::NoJson(_)) => return Err(Reject::UnreadableBody),
        };
        parse(&text, self.unit).ok_or(Reject::MalformedTimestamp)
    }

    /// Whether it is near enough to now.
    ///
    /// # Errors
    /// [`Reject::TooOld`], [`Reject::TooNew`].
    pub(crate) fn check(&self, at: DateTime<Utc>, now: DateTime<Utc>) -> Result<(), Reject> {
        let age = now.signed_duration_since(at);
        // A tolerance beyond what a time can differ by tolerates everything.
        let beyond =
            |age: chrono::TimeDelta, most: Duration| age.to_std().is_ok_and(|age| age > most);
        if beyond(age, self.past) {
            Err(Reject::TooOld)
        } else if beyond(-age, self.future) {
            Err(Reject::TooNew)
        } else {
            Ok(())
        }
    }
}

fn parse(text: &str, unit: Unit) -> Option<DateTime<Utc>> {
    let number = || {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i64>().ok().filter(|_| digits)
    };
    match unit {
        Unit::S => DateTime::from_timestamp(number()?, 0),
        Unit::Ms => DateTime::from_timestamp_millis(number()?),
        Unit::Rfc3339 => DateTime::parse_from_rfc3339(text).ok().map(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_read_in_its_unit_and_no_other_way() {
        let second = 1_700_000_000;
        for (text, unit, expected) in [
            ("1700000000", Unit::S, Some(second)),
            ("01700000000", Unit::S, Some(second)),
            ("1700000000000", Unit::Ms, Some(second)),
            ("2023-11-14T22:13:20Z", Unit::Rfc3339, Some(second)),
            ("2023-11-15T00:13:20+02:00", Unit::Rfc3339, Some(second)),
            ("1700000000.5", Unit::S, None),
            ("1.7e9", Unit::S, None),
            ("-1700000000", Unit::S, None),
            ("+1700000000", Unit::S, None),
            (" 1700000000", Unit::S, None),
            ("", Unit::S, None),
            ("9223372036854775808", Unit::S, None),
            ("9223372036854775807", Unit::S, None),
            ("9223372036854775807", Unit::Ms, None),
            ("2023-11-14", Unit::Rfc3339, None),
            ("1700000000", Unit::Rfc3339, None),
        ] {
            let found = parse(text, unit).map(|at| at.timestamp());
            assert_eq!(found, expected, "{text} {unit:?}");
        }
    }

    #[test]
    fn the_tolerance_holds_both_ways_to_the_second() {
        let timestamp = Timestamp {
            place: Place::Raw,
            unit: Unit::S,
            past: Duration::from_secs(300),
            future: Duration::from_secs(60),
        };
        let at = |second| DateTime::from_timestamp(second, 0).unwrap();
        for (age, expected) in [
            (0, Ok(())),
            (299, Ok(())),
            (300, Ok(())),
            (301, Err(Reject::TooOld)),
            (-60, Ok(())),
            (-61, Err(Reject::TooNew)),
            (1_699_000_000, Err(Reject::TooOld)),
        ] {
            let now = 1_700_000_000;
            assert_eq!(timestamp.check(at(now - age), at(now)), expected, "{age}");
        }
    }
}
