//! Who gets what: consumers and their endpoints, and the events of a run with their ids, payloads
//! and consumers.
//!
//! Everything is known before the run begins and computed from an event's number (its ordinal), so
//! that neither generator nor receiver has to keep what was sent. A message id holds the ordinal:
//! the receiver finds an event's place by reading the `webhook-id` header alone.

use std::fmt::Write;
use std::ops::Range;

use uuid::Uuid;

/// Smallest payload: what names the event, and the closing brace.
pub const PAYLOAD_MIN: usize = 64;
/// The one event type of a run.
pub const EVENT_TYPE: &str = "load.event";

/// A run's consumers, endpoints and events.
#[derive(Debug, Clone)]
pub struct Plan {
    consumers: u32,
    endpoints_each: u32,
    payload: usize,
    /// Tells this run's ids from any other's.
    nonce: u32,
    /// The high half of every id: time in milliseconds, then the version.
    id_high: u64,
    /// By ordinal.
    consumer_of: Vec<u32>,
}

impl Plan {
    /// Events go to `consumer_of`'s consumers in this order; payloads are `payload` bytes long.
    ///
    /// # Panics
    /// Where an event is of no consumer: a fault of the shape.
    #[must_use]
    pub fn new(
        consumers: u32,
        endpoints_each: u32,
        payload: usize,
        consumer_of: Vec<u32>,
        millis: u64,
        nonce: u32,
    ) -> Self {
        assert!(
            consumer_of.iter().all(|consumer| *consumer < consumers),
            "every event is of one of the {consumers} consumers"
        );
        Self {
            consumers,
            endpoints_each,
            payload: payload.max(PAYLOAD_MIN),
            nonce: nonce & 0x3fff_ffff,
            id_high: (millis << 16) | 0x7000 | u64::from(nonce >> 20),
            consumer_of,
        }
    }

    /// How many consumers there are.
    #[must_use]
    pub fn consumers(&self) -> u32 {
        self.consumers
    }

    /// How many endpoints each consumer has.
    #[must_use]
    pub fn endpoints_each(&self) -> u32 {
        self.endpoints_each
    }

    /// How many endpoints there are.
    #[must_use]
    pub fn endpoints(&self) -> u32 {
        self.consumers * self.endpoints_each
    }

    /// How many events there are.
    #[must_use]
    pub fn events(&self) -> u32 {
        u32::try_from(self.consumer_of.len()).unwrap_or(u32::MAX)
    }

    /// How many (event, endpoint) pairs there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.consumer_of.len() * self.endpoints_each as usize
    }

    /// A payload's length in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload
    }

    /// A consumer's id.
    #[must_use]
    pub fn consumer_name(consumer: u32) -> String {
        format!("load-{consumer:05}")
    }

    /// Whose event it is.
    #[must_use]
    pub fn consumer_of(&self, ordinal: u32) -> u32 {
        self.consumer_of[ordinal as usize]
    }

    /// A consumer's endpoints.
    #[must_use]
    pub fn endpoints_of(&self, consumer: u32) -> Range<u32> {
        consumer * self.endpoints_each..(consumer + 1) * self.endpoints_each
    }

    /// The place of an (event, endpoint) pair, `None` where the event is not for that endpoint.
    #[must_use]
    pub fn slot(&self, ordinal: u32, endpoint: u32) -> Option<u32> {
        let consumer = *self.consumer_of.get(ordinal as usize)?;
        let range = self.endpoints_of(consumer);
        range
            .contains(&endpoint)
            .then(|| ordinal * self.endpoints_each + (endpoint - range.start))
    }

    /// The event and the endpoint of a place.
    #[must_use]
    pub fn pair(&self, slot: u32) -> (u32, u32) {
        let ordinal = slot / self.endpoints_each;
        let endpoint =
            self.endpoints_of(self.consumer_of(ordinal)).start + slot % self.endpoints_each;
        (ordinal, endpoint)
    }

    /// An event's id.
    #[must_use]
    pub fn id(&self, ordinal: u32) -> Uuid {
        let low = (0b10 << 62) | (u64::from(self.nonce) << 32) | u64::from(ordinal);
        Uuid::from_u64_pair(self.id_high, low)
    }

    /// The event with this id, `None` for an id of another run.
    #[must_use]
    pub fn ordinal(&self, id: Uuid) -> Option<u32> {
        let (_, low) = id.as_u64_pair();
        let ordinal = u32::try_from(low & u64::from(u32::MAX)).ok()?;
        (ordinal < self.events() && self.id(ordinal) == id).then_some(ordinal)
    }

    /// An event's payload: a JSON text of exactly the planned length, different for every event.
    #[must_use]
    pub fn payload(&self, ordinal: u32) -> String {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut text = String::with_capacity(self.payload);
        // Writing to a String can't fail.
        let _ = write!(text, r#"{{"type":"{EVENT_TYPE}","n":{ordinal},"data":""#);
        // A cheap generator: the filler must not compress to nothing, and must differ.
        let mut state = u64::from(ordinal).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while text.len() + 2 < self.payload {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            for part in 0..8 {
                if text.len() + 2 == self.payload {
                    break;
                }
                let index = (state >> (part * 8)) as usize % LETTERS.len();
                text.push(char::from(LETTERS[index]));
            }
        }
        text.push_str("\"}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(3, 2, 200, vec![0, 2, 1, 2], 1_700_000_000_000, 0xdead_beef)
    }

    #[test]
    fn ids_give_their_ordinal_back_and_no_others() {
        let plan = plan();
        for ordinal in 0..4 {
            assert_eq!(plan.ordinal(plan.id(ordinal)), Some(ordinal));
        }
        assert_eq!(plan.ordinal(plan.id(4)), None);
        let other = Plan::new(3, 2, 200, vec![0; 4], 1_700_000_000_000, 7);
        assert_eq!(plan.ordinal(other.id(1)), None);
    }

    #[test]
    fn slots_and_pairs_are_each_others_inverse() {
        let plan = plan();
        for ordinal in 0..4 {
            for endpoint in plan.endpoints_of(plan.consumer_of(ordinal)) {
                let slot = plan.slot(ordinal, endpoint).unwrap();
                assert_eq!(plan.pair(slot), (ordinal, endpoint));
            }
        }
        assert_eq!(plan.slot(0, 2), None);
        assert_eq!(plan.slots(), 8);
    }

    #[test]
    fn payloads_are_json_of_the_planned_length() {
        for length in [PAYLOAD_MIN, 200, 1024, 1031] {
            let plan = Plan::new(1, 1, length, vec![0; 2], 0, 0);
            for ordinal in 0..2 {
                let payload = plan.payload(ordinal);
                assert_eq!(payload.len(), length);
                let value: serde_json::Value = serde_json::from_str(&payload).unwrap();
                assert_eq!(value["n"], ordinal);
            }
            assert_ne!(plan.payload(0), plan.payload(1));
        }
    }
}
