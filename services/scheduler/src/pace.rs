//! Pauses between rounds, and a growing one while something outside is down.

use std::time::Duration;

use hooklane_core::pace::jittered;
use hooklane_store::Error;
use tracing::{error, warn};

const LONGEST: Duration = Duration::from_secs(5);

/// The pause of one loop: its usual one after a good round, and doubling up to 5 s, jittered over
/// half its length, while the ledger fails.
#[derive(Debug)]
pub(crate) struct Pace {
    usual: Duration,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(usual: Duration) -> Self {
        Self { usual, next: usual }
    }

    /// A round went well.
    pub(crate) fn good(&mut self) -> Duration {
        self.next = self.usual;
        self.usual
    }

    /// A round failed; says so in the log.
    pub(crate) fn bad(&mut self, what: &'static str, fault: &Error) -> Duration {
        let pause = self.grow(rand::random());
        if fault.is_transient() {
            warn!(%fault, ?pause, "{what} failed, trying again");
        } else {
            error!(%fault, ?pause, "{what} fails until this is repaired, trying again");
        }
        pause
    }

    fn grow(&mut self, sample: f64) -> Duration {
        let longest = LONGEST.max(self.usual);
        self.next = (self.next * 2).clamp(Duration::from_millis(20), longest);
        jittered(self.next, sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_it_fails_and_are_the_usual_ones_afterwards() {
        let mut pace = Pace::new(Duration::from_millis(250));
        let grown: Vec<u128> = (0..6).map(|_| pace.grow(1.0).as_millis()).collect();
        assert_eq!(grown, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!(pace.good(), Duration::from_millis(250));
        assert_eq!(pace.grow(0.0), Duration::from_millis(250));
    }
}
