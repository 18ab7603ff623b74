//! A growing pause while something outside is down.

use std::time::Duration;

use hooklane_core::error::ErrorCode;
use hooklane_core::pace::Pauses;
use tracing::{error, warn};

/// The longest pause between two tries.
const LONGEST: Duration = Duration::from_secs(5);

/// The pause of one loop while rounds fail: doubling up to 5 s, and jittered over half its length, so
/// that several processes don't do the same at the same instant.
#[derive(Debug)]
pub(crate) struct Pace {
    pauses: Pauses,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            pauses: Pauses::new(LONGEST),
        }
    }

    /// A round went well.
    pub(crate) fn good(&mut self) {
        self.pauses.reset();
    }

    /// A round failed; says so in the log.
    pub(crate) fn bad(&mut self, what: &'static str, fault: &hooklane_store::Error) -> Duration {
        let pause = self.pauses.next(rand::random());
        if fault.is_transient() {
            warn!(%fault, ?pause, "{what} failed, trying again");
        } else {
            error!(%fault, ?pause, "{what} fails until this is repaired, trying again");
        }
        pause
    }

    /// A round failed on the broker's side; says so in the log.
    pub(crate) fn broker(&mut self, what: &'static str, fault: &dyn std::fmt::Display) -> Duration {
        let pause = self.pauses.next(rand::random());
        warn!(%fault, code = %ErrorCode::NatsUnavailable, ?pause, "{what} failed, trying again");
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_it_fails_and_are_short_again_afterwards() {
        let mut pace = Pace::new();
        let mut grown = |count: usize| -> Vec<u128> {
            let pauses = (0..count).map(|_| pace.pauses.next(1.0).as_millis());
            pauses.collect()
        };
        assert_eq!(
            grown(9),
            [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
        );
        pace.good();
        assert_eq!(pace.pauses.next(0.0), Duration::from_millis(25));
    }
}
