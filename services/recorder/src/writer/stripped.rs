//! A record without what its delivery can do without.

use hooklane_proto::record::{Attempt, Record};

/// The same attempt without headers, body, detail and trace; `None` where there is nothing to leave
/// out.
pub(crate) fn of(record: &Record) -> Option<Record> {
    match record {
        Record::Attempt(attempt) => Some(Record::Attempt(Attempt {
            headers: Vec::new(),
            body: Vec::new(),
            detail: None,
            trace: None,
            ..attempt.clone()
        })),
        Record::Parked(_) | Record::Skipped(_) => None,
    }
}
