//! The shape `backlog`: a great many messages waiting for one hanging endpoint beside a healthy
//! one, held for a while, then let go. The process must not grow with the backlog, and no row may
//! be driven and parked again and again before its first attempt.

use std::time::Duration;

use anyhow::Result;
use hooklane_store::audit;
use tokio_util::sync::CancellationToken;

use super::{Events, Found, Options, Run, pause, total};
use crate::generate::Load;
use crate::measure::{Memory, Watch};
use crate::progress::Progress;
use crate::receiver::Behaviour;
use crate::report::{Drives, Goal, MemoryReport, Report};
use crate::setup::Endpoints;

/// Consumer and endpoint of either kind: each consumer has one endpoint.
const HANGING: u32 = 0;
const HEALTHY: u32 = 1;
/// Events a second for the healthy endpoint, all the time.
const HEALTHY_RATE: f64 = 100.0;
/// The healthy endpoint's events end when the rest of the run does; no run is longer than this.
const HEALTHY_SECONDS: u32 = 1_200;
/// Before memory is read for the first time, so that what a busy system needs anyway is in it.
const SETTLE: Duration = Duration::from_secs(5);
/// By how much hooklane may grow.
const MOST_GROWTH: u64 = 50_000_000;
/// Drives that a row may make in vain before its first attempt.
const MOST_IN_VAIN: usize = 2;

pub(super) async fn run(
    options: &Options,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Report> {
    let numbers = options.numbers;
    let beside = HEALTHY_SECONDS * HEALTHY_RATE as u32;
    let all = total(&[numbers.warm_up, numbers.events, beside])?;
    let warm = Events {
        from: 0,
        to: numbers.warm_up,
    };
    let waiting = Events {
        from: warm.to,
        to: warm.to + numbers.events,
    };
    let consumer_of = (0..all)
        .map(|n| match n {
            n if n < warm.to => n % 2,
            n if n < waiting.to => HANGING,
            _ => HEALTHY,
        })
        .collect();
    let run = Run::start(
        options,
        progress,
        cancelled,
        consumer_of,
        Endpoints::default(),
    )
    .await?;
    run.warm_up(warm).await?;

    // The healthy endpoint's load goes on beside everything else, until the end.
    let enough = cancelled.child_token();
    let beside = Load {
        connections: 2,
        ..run.load(
            Events {
                from: waiting.to,
                to: all,
            },
            Some(HEALTHY_RATE),
            1,
        )
    };
    let healthy_load = run.generator.run(beside, &enough);
    let rest = async {
        let result = hold_and_release(&run, waiting).await;
        enough.cancel();
        result
    };
    let (healthy_load, held) = tokio::join!(healthy_load, rest);
    healthy_load?;
    let held = held?;
    run.until(
        "recording",
        |_, open| open.received == 0 && open.outbox == 0,
        true,
    )
    .await?;

    let verdict = run.verdict().await?;
    let vain = audit::vain_drives(&run.store, run.endpoints[HANGING as usize]).await?;
    let mut faults = verdict.unexcusable();
    let totals = verdict.totals;
    if totals.sent + totals.stalled != verdict.expected {
        faults.extend(verdict.all_sent());
    }
    let events = Events {
        from: waiting.to,
        to: waiting.to + u32::try_from(committed_from(&run, waiting.to)).unwrap_or(0),
    };
    let mut phase = run.end("backlog", &held.begun, waiting, &held.generated, |_| true);
    phase.healthy = run.latencies(events, |_| false).0.summary();
    let goals = goals(&held, &vain);
    let found = Found {
        phases: vec![phase],
        memory: Some(MemoryReport {
            before: held.before,
            peak: held.peak,
            hooklane_growth_bytes: held.growth(),
        }),
        drives_in_vain: Some(Drives {
            deliveries: vain.deliveries,
            attempted: vain.attempted,
            by_drives: vain.by_drives.to_vec(),
            most: vain.most,
        }),
        verdict,
        goals,
        faults,
    };
    run.finish(found).await
}

struct Held {
    begun: super::Begun,
    generated: crate::generate::Generated,
    before: Memory,
    peak: Memory,
}

impl Held {
    fn growth(&self) -> u64 {
        self.peak.hooklane.saturating_sub(self.before.hooklane)
    }
}

async fn hold_and_release(run: &Run<'_>, waiting: Events) -> Result<Held> {
    pause(SETTLE, run.cancelled).await?;
    let before = Memory::now(run.system.pids());
    let watch = Watch::start(run.system.pids())?;
    let count = u64::from(waiting.to - waiting.from);
    run.progress.step(&format!(
        "writing {count} events for an endpoint that hangs"
    ));
    run.receiver
        .behave(HANGING, Behaviour::Hang(run.options.hang));
    let begun = run.begin();
    let load = run.load(waiting, run.options.numbers.rate, run.options.numbers.rows);
    let generated = run.generator.run(load, run.cancelled).await?;
    run.progress
        .step(&format!("holding the backlog for {:?}", run.options.hold));
    run.until("accepting", |_, open| open.outbox < 100, true)
        .await?;
    pause(run.options.hold, run.cancelled).await?;
    run.progress.step("letting the endpoint recover");
    run.receiver.behave(HANGING, Behaviour::Answer(200));
    // What was attempted in vain waits for its next attempt by the schedule, minutes from now;
    // everything else must go out at once.
    let attempted = attempted_in_vain(run);
    run.until(
        "draining",
        |_, open| open.outbox < 100 && open.stalled <= attempted && open.received < 1_000,
        true,
    )
    .await?;
    let peak = watch.peak();
    Ok(Held {
        begun,
        generated,
        before,
        peak,
    })
}

/// Requests that the endpoint never answered, or answered when nobody listened any more.
fn attempted_in_vain(run: &Run<'_>) -> u64 {
    run.receiver
        .log()
        .iter()
        .filter(|seen| seen.status == 0 && run.plan.pair(seen.slot).1 == HANGING)
        .count() as u64
}

fn committed_from(run: &Run<'_>, from: u32) -> usize {
    (from..run.plan.events())
        .take_while(|ordinal| run.journal.fate(*ordinal) == crate::journal::Fate::Committed)
        .count()
}

fn goals(held: &Held, vain: &audit::Vain) -> Vec<Goal> {
    let over = vain.over(MOST_IN_VAIN);
    vec![
        Goal {
            what: format!("hooklane grows by less than {} MB", MOST_GROWTH / 1_000_000),
            measured: format!("{:.1} MB", held.growth() as f64 / 1e6),
            met: held.growth() < MOST_GROWTH,
        },
        Goal {
            what: format!(
                "no row is driven and parked in vain more than {MOST_IN_VAIN} times before its first attempt"
            ),
            measured: format!("{over} rows were, at most {} times", vain.most),
            met: over == 0,
        },
    ]
}
