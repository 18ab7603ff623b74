//! The text form of a time on the wire: RFC 3339 with microseconds, which is what Postgres keeps.

use chrono::{DateTime, SecondsFormat, Utc};

pub(crate) fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

pub(crate) fn parse(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc3339(text)
        .ok()
        .map(|at| at.with_timezone(&Utc))
}
