//! Where a listing goes on: the last event's place as one word.

use chrono::DateTime;
use hooklane_store::inbox::Place;

use crate::output::time;

/// `<received at>/<event>`.
pub(super) fn text(place: Place) -> String {
    let Place { received_at, id } = place;
    format!("{}/{id}", time(received_at))
}

/// Reads [`text`]'s form.
pub(super) fn parse(text: &str) -> Result<Place, String> {
    let read = || {
        let (received_at, id) = text.split_once('/')?;
        Some(Place {
            received_at: DateTime::parse_from_rfc3339(received_at).ok()?.to_utc(),
            id: id.parse().ok()?,
        })
    };
    read().ok_or_else(|| "give the cursor that the listing before named".to_owned())
}

#[cfg(test)]
mod tests {
    use hooklane_proto::id::InboxId;

    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        let place = Place {
            received_at: DateTime::from_timestamp_micros(1_777_777_777_123_456).unwrap(),
            id: InboxId::for_test(1),
        };
        let read = parse(&text(place)).unwrap();
        assert_eq!((read.received_at, read.id), (place.received_at, place.id));
        assert!(parse("").is_err());
        assert!(parse(&format!("{}/x", text(place))).is_err());
    }
}
