//! Where a listing goes on: the last delivery's key as one word.

use chrono::DateTime;
use hooklane_proto::delivery::DeliveryKey;

use crate::output::time;

/// `<accepted at>/<message>/<endpoint>`.
pub(super) fn text(key: DeliveryKey) -> String {
    format!("{}/{}/{}", time(key.accepted_at), key.message, key.endpoint)
}

/// Reads [`text`]'s form.
pub(super) fn parse(text: &str) -> Result<DeliveryKey, String> {
    let mut parts = text.split('/');
    let mut read = || {
        let key = DeliveryKey {
            accepted_at: DateTime::parse_from_rfc3339(parts.next()?).ok()?.to_utc(),
            message: parts.next()?.parse().ok()?,
            endpoint: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(key)
    };
    read().ok_or_else(|| "give the cursor that the listing before named".to_owned())
}

#[cfg(test)]
mod tests {
    use hooklane_proto::id::{EndpointId, MessageId};

    use super::*;

    #[test]
    fn a_cursor_is_read_back() {
        let key = DeliveryKey {
            accepted_at: DateTime::from_timestamp_micros(1_777_777_777_123_456).unwrap(),
            message: MessageId::for_test(1),
            endpoint: EndpointId::for_test(2),
        };
        assert_eq!(parse(&text(key)), Ok(key));
        // As a listing names it that ran out of patience between two deliveries.
        let between = DeliveryKey {
            message: MessageId::from_uuid(Default::default()),
            endpoint: EndpointId::from_uuid(Default::default()),
            ..key
        };
        assert_eq!(parse(&text(between)), Ok(between));
        assert!(parse("").is_err());
        assert!(parse(&format!("{}/x", text(key))).is_err());
    }
}
