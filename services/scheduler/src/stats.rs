//! What the scheduler has done since it started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug, Default)]
struct Counters {
    leads: AtomicBool,
    clocks_apart: AtomicBool,
    claimed: AtomicU64,
    published: AtomicU64,
    unconfirmed: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
    sweeps: AtomicU64,
    lost: AtomicU64,
    overdue: AtomicU64,
    settled: AtomicU64,
    task_steps: AtomicU64,
    task_due: AtomicU64,
    task_refused: AtomicU64,
}

/// Tells what a running scheduler has done; clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct Handle(Arc<Counters>);

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Whether it has the lead now.
    pub leads: bool,
    /// Whether it does nothing now because clocks are apart.
    pub clocks_apart: bool,
    /// Deliveries claimed for another drive.
    pub claimed: u64,
    /// Those that the broker confirmed.
    pub published: u64,
    /// Those that it did not confirm in time.
    pub unconfirmed: u64,
    /// Those that it will never take.
    pub refused: u64,
    /// Requests for room that nobody answered.
    pub unanswered: u64,
    /// Sweeps of a partition brought to their end.
    pub sweeps: u64,
    /// Deliveries that they found lost.
    pub lost: u64,
    /// Deliveries failed past their deadline.
    pub overdue: u64,
    /// Deliveries of stopped endpoints skipped or cancelled.
    pub settled: u64,
    /// Steps of tasks.
    pub task_steps: u64,
    /// Deliveries that tasks made due.
    pub task_due: u64,
    /// Deliveries that tasks were to make due and did not.
    pub task_refused: u64,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Claimed,
    Published,
    Unconfirmed,
    Refused,
    Unanswered,
    Sweeps,
    Lost,
    Overdue,
    Settled,
    TaskSteps,
    TaskDue,
    TaskRefused,
}

impl Handle {
    /// The counts by now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let Counters {
            leads,
            clocks_apart,
            claimed,
            published,
            unconfirmed,
            refused,
            unanswered,
            sweeps,
            lost,
            overdue,
            settled,
            task_steps,
            task_due,
            task_refused,
        } = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            leads: leads.load(Ordering::Relaxed),
            clocks_apart: clocks_apart.load(Ordering::Relaxed),
            claimed: get(claimed),
            published: get(published),
            unconfirmed: get(unconfirmed),
            refused: get(refused),
            unanswered: get(unanswered),
            sweeps: get(sweeps),
            lost: get(lost),
            overdue: get(overdue),
            settled: get(settled),
            task_steps: get(task_steps),
            task_due: get(task_due),
            task_refused: get(task_refused),
        }
    }

    pub(crate) fn add(&self, what: Count, by: u64) {
        let counters = &*self.0;
        let counter = match what {
            Count::Claimed => &counters.claimed,
            Count::Published => &counters.published,
            Count::Unconfirmed => &counters.unconfirmed,
            Count::Refused => &counters.refused,
            Count::Unanswered => &counters.unanswered,
            Count::Sweeps => &counters.sweeps,
            Count::Lost => &counters.lost,
            Count::Overdue => &counters.overdue,
            Count::Settled => &counters.settled,
            Count::TaskSteps => &counters.task_steps,
            Count::TaskDue => &counters.task_due,
            Count::TaskRefused => &counters.task_refused,
        };
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.0.leads.store(leads, Ordering::Relaxed);
    }

    pub(crate) fn clocks_apart(&self, apart: bool) {
        self.0.clocks_apart.store(apart, Ordering::Relaxed);
    }
}
