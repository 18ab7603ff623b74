//! Where a listing goes on: the last dead letter's place as one word.

use chrono::DateTime;
use hooklane_store::dead_letter::Place;

use crate::output::time;

/// `<failed at>/<message>/<endpoint>`.
pub(super) fn text(place: Place) -> String {
    let Place {
        failed_at,
        message,
        endpoint,
    } = place;
    format!("{}/{message}/{endpoint}", time(failed_at))
}

/// Reads [`text`]'s form.
pub(super) fn parse(text: &str) -> Result<Place, String> {
    let mut parts = text.split('/');
    let mut read = || {
        let place = Place {
            failed_at: DateTime::parse_from_rfc3339(parts.next()?).ok()?.to_utc(),
            message: parts.next()?.parse().ok()?,
            endpoint: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(place)
    };
    read().ok_or_else(|| "give the cursor that the listing before named".to_owned())
}

#[cfg(test)]
mod tests {
    use hooklane_proto::id::{EndpointId, MessageId};

    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        let place = Place {
            failed_at: DateTime::from_timestamp_micros(1_777_777_777_123_456).unwrap(),
            message: MessageId::for_test(1),
            endpoint: EndpointId::for_test(2),
        };
        assert_eq!(parse(&text(place)), Ok(place));
        assert!(parse("").is_err());
        assert!(parse(&format!("{}/x", text(place))).is_err());
    }
}
