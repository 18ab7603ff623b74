//! What the relay has done, for whoever asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hooklane_nats::events;
use hooklane_store::accept::Outcome;

/// Tells what a relay has done; clones tell of the same one.
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    accepted: AtomicU64,
    repeated: AtomicU64,
    set_aside: AtomicU64,
    events: events::Counts,
    routed: AtomicU64,
}

/// What a relay has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Events accepted.
    pub accepted: u64,
    /// Events that had been accepted before, under the same key.
    pub repeated: u64,
    /// Events set aside.
    pub set_aside: u64,
    /// Wire messages that `EVENTS` confirmed.
    pub published: u64,
    /// Wire messages that it did not confirm in time, left to the sweep.
    pub left: u64,
    /// Routes published.
    pub routed: u64,
}

impl Handle {
    /// What was done so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            accepted: read(&self.0.accepted),
            repeated: read(&self.0.repeated),
            set_aside: read(&self.0.set_aside),
            published: self.0.events.published(),
            left: self.0.events.left(),
            routed: read(&self.0.routed),
        }
    }

    /// Whether events can't be published at present, and are left to the sweep.
    #[must_use]
    pub fn is_publishing_down(&self) -> bool {
        self.0.events.is_down()
    }

    pub(crate) fn outcomes(&self, outcomes: &[Outcome]) {
        for outcome in outcomes {
            let counter = match outcome {
                Outcome::Accepted(_) => &self.0.accepted,
                Outcome::Repeat(_) => &self.0.repeated,
                Outcome::Rejected(_) => &self.0.set_aside,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Where the lanes count.
    pub(crate) fn events(&self) -> &events::Counts {
        &self.0.events
    }

    pub(crate) fn routed(&self, routes: u64) {
        self.0.routed.fetch_add(routes, Ordering::Relaxed);
    }
}
