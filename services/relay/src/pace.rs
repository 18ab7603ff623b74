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

/// Pauses between polls grow with the silence: one lasts an eighth of the time in which nothing was
/// found, so an event is late by at most an eighth of the silence before it.
#[derive(Debug)]
pub(crate) struct Polls {
    min: Duration,
    max: Duration,
    /// Paused since something was found.
    silence: Duration,
}

/// One pause is this part of the silence.
const PART: u32 = 8;

impl Polls {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self {
            min,
            max,
            silence: Duration::ZERO,
        }
    }

    /// Something was found; the pause before looking for more.
    pub(crate) fn found(&mut self) -> Duration {
        self.silence = Duration::ZERO;
        self.min
    }

    /// Nothing was found; the pause before looking again.
    pub(crate) fn nothing(&mut self) -> Duration {
        let pause = (self.silence / PART).max(self.min).min(self.max);
        self.silence = self.silence.saturating_add(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_slow_down_with_the_silence() {
        let ms = Duration::from_millis;
        let mut polls = Polls::new(ms(5), ms(250));
        let mut silence = Duration::ZERO;
        while silence < ms(40) {
            assert_eq!(polls.nothing(), ms(5));
            silence += ms(5);
        }
        let mut count = 0;
        while silence < ms(2_000) {
            let pause = polls.nothing();
            assert_eq!(pause, silence / PART);
            silence += pause;
            count += 1;
        }
        assert!((30..40).contains(&count), "{count} polls in two seconds");
        assert_eq!(polls.nothing(), ms(250));
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
