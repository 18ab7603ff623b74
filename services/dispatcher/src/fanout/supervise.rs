//! What follows when a lane fails, and how a publishing task's end is never missed.

use hooklane_proto::id::EndpointId;
use hooklane_proto::record::ParkReason;
use ractor::ActorId;
use tracing::error;

use super::{Msg, Ref, State};
use crate::attempt::interrupted;
use crate::lane::hand::{Flight, Held};
use crate::lane::settle::{after_fault, park};
use crate::records::{Entry, Owner};

impl State {
    /// A lane has failed: records what it held, and keeps it down if that happens too often.
    pub(super) fn failed(&mut self, actor: ActorId, reason: &str) {
        let Some(endpoint) = self.endpoints.remove(&actor) else {
            return;
        };
        let now = self.context.time.now();
        let restart = &self.context.config.restart;
        let Some(slot) = self.lanes.get_mut(&endpoint) else {
            return;
        };
        slot.failures.push_back(now);
        while slot
            .failures
            .front()
            .is_some_and(|&at| now.saturating_sub(at) > restart.within)
        {
            slot.failures.pop_front();
        }
        let count = slot.failures.len();
        let down = count > restart.max as usize;
        if down {
            slot.down_until = Some(now + restart.down);
        }
        error!(%endpoint, reason, count, down, "a lane failed");
        if let Some(running) = slot.lane.take() {
            let held: Vec<Held> = running.hand.lock().drain().map(|(_, held)| held).collect();
            for held in held {
                self.context.recorder.settle(self.leftover(held));
            }
        }
        if self.draining.is_some() {
            self.lanes.remove(&endpoint);
        }
    }

    /// The record of a delivery that a failed lane held.
    fn leftover(&self, mut held: Held) -> Entry {
        match held.flight.take().filter(Flight::is_begun) {
            Some(flight) => {
                let why = "the lane failed while the attempt was under way";
                let schedule = self.context.engine.schedule();
                let record = interrupted(&held.delivery, flight.started_at, why, schedule);
                Entry {
                    record,
                    owner: Owner::Ack(held.grip),
                }
            }
            None => park(held, ParkReason::Fault, Some(after_fault())),
        }
    }
}

/// The duty to tell that a publishing task has ended, however it ends.
pub(super) struct Told {
    fence: u64,
    pub(super) lost: Vec<EndpointId>,
    fanout: Ref,
}

impl Told {
    pub(super) fn new(fence: u64, fanout: Ref) -> Self {
        Self {
            fence,
            lost: Vec::new(),
            fanout,
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        let message = Msg::Published {
            fence: self.fence,
            lost,
        };
        // A fan-out that is gone has no use for it.
        let _ = self.fanout.cast(message);
    }
}
