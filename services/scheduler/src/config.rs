//! The `[scheduler]` section.

use std::time::Duration;

use hooklane_core::config::Faults;
use serde::{Deserialize, Serialize};

/// How work is put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How often lanes are topped up, 10 ms to 1 minute.
    #[serde(with = "humantime_serde")]
    pub top_up_every: Duration,
    /// Endpoints with due work that one round names at the most, 1 to 20,000; more take turns.
    pub endpoints_at_once: u32,
    /// How long a partition's owner may take to say what its lanes have room for, 10 ms to 10 s.
    /// Without an answer nothing is claimed.
    #[serde(with = "humantime_serde")]
    pub room_timeout: Duration,
    /// How long an answer is good, 10 ms to 10 s: what isn't claimed by then waits for the next
    /// round. Not more than the owner keeps the room that it answered (1 s).
    #[serde(with = "humantime_serde")]
    pub room_good_for: Duration,
    /// Deliveries that one transaction claims at the most, 1 to 20,000.
    pub claim_deliveries: u32,
    /// Bytes of payload that one transaction claims at the most, 64 KiB to 256 MiB; a partition holds
    /// that much at a time.
    pub claim_bytes: u64,
    /// Partitions that claim at the same time, 1 to 64: each needs a connection to the ledger, which
    /// others need too.
    pub claims_at_once: u32,
    /// Deliveries on their way to the broker at a time, over all partitions, 1 to 30,000.
    pub publish_window: usize,
    /// Bytes on their way to the broker at a time, over all partitions, 64 KiB to 256 MiB.
    pub publish_window_bytes: usize,
    /// How long after its claim a delivery is still good: a copy that the broker stores later is
    /// dropped by its reader, 1 s to 10 minutes.
    #[serde(with = "humantime_serde")]
    pub not_after: Duration,
    /// How often what is overdue is failed and what belongs to a stopped endpoint is ended, 10 ms to
    /// 1 minute.
    #[serde(with = "humantime_serde")]
    pub endings_every: Duration,
    /// How often the ledger is asked for what may be lost, 10 ms to 10 minutes.
    #[serde(with = "humantime_serde")]
    pub sweep_every: Duration,
    /// How often a sweep that waits asks the broker again, 10 ms to 1 minute.
    #[serde(with = "humantime_serde")]
    pub sweep_poll: Duration,
    /// How long past its not-after a delivery must be before it can be lost, 1 s to 10 minutes. Keep
    /// it at twice `clock_tolerance` or more.
    #[serde(with = "humantime_serde")]
    pub sweep_grace: Duration,
    /// A sweep that waits longer than this for one stage says so in the log, 1 s to 1 day.
    #[serde(with = "humantime_serde")]
    pub sweep_stuck_after: Duration,
    /// Rows that one statement changes at the most where there may be many, 1 to 20,000.
    pub rows_at_once: u32,
    /// How often the ledger is asked for a task that somebody made, 10 ms to 1 minute.
    #[serde(with = "humantime_serde")]
    pub tasks_every: Duration,
    /// How long to pause after a step of a task, 0 s to 1 minute. A step makes at most `rows_at_once`
    /// deliveries due.
    #[serde(with = "humantime_serde")]
    pub task_pause: Duration,
    /// How often the lead is checked, or tried for, 10 ms to 10 s.
    #[serde(with = "humantime_serde")]
    pub lead_every: Duration,
    /// How often the clocks of this host, PostgreSQL and NATS are compared, 10 ms to 1 minute.
    #[serde(with = "humantime_serde")]
    pub clock_every: Duration,
    /// How far apart those clocks may be before nothing is put back any more, 100 ms to 5 s.
    #[serde(with = "humantime_serde")]
    pub clock_tolerance: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let millis = Duration::from_millis;
        let seconds = Duration::from_secs;
        Self {
            top_up_every: millis(250),
            endpoints_at_once: 10_000,
            room_timeout: millis(500),
            room_good_for: millis(900),
            claim_deliveries: 1_000,
            claim_bytes: 4 << 20,
            claims_at_once: 4,
            publish_window: 4_096,
            publish_window_bytes: 16 << 20,
            not_after: seconds(20),
            endings_every: seconds(1),
            sweep_every: seconds(5),
            sweep_poll: millis(500),
            sweep_grace: seconds(10),
            sweep_stuck_after: seconds(300),
            rows_at_once: 1_000,
            tasks_every: millis(500),
            task_pause: millis(50),
            lead_every: seconds(2),
            clock_every: seconds(5),
            clock_tolerance: seconds(5),
        }
    }
}

impl Config {
    /// Adds what is wrong to `faults`.
    pub fn validate(&self, faults: &mut Faults) {
        let millis = Duration::from_millis;
        let seconds = Duration::from_secs;
        let minute = millis(10)..=seconds(60);
        faults.duration("top_up_every", self.top_up_every, minute.clone());
        faults.range("endpoints_at_once", self.endpoints_at_once, 1..=20_000);
        faults.duration("room_timeout", self.room_timeout, millis(10)..=seconds(10));
        faults.duration(
            "room_good_for",
            self.room_good_for,
            millis(10)..=seconds(10),
        );
        faults.range("claim_deliveries", self.claim_deliveries, 1..=20_000);
        faults.range("claim_bytes", self.claim_bytes, 64 << 10..=256 << 20);
        faults.range("claims_at_once", self.claims_at_once, 1..=64);
        faults.range("publish_window", self.publish_window, 1..=30_000);
        faults.range(
            "publish_window_bytes",
            self.publish_window_bytes,
            64 << 10..=256 << 20,
        );
        faults.duration("not_after", self.not_after, seconds(1)..=seconds(600));
        faults.duration("endings_every", self.endings_every, minute.clone());
        faults.duration("sweep_every", self.sweep_every, millis(10)..=seconds(600));
        faults.duration("sweep_poll", self.sweep_poll, minute.clone());
        faults.duration("sweep_grace", self.sweep_grace, seconds(1)..=seconds(600));
        faults.duration(
            "sweep_stuck_after",
            self.sweep_stuck_after,
            seconds(1)..=seconds(86_400),
        );
        faults.range("rows_at_once", self.rows_at_once, 1..=20_000);
        faults.duration("tasks_every", self.tasks_every, minute.clone());
        faults.duration("task_pause", self.task_pause, Duration::ZERO..=seconds(60));
        faults.duration("lead_every", self.lead_every, millis(10)..=seconds(10));
        faults.duration("clock_every", self.clock_every, minute);
        faults.duration(
            "clock_tolerance",
            self.clock_tolerance,
            millis(100)..=seconds(5),
        );
        if self.sweep_grace < self.clock_tolerance * 2 {
            faults.add(
                "sweep_grace",
                format!("is {:?}, less than twice clock_tolerance", self.sweep_grace),
                "make it longer, or clock_tolerance shorter",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_have_no_faults_and_nonsense_has_many() {
        let mut faults = Faults::new();
        Config::default().validate(&mut faults);
        assert!(faults.is_empty(), "{faults}");
        let config = Config {
            claim_deliveries: 0,
            not_after: Duration::ZERO,
            sweep_grace: Duration::from_secs(9),
            ..Config::default()
        };
        config.validate(&mut faults);
        assert_eq!(faults.found().len(), 3, "{faults}");
    }
}
