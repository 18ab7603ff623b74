//! Subjects, streams, buckets and durable names: the one place that spells them.
//!
//! Producers and operators never name a partition: the streams' subject transforms put it in.

use crate::id::EndpointId;
use crate::token::{ConsumerId, EventType};

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
/// Key-value bucket: endpoint settings.
pub const ROUTES: &str = "ROUTES";
/// Key-value bucket: who owns which partition.
pub const LEASES: &str = "LEASES";

/// The durable that reads `INTAKE`.
pub const INTAKE_DURABLE: &str = "relay";
/// The durable that reads `RECORDS`.
pub const RECORDS_DURABLE: &str = "recorder";
/// The durable that reads `ADVISORIES`.
pub const ADVISORIES_DURABLE: &str = "dlq";

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
}
