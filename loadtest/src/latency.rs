//! Latencies, as a histogram with three significant digits.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Ten minutes, in microseconds; anything longer is counted as that.
const MOST: u64 = 600_000_000;

/// A distribution of times in microseconds.
#[derive(Debug, Clone)]
pub struct Latency(Histogram<u32>);

impl Default for Latency {
    #[expect(
        clippy::expect_used,
        reason = "the bounds are constants that the histogram takes"
    )]
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, MOST, 3).expect("valid bounds"))
    }
}

impl Latency {
    /// Adds one time.
    pub fn record(&mut self, micros: u64) {
        self.0.saturating_record(micros.clamp(1, MOST));
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &Self) {
        // Fails only where the bounds differ, and all of ours are the same.
        let _ = self.0.add(&other.0);
    }

    /// Its quantiles, `None` where nothing was recorded.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        if self.0.is_empty() {
            return None;
        }
        let millis = |micros: u64| micros as f64 / 1e3;
        Some(Summary {
            count: self.0.len(),
            p50: millis(self.0.value_at_quantile(0.5)),
            p90: millis(self.0.value_at_quantile(0.9)),
            p99: millis(self.0.value_at_quantile(0.99)),
            p999: millis(self.0.value_at_quantile(0.999)),
            max: millis(self.0.max()),
        })
    }
}

/// Quantiles in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many times were recorded.
    pub count: u64,
    /// Half were faster.
    pub p50: f64,
    /// Nine tenths were faster.
    pub p90: f64,
    /// 99 of 100 were faster.
    pub p99: f64,
    /// 999 of 1,000 were faster.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let mut latency = Latency::default();
        assert_eq!(latency.summary(), None);
        for micros in 1..=1000 {
            latency.record(micros * 1000);
        }
        let summary = latency.summary().unwrap();
        assert_eq!(summary.count, 1000);
        assert!((summary.p50 - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99 - 990.0).abs() < 1.0, "{summary:?}");
        assert!((summary.max - 1000.0).abs() < 1.0, "{summary:?}");
    }
}
