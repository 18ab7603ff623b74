//! Generates load through the outbox, as a producer's own code would: several connections, each
//! writing transactions of a few rows.
//!
//! Arrival is open-loop: every transaction has its due time, whatever the system does, and
//! [`Generated::late`] tells by how much the generator itself missed it. Without a rate it writes
//! as fast as the database takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use hooklane_store::producer::{End, Producer, Row};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::epoch::Epoch;
use crate::journal::{Fate, Journal};
use crate::latency::Latency;
use crate::plan::{EVENT_TYPE, Plan};

/// The pause before a transaction that failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// Which events to write, and how.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The first event's ordinal.
    pub from: u32,
    /// The ordinal after the last event's.
    pub to: u32,
    /// Events a second; `None` writes as fast as it goes.
    pub rate: Option<f64>,
    /// Rows of one transaction.
    pub rows: u32,
    /// Transactions at a time.
    pub connections: u32,
    /// Every n-th transaction is rolled back; 0 for none.
    pub roll_back_every: u32,
    /// Every n-th transaction that commits is followed by one with the same events in new rows,
    /// under the same idempotency keys, which must come to nothing; 0 for none.
    pub double_every: u32,
    /// How long a transaction that fails is tried again.
    pub patience: Duration,
}

/// What was generated.
#[derive(Debug)]
pub struct Generated {
    /// From the first transaction's beginning to the last one's end.
    pub took: Duration,
    /// How much later than due transactions began; empty without a rate.
    pub late: Latency,
}

/// A generator's parts, shared by its connections.
#[derive(Debug, Clone)]
pub struct Generator {
    /// What the events are.
    pub plan: Arc<Plan>,
    /// Where their times and ends are noted.
    pub journal: Arc<Journal>,
    /// The run's clock.
    pub epoch: Epoch,
    /// The producer's database.
    pub producer: Producer,
}

impl Generator {
    /// Writes the events of `load`. Cancelled, it stops between two transactions and returns what
    /// it has.
    ///
    /// # Errors
    /// Where a transaction fails for longer than the load has patience.
    pub async fn run(&self, load: Load, cancelled: &CancellationToken) -> Result<Generated> {
        let cursor = Arc::new(AtomicU32::new(load.from));
        let start = self.epoch.micros();
        let mut workers = JoinSet::new();
        for _ in 0..load.connections.max(1) {
            let worker = Worker {
                generator: self.clone(),
                load,
                start,
                cursor: Arc::clone(&cursor),
                cancelled: cancelled.clone(),
            };
            workers.spawn(worker.run());
        }
        let mut late = Latency::default();
        while let Some(worker) = workers.join_next().await {
            late.add(&worker.context("a generator's task failed")??);
        }
        Ok(Generated {
            took: Duration::from_micros(self.epoch.micros() - start),
            late,
        })
    }
}

struct Worker {
    generator: Generator,
    load: Load,
    start: u64,
    cursor: Arc<AtomicU32>,
    cancelled: CancellationToken,
}

impl Worker {
    async fn run(self) -> Result<Latency> {
        let Generator {
            plan,
            journal,
            epoch,
            ..
        } = &self.generator;
        let rows_each = self.load.rows.max(1);
        let mut late = Latency::default();
        loop {
            let first = self.cursor.fetch_add(rows_each, Ordering::Relaxed);
            if first >= self.load.to {
                return Ok(late);
            }
            let ordinals = first..first.saturating_add(rows_each).min(self.load.to);
            let rows: Vec<Row> = ordinals
                .clone()
                .map(|n| row(plan, n, self.load.double_every > 0))
                .collect();
            if let Some(rate) = self.load.rate {
                let offset = f64::from(first - self.load.from) / rate * 1e6;
                let due = self.start + offset as u64;
                tokio::select! {
                    () = self.cancelled.cancelled() => return Ok(late),
                    () = sleep_until(epoch.instant(due)) => {}
                }
                late.record(epoch.micros().saturating_sub(due));
            }
            if self.cancelled.is_cancelled() {
                return Ok(late);
            }
            let nth = (first - self.load.from) / rows_each;
            let rolls_back = self.load.roll_back_every > 0
                && nth % self.load.roll_back_every == self.load.roll_back_every - 1;
            let end = if rolls_back {
                End::RollBack
            } else {
                End::Commit
            };
            let began = |now| {
                for ordinal in ordinals.clone() {
                    journal.begin(ordinal, now);
                }
            };
            self.write(&rows, end, began).await?;
            let every = self.load.double_every;
            if end == End::Commit && every > 0 && nth.is_multiple_of(every) {
                let doubles: Vec<Row> = rows.iter().map(double).collect();
                self.write(&doubles, end, |_| ()).await?;
            }
            let fate = match end {
                End::Commit => Fate::Committed,
                End::RollBack => Fate::RolledBack,
            };
            for ordinal in ordinals {
                journal.end(ordinal, fate);
            }
        }
    }
}

impl Worker {
    /// Writes one transaction, again and again as long as there is patience. `began` is told when
    /// the first commit that may have been taken began.
    async fn write(&self, rows: &[Row], end: End, began: impl Fn(u64)) -> Result<()> {
        let Generator {
            epoch, producer, ..
        } = &self.generator;
        let give_up = Instant::now() + self.load.patience;
        let mut is_first = true;
        loop {
            let before_end = || {
                if std::mem::take(&mut is_first) {
                    began(epoch.micros());
                }
            };
            match producer.write(rows, end, before_end).await {
                Ok(()) => return Ok(()),
                Err(_) if Instant::now() < give_up => sleep(AGAIN).await,
                Err(error) => return Err(error).context("writing to the outbox"),
            }
        }
    }
}

/// The same event in another row.
fn double(row: &Row) -> Row {
    Row {
        id: Uuid::now_v7(),
        ..row.clone()
    }
}

fn row(plan: &Plan, ordinal: u32, with_key: bool) -> Row {
    let id = plan.id(ordinal);
    Row {
        id,
        idempotency_key: with_key.then(|| format!("load-{id}")),
        consumer: Plan::consumer_name(plan.consumer_of(ordinal)),
        event_type: EVENT_TYPE.to_owned(),
        payload: plan.payload(ordinal),
        traceparent: None,
    }
}
