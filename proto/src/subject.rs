//! Subjects, streams, buckets and durable names: the one place that spells them.
//!
//! Producers and operators never name a partition: the streams' subject transforms put it in.

use crate::id::EndpointId;
use crate::token::{ConsumerId, EventType, Partner};

/// Events that producers publish straight to NATS.
pub const INTAKE: &str = "INTAKE";
/// Accepted events on their way to fan-out.
pub const EVENTS: &str = "EVENTS";
/// One message per drive of one delivery.
pub const DELIVERIES: &str = "DELIVERIES";
/// What happened at the lanes, batched.
pub const RECORDS: &str = "RECORDS";
/// The broker's word that a message is exhausted.
pub const ADVISORIES: &str = "ADVISORIES";
/// Deliveries that failed for good, whole.
pub const DLQ: &str = "DLQ";
/// Partners' events that the inbox accepted, in order, for the adopter.
pub const INBOX: &str = "INBOX";
/// Key-value bucket: endpoint settings.
pub const ROUTES: &str = "ROUTES";
/// Key-value bucket: who owns which partition.
pub const LEASES: &str = "LEASES";

/// The durable that reads `INTAKE`.
pub const INTAKE_DURABLE: &str = "relay";
/// The durable that reads `RECORDS`.
pub const RECORDS_DURABLE: &str = "recorder";
/// The durable that reads what `ADVISORIES` has of deliveries and events.
pub const ADVISORIES_DURABLE: &str = "dlq";
/// The durable that reads what `ADVISORIES` has of [`INBOX`].
pub const INBOX_ADVISORIES_DURABLE: &str = "inbox";

/// Longest event type in an [`inbox`] subject, in bytes.
pub const INBOX_TYPE_MAX: usize = 200;

/// `intake.<consumer>.<event type>`
#[must_use]
pub fn intake(consumer: &ConsumerId, event_type: &EventType) -> String {
    format!("intake.{consumer}.{event_type}")
}

/// The two unchecked parts of an intake subject, `None` where it has no such parts.
#[must_use]
pub fn parse_intake(subject: &str) -> Option<(&str, &str)> {
    subject.strip_prefix("intake.")?.split_once('.')
}

/// `events.<consumer>.<event type>`
#[must_use]
pub fn events(consumer: &ConsumerId, event_type: &EventType) -> String {
    format!("events.{consumer}.{event_type}")
}

/// `deliveries.<consumer>.<endpoint>`
#[must_use]
pub fn deliveries(consumer: &ConsumerId, endpoint: EndpointId) -> String {
    format!("deliveries.{consumer}.{endpoint}")
}

/// `dlq.<consumer>.<endpoint>`
#[must_use]
pub fn dead_letters(consumer: &ConsumerId, endpoint: EndpointId) -> String {
    format!("dlq.{consumer}.{endpoint}")
}

/// `records.<partition>`
#[must_use]
pub fn records(partition: u16) -> String {
    format!("records.{partition}")
}

/// What `EVENTS` stores of one partition.
#[must_use]
pub fn events_of(partition: u16) -> String {
    format!("events.{partition}.>")
}

/// What `DELIVERIES` stores of one partition.
#[must_use]
pub fn deliveries_of(partition: u16) -> String {
    format!("deliveries.{partition}.>")
}

/// The durable that fans out one partition.
#[must_use]
pub fn fanout_durable(partition: u16) -> String {
    format!("fanout-{partition}")
}

/// The durable that feeds one partition's lanes.
#[must_use]
pub fn lanes_durable(partition: u16) -> String {
    format!("lanes-{partition}")
}

/// The request that asks a partition's owner for its lanes' room.
#[must_use]
pub fn room(partition: u16) -> String {
    format!("room.{partition}")
}

/// The request that asks a partition's owner to hand it over to a dispatcher with fewer.
#[must_use]
pub fn hand_over(partition: u16) -> String {
    format!("hand_over.{partition}")
}

/// `inbox.<partner>.<event type>`
///
/// A partner's event types are text of any kind. Words of `A-Z`, `a-z`, `0-9`, `_` and `-` between
/// dots stay as they are; in others each other byte becomes `=` and two hexadecimal digits, and an
/// empty word becomes `=`. So different types have different subjects, none has a wildcard, and what
/// they have in common in front stays in front. One that gets longer than [`INBOX_TYPE_MAX`] is cut
/// and ends with a word of `==` and a hash of the whole.
#[must_use]
pub fn inbox(partner: &Partner, event_type: &str) -> String {
    format!("inbox.{partner}.{}", inbox_type(event_type))
}

/// What [`INBOX`] stores of one partner.
#[must_use]
pub fn inbox_of(partner: &Partner) -> String {
    format!("inbox.{partner}.>")
}

fn inbox_type(event_type: &str) -> String {
    const HASH: usize = ".==".len() + 16;
    let mut text = String::with_capacity(event_type.len());
    // Where it may be cut, with room for the hash.
    let mut cut = 0;
    for (at, word) in event_type.split('.').enumerate() {
        if at > 0 {
            text.push('.');
        }
        if word.is_empty() {
            text.push('=');
        }
        for byte in word.bytes() {
            if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("={byte:02X}"));
            }
            if text.len() <= INBOX_TYPE_MAX - HASH {
                cut = text.len();
            }
        }
        if text.len() > INBOX_TYPE_MAX {
            text.truncate(cut);
            return format!("{text}.=={:016x}", fnv1a(event_type));
        }
    }
    text
}

/// A hash that is the same in every release: FNV-1a.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The key of an endpoint's settings in [`ROUTES`].
#[must_use]
pub fn route_key(consumer: &ConsumerId, endpoint: EndpointId) -> String {
    format!("{consumer}.{endpoint}")
}

/// The key of a partition's owner in [`LEASES`].
#[must_use]
pub fn lease_key(partition: u16) -> String {
    format!("owner.{partition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_intake_subject_gives_back_its_parts() {
        let consumer = ConsumerId::new("acme").unwrap();
        let event_type = EventType::new("invoice.paid").unwrap();
        let subject = intake(&consumer, &event_type);
        assert_eq!(parse_intake(&subject), Some(("acme", "invoice.paid")));
        assert_eq!(parse_intake("intake.acme"), None);
        assert_eq!(parse_intake("events.acme.x"), None);
    }

    #[test]
    fn what_a_partner_calls_its_events_becomes_words_of_a_subject() {
        let partner = Partner::new("stripe").unwrap();
        let subject = |event_type: &str| inbox(&partner, event_type);
        let cases = [
            ("invoice.paid", "invoice.paid"),
            ("pull_request-opened", "pull_request-opened"),
            ("", "="),
            ("a..b", "a.=.b"),
            (".", "=.="),
            ("a b", "a=20b"),
            ("*", "=2A"),
            ("a.>", "a.=3E"),
            ("a=b", "a=3Db"),
            ("\u{fc}\r\n", "=C3=BC=0D=0A"),
        ];
        for (event_type, expected) in cases {
            assert_eq!(subject(event_type), format!("inbox.stripe.{expected}"));
        }
    }

    #[test]
    fn a_long_event_type_is_cut_and_told_from_others() {
        let partner = Partner::new("p").unwrap();
        let whole = "x".repeat(INBOX_TYPE_MAX);
        assert_eq!(inbox(&partner, &whole), format!("inbox.p.{whole}"));
        let long = [
            "x".repeat(201),
            "x".repeat(100_000),
            " ".repeat(99),
            format!("{}.y", "x.".repeat(100)),
        ];
        let mut seen = std::collections::HashSet::new();
        for event_type in &long {
            let subject = inbox(&partner, event_type);
            let text = subject.strip_prefix("inbox.p.").unwrap();
            assert!(text.len() <= INBOX_TYPE_MAX, "{text}");
            assert!(text.split('.').all(|word| !word.is_empty()), "{text}");
            assert!(seen.insert(subject));
        }
        assert!(inbox(&partner, &" ".repeat(99)).contains("=20.=="));
    }
}
