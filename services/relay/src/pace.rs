//! Pauses: between polls, and after faults.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// Growing, jittered pauses while something outside is down. Says so once, and once when it is up
/// again.
#[derive(Debug)]
pub(crate) struct Faults {
    what: String,
    pauses: Option<ExponentialBackoff>,
}

impl Faults {
    /// For the work called `what`, such as `outbox main`.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            pauses: None,
        }
    }

    /// The work went well.
    pub(crate) fn over(&mut self) {
        if self.pauses.take().is_some() {
            info!(work = self.what, "works again");
        }
    }

    /// The work failed: waits before it is tried again, or until `shutdown`.
    pub(crate) async fn pause(
        &mut self,
        error: &(dyn std::error::Error + Sync),
        shutdown: &CancellationToken,
    ) {
        let pause = self.next(error);
        let _ = shutdown
            .run_until_cancelled(tokio::time::sleep(pause))
            .await;
    }

    fn next(&mut self, error: &dyn std::error::Error) -> Duration {
        match &self.pauses {
            None => warn!(work = self.what, %error, "failed, trying again"),
            Some(_) => debug!(work = self.what, %error, "failed again"),
        }
        let pauses = self.pauses.get_or_insert_with(|| {
            ExponentialBuilder::new()
                .with_min_delay(FIRST)
                .with_max_delay(LONGEST)
                .with_jitter()
                .without_max_times()
                .build()
        });
        pauses.next().unwrap_or(LONGEST)
    }
}

/// Pauses between polls: short after something was found, doubling while nothing is.
#[derive(Debug)]
pub(crate) struct Polls {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Polls {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            next: min,
        }
    }

    /// Something was found; the pause before looking for more.
    pub(crate) fn found(&mut self) -> Duration {
        self.next = self.min;
        self.min
    }

    /// Nothing was found; the pause before looking again.
    pub(crate) fn nothing(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_slow_down_while_nothing_is_found() {
        let ms = Duration::from_millis;
        let mut polls = Polls::new(ms(5), ms(30));
        let pauses: Vec<_> = (0..5).map(|_| polls.nothing()).collect();
        assert_eq!(pauses, [5, 10, 20, 30, 30].map(ms));
        assert_eq!(polls.found(), ms(5));
        assert_eq!(polls.nothing(), ms(5));
    }

    #[test]
    fn faults_pause_longer_and_longer_and_start_over() {
        let mut faults = Faults::new("test");
        let error = std::fmt::Error;
        let pauses: Vec<_> = (0..20).map(|_| faults.next(&error)).collect();
        assert!(pauses[0] >= FIRST && pauses[0] <= FIRST * 2, "{pauses:?}");
        assert!(
            pauses[19] >= LONGEST && pauses[19] <= LONGEST * 2,
            "{pauses:?}"
        );
        faults.over();
        assert!(faults.next(&error) <= FIRST * 2);
    }
}
