//! Pauses between rounds, and a growing one while something outside is down.

use std::time::Duration;

use hooklane_core::error::ErrorCode;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// The longest pause between two tries.
const LONGEST: Duration = Duration::from_secs(5);
/// The first pause after a failure.
const FIRST: Duration = Duration::from_millis(50);

/// Waits; `false` when told to stop meanwhile.
pub(crate) async fn pause(time: Duration, term: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = term.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

/// The pause of one loop while rounds fail: doubling up to 5 s, and jittered over half its length, so
/// that several processes don't do the same at the same instant.
#[derive(Debug)]
pub(crate) struct Pace {
    next: Duration,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// A round went well.
    pub(crate) fn good(&mut self) {
        self.next = FIRST;
    }

    /// A round failed; says so in the log.
    pub(crate) fn bad(&mut self, what: &'static str, fault: &hooklane_store::Error) -> Duration {
        let pause = self.grow(rand::random());
        if fault.is_transient() {
            warn!(%fault, ?pause, "{what} failed, trying again");
        } else {
            error!(%fault, ?pause, "{what} fails until this is repaired, trying again");
        }
        pause
    }

    /// A round failed on the broker's side; says so in the log.
    pub(crate) fn broker(&mut self, what: &'static str, fault: &dyn std::fmt::Display) -> Duration {
        let pause = self.grow(rand::random());
        warn!(%fault, code = %ErrorCode::NatsUnavailable, ?pause, "{what} failed, trying again");
        pause
    }

    fn grow(&mut self, sample: f64) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(LONGEST);
        pause.mul_f64(0.5 + sample.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_while_it_fails_and_are_short_again_afterwards() {
        let mut pace = Pace::new();
        let mut grown = |count: usize| -> Vec<u128> {
            let pauses = (0..count).map(|_| pace.grow(1.0).as_millis());
            pauses.collect()
        };
        assert_eq!(
            grown(9),
            [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
        );
        pace.good();
        assert_eq!(pace.grow(0.0), FIRST / 2);
    }
}
