//! Handing on: what was applied reaches the adopter.
//!
//! - `publish`: the inbox's outbox goes to the stream `INBOX`, by one process at a time (`lead`);
//! - `request`: the adopter's handlers are asked, over NATS or HTTP (`call`), and answer;
//! - `exhausted`: what the adopter's own JetStream consumers gave up counts as a failure.
//!
//! Sources whose adopter takes events by SQL need nothing of this. Does not own what a failure costs:
//! when it is tried again, and when no more, is `hooklane-store`'s.

mod call;
pub(crate) mod exhausted;
pub(crate) mod lead;
mod publish;
pub(crate) mod request;
mod rounds;

use hooklane_proto::inbox::{Entity, InboxEvent};
use hooklane_store::Error;
use hooklane_store::inbox::{Failures, HandOff};

use crate::Parts;
use crate::stats::Count;
use crate::worker::alarm;

/// What travels.
fn event(hand_off: HandOff) -> InboxEvent {
    let HandOff {
        id,
        partner,
        partner_event_id,
        event_type,
        entity,
        sequence,
        integrity,
        content_type,
        headers: _,
        body,
        received_at: _,
        attempt,
    } = hand_off;
    InboxEvent {
        id,
        partner,
        partner_event: partner_event_id,
        event_type,
        entity: entity.map(|(kind, key)| Entity {
            kind,
            key,
            sequence,
        }),
        integrity,
        content_type,
        attempt,
        body,
    }
}

/// Counts what failed, and says so where it was the last time.
fn note(parts: &Parts, failures: &Failures) {
    let Failures {
        again,
        quarantined,
        stale: _,
    } = failures;
    parts.handle.add(Count::Failed, u64::from(*again));
    alarm(parts, quarantined);
}

/// Whether a statement is to be tried again as it is; otherwise it never succeeds.
fn passes(fault: &Error) -> bool {
    !fault.is_data_fault()
}
