//! Pauses between rounds, and a growing one while something outside is down.

use std::time::Duration;

use hooklane_core::pace::jittered;
use tracing::{error, warn};

use crate::fault::Fault;

const LONGEST: Duration = Duration::from_secs(5);

/// The pause of one loop: its usual one after a good round, and doubling up to 5 s while rounds
/// fail. Both are jittered over half their length, so that several movers don't do the same at the
/// same instant.
#[derive(Debug)]
pub(crate) struct Pace {
    usual: Duration,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(usual: Duration) -> Self {
        Self {
            usual,
            next: usual.min(LONGEST),
        }
    }

    /// A round went well.
    pub(crate) fn good(&mut self) -> Duration {
        self.next = self.usual.min(LONGEST);
        jittered(self.usual, rand::random())
    }

    /// A round failed; says so in the log.
    pub(crate) fn bad(&mut self, what: &'static str, fault: &Fault) -> Duration {
        let pause = self.grow(rand::random());
        if fault.is_transient() {
            warn!(%fault, ?pause, "{what} failed, trying again");
        } else {
            error!(%fault, ?pause, "{what} fails until this is repaired, trying again");
        }
        pause
    }

    fn grow(&mut self, sample: f64) -> Duration {
        self.next = (self.next * 2).clamp(Duration::from_millis(50), LONGEST);
        jittered(self.next, sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_it_fails_and_are_the_usual_ones_afterwards() {
        let mut pace = Pace::new(Duration::from_secs(30));
        let grown: Vec<u64> = (0..2).map(|_| pace.grow(1.0).as_secs()).collect();
        assert_eq!(grown, [5, 5]);
        let mut pace = Pace::new(Duration::from_millis(10));
        let grown: Vec<u128> = (0..3).map(|_| pace.grow(1.0).as_millis()).collect();
        assert_eq!(grown, [50, 100, 200]);
        assert!(pace.good() <= Duration::from_millis(10));
        assert_eq!(pace.grow(0.0), Duration::from_millis(25));
    }
}
