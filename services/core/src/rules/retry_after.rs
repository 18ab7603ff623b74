//! What a receiver's `Retry-After` asks for.
//!
//! Owns reading the value: whole seconds, or an HTTP date in any of its three forms, measured on
//! our own clock. Everything else asks for nothing, and the schedule holds. Does not own the cap
//! or the rule that it only delays (see [`super::schedule`]), nor which statuses carry it (see
//! [`super::outcome`]).

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

/// What a number too large to mean anything reads as: 136 years, which every cap cuts and which
/// can be added to any date without overflow.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The wait that the header's value asks for, uncapped; zero for a date in the past.
///
/// Takes any bytes, since receivers send any bytes. White space around the value is not part of
/// it. `12.5`, `300s`, `+5`, `-5`, `1e3`, `0x10` and the empty value ask for nothing.
#[must_use]
pub fn parse(value: &[u8], now: DateTime<Utc>) -> Option<Duration> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return None;
    }
    if value.iter().all(u8::is_ascii_digit) {
        return Some(seconds(value));
    }
    let text = std::str::from_utf8(value).ok()?;
    let at = httpdate::parse_http_date(text).ok()?;
    let wait = at.duration_since(SystemTime::from(now));
    Some(wait.unwrap_or(Duration::ZERO).min(FOREVER))
}

fn seconds(digits: &[u8]) -> Duration {
    let secs = digits.iter().fold(0_u64, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    Duration::from_secs(secs).min(FOREVER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW: i64 = 784_111_777;

    fn at(value: &[u8]) -> Option<Duration> {
        parse(value, DateTime::from_timestamp(NOW, 0).unwrap())
    }

    #[test]
    fn whole_seconds_are_honoured() {
        for (value, secs) in [
            ("0", 0),
            ("1", 1),
            ("3600", 3600),
            ("7200", 7200),
            ("007", 7),
            (" 30 ", 30),
            ("\t30", 30),
            ("9223372037", u64::from(u32::MAX)),
            ("18446744073709551616", u64::from(u32::MAX)),
            (
                "9999999999999999999999999999999999999999",
                u64::from(u32::MAX),
            ),
        ] {
            assert_eq!(
                at(value.as_bytes()),
                Some(Duration::from_secs(secs)),
                "{value}"
            );
        }
    }

    #[test]
    fn all_three_date_forms_are_read_on_our_clock() {
        for value in [
            "Sun, 06 Nov 1994 09:49:37 GMT",
            "Sunday, 06-Nov-94 09:49:37 GMT",
            "Sun Nov  6 09:49:37 1994",
        ] {
            assert_eq!(
                at(value.as_bytes()),
                Some(Duration::from_secs(3600)),
                "{value}"
            );
        }
    }

    #[test]
    fn a_date_in_the_past_asks_for_no_wait() {
        for value in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            assert_eq!(at(value.as_bytes()), Some(Duration::ZERO), "{value}");
        }
    }

    #[test]
    fn the_last_date_there_is_does_not_overflow() {
        assert_eq!(at(b"Fri, 31 Dec 9999 23:59:59 GMT"), Some(FOREVER));
    }

    #[test]
    fn everything_else_asks_for_nothing() {
        for value in [
            &b""[..],
            b" ",
            b"-5",
            b"soon",
            b"12.5",
            b"300s",
            b"1e3",
            b"0x10",
            b"+5",
            b"1 2",
            b"1,2",
            b"\xff",
            b"5\xff",
            b"5\0",
            "\u{0665}".as_bytes(),
            b"Sun, 06 Nov 1994 08:49:37",
            b"Sun, 06 Nov 1994 08:49:37 +0000",
            b"Sun, 32 Nov 1994 08:49:37 GMT",
            b"1994-11-06T08:49:37Z",
        ] {
            assert_eq!(at(value), None, "{}", value.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(value in proptest::collection::vec(any::<u8>(), 0..64), now in any::<i32>()) {
            let _ = parse(&value, DateTime::from_timestamp(i64::from(now), 0).unwrap());
        }

        #[test]
        fn nothing_date_like_panics(value in "[A-Z][a-z]{2,8},? ?[0-9]{1,2}[ -][A-Z][a-z]{2}[ -][0-9]{2,4} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT)?") {
            let _ = at(value.as_bytes());
        }

        #[test]
        fn digits_always_ask_for_a_wait(value in "[0-9]{1,60}") {
            prop_assert!(at(value.as_bytes()).is_some());
        }

        #[test]
        fn dates_survive_the_round_trip(ahead in 0..10_000_000_u64) {
            let wait = Duration::from_secs(ahead);
            let date = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW.unsigned_abs()) + wait;
            prop_assert_eq!(at(httpdate::fmt_http_date(date).as_bytes()), Some(wait));
        }
    }
}
