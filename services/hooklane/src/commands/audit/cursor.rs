//! Where a listing goes on: the last entry's place as one word.

use chrono::DateTime;
use hooklane_store::audit_log::Place;

use crate::output::time;

/// `<time>/<id>`.
pub(super) fn text((at, id): Place) -> String {
    format!("{}/{id}", time(at))
}

/// Reads [`text`]'s form.
pub(super) fn parse(text: &str) -> Result<Place, String> {
    let read = || {
        let (at, id) = text.split_once('/')?;
        let at = DateTime::parse_from_rfc3339(at).ok()?.to_utc();
        Some((at, id.parse().ok()?))
    };
    read().ok_or_else(|| "give the cursor that the listing before named".to_owned())
}

#[cfg(test)]
mod tests {
    use hooklane_proto::id::AuditId;

    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        let at = DateTime::from_timestamp_micros(1_777_777_777_123_456).unwrap();
        let place = (at, AuditId::for_test(1));
        assert_eq!(parse(&text(place)), Ok(place));
        assert!(parse("").is_err());
        assert!(parse(&format!("{}/x", text(place))).is_err());
    }
}
