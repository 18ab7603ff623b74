//! Pauses of loops: between rounds, and growing ones while something outside is down.
//!
//! Owns how long they are. What a loop logs about a failure, and which pause follows a good round, are
//! the loop's own.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// The first pause after a failure.
const FIRST: Duration = Duration::from_millis(50);

/// Waits; `false` when told to stop meanwhile.
pub async fn pause(time: Duration, term: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = term.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

/// A pause of half of `time` to all of it, so that several processes don't do the same at the same
/// instant. `sample` is random, from 0 to 1.
#[must_use]
pub fn jittered(time: Duration, sample: f64) -> Duration {
    time.mul_f64(0.5 + sample.clamp(0.0, 1.0) / 2.0)
}

/// Pauses that double from 50 ms up to the longest, each [`jittered`].
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// Of at most `longest`.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        Self {
            next: FIRST.min(longest),
            longest,
        }
    }

    /// The next one; `sample` as for [`jittered`].
    pub fn next(&mut self, sample: f64) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        jittered(pause, sample)
    }

    /// What failed went well: they begin anew.
    pub fn reset(&mut self) {
        *self = Self::new(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::new(Duration::from_millis(150));
        let seen: Vec<Duration> = (0..4).map(|_| pauses.next(1.0)).collect();
        assert_eq!(seen, [50, 100, 150, 150].map(Duration::from_millis));
        assert_eq!(pauses.next(0.0), Duration::from_millis(75));
    }
}
