//! Pauses between tries while something outside is down.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);

/// Growing pauses, jittered over half their length so that several recorders don't come back at the
/// same instant.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn new(longest: Duration) -> Self {
        Self {
            next: FIRST.min(longest),
            longest,
        }
    }

    pub(crate) fn next(&mut self, sample: f64) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause.mul_f64(0.5 + sample.clamp(0.0, 1.0) / 2.0)
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
