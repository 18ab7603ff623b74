//! One run of a shape: everything started and warm, the shape's phases, and the report.
//!
//! The shapes' own modules say what is written when, and what they want to see.

mod backlog;
mod flood;
mod hanging;
mod phase;
mod wipe;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Events, Setting};
use crate::host;
use crate::progress::Progress;
use crate::report::{Drives, Goal, Host, MemoryReport, Phase, Report};
use crate::setup::Endpoints;
use crate::shape::{Numbers, Shape};
use crate::system::{Member, Profile, Tuning};
use crate::verify::Verdict;

/// Bounds the memory of plan, journal and log.
const MOST_EVENTS: u32 = 5_000_000;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The shape.
    pub shape: Shape,
    /// Its numbers.
    pub numbers: Numbers,
    /// Bytes of one payload.
    pub payload: usize,
    /// How long hanging endpoints hang.
    pub hang: Duration,
    /// For how long a backlog is held before its endpoint recovers.
    pub hold: Duration,
    /// The `hooklane` binary.
    pub binary: PathBuf,
    /// Whether commits wait for the disk.
    pub profile: Profile,
    /// Settings of hooklane's that differ from the defaults.
    pub tuning: Tuning,
    /// Every n-th request is verified byte by byte.
    pub verify_every: u64,
    /// Keep logs here.
    pub keep_logs: Option<PathBuf>,
}

/// Runs a shape to its end.
///
/// # Errors
/// Where something does not start, breaks, or nothing happens any more; or on `cancelled`.
pub async fn run(
    options: &Options,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Report> {
    let run = Run {
        options,
        progress,
        cancelled,
    };
    match options.shape {
        Shape::Flood | Shape::Fanout10 | Shape::Steady => flood::run(run).await,
        Shape::Hanging => hanging::run(run).await,
        Shape::Backlog => backlog::run(run).await,
        Shape::Wipe => wipe::run(run).await,
    }
}

/// What every shape is given.
#[derive(Clone, Copy)]
struct Run<'a> {
    options: &'a Options,
    progress: &'a Progress,
    cancelled: &'a CancellationToken,
}

/// What a shape found.
struct Found {
    phases: Vec<Phase>,
    memory: Option<MemoryReport>,
    drives_in_vain: Option<Drives>,
    verdict: Verdict,
    goals: Vec<Goal>,
    faults: Vec<String>,
}

impl Run<'_> {
    /// Starts everything, for events of these consumers in this order.
    async fn start(self, consumer_of: Vec<u32>, endpoints: Endpoints) -> Result<(Bench, Host)> {
        let Numbers {
            consumers,
            endpoints_each,
            ..
        } = self.options.numbers;
        let setting = Setting {
            binary: self.options.binary.clone(),
            profile: self.options.profile,
            tuning: self.options.tuning.clone(),
            keep_logs: self.options.keep_logs.clone(),
            consumers,
            endpoints_each,
            endpoints: vec![endpoints],
            payload: self.options.payload,
            consumer_of,
            verify_every: self.options.verify_every,
            members: vec![Member::up()],
            linked: false,
        };
        let bench = Bench::start(setting, self.progress.clone(), self.cancelled.clone()).await?;
        let host = host::look(bench.system.dir())?;
        Ok((bench, host))
    }

    /// As [`Run::start`], with endpoints that nothing limits and everybody's events in turn, and
    /// warm; with the events that are left to be measured.
    async fn start_warm(self) -> Result<(Bench, Host, Events)> {
        let Numbers {
            consumers,
            events,
            warm_up,
            ..
        } = self.options.numbers;
        let all = total(&[warm_up, events])?;
        let consumer_of = in_turn(all, consumers);
        let (bench, host) = self.start(consumer_of, Endpoints::default()).await?;
        let warm = Events {
            from: 0,
            to: warm_up,
        };
        bench.warm_up(warm).await?;
        let measured = Events {
            from: warm_up,
            to: all,
        };
        Ok((bench, host, measured))
    }

    /// Stops everything in order; what the shape found becomes the report.
    async fn finish(self, bench: Bench, host: Host, found: Found) -> Result<Report> {
        bench.progress.step("stopping");
        bench.generator.producer.close().await;
        bench.store.close().await;
        let Found {
            phases,
            memory,
            drives_in_vain,
            verdict,
            goals,
            mut faults,
        } = found;
        if let Err(error) = bench.system.stop_hooklane().await {
            faults.push(format!("{error:#}"));
        }
        Ok(Report {
            shape: self.options.shape.name(),
            profile: self.options.profile,
            payload_bytes: bench.plan.payload_bytes(),
            endpoints: bench.plan.endpoints(),
            host,
            phases,
            memory,
            drives_in_vain,
            verdict,
            goals,
            faults,
        })
    }
}

/// Events of all consumers in turn.
fn in_turn(events: u32, consumers: u32) -> Vec<u32> {
    (0..events).map(|n| n % consumers).collect()
}

fn total(parts: &[u32]) -> Result<u32> {
    parts
        .iter()
        .try_fold(0_u32, |sum, part| sum.checked_add(*part))
        .filter(|sum| *sum <= MOST_EVENTS)
        .with_context(|| format!("a run has at most {MOST_EVENTS} events"))
}
