//! A lane's one timer.

use std::time::Duration;

use ractor::ActorRef;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::Msg;

/// The one timer. A message of an earlier generation means nothing.
#[derive(Default)]
pub(super) struct Timer {
    generation: u64,
    armed: Option<(Duration, AbortOnDropHandle<()>)>,
}

impl Timer {
    /// Which message is the armed timer's.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Its message has come.
    pub(super) fn fired(&mut self) {
        self.armed = None;
    }

    /// Wakes the lane at that time or a little earlier.
    pub(super) fn arm(&mut self, lane: &ActorRef<Msg>, at: Duration, until: Instant) {
        if self.armed.as_ref().is_some_and(|(armed, _)| *armed <= at) {
            return;
        }
        self.generation += 1;
        let generation = self.generation;
        let lane = lane.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if lane.cast(Msg::Wake(generation)).is_err() {
                debug!("a timer outlived its lane");
            }
        });
        self.armed = Some((at, AbortOnDropHandle::new(task)));
    }
}
