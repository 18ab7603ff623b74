//! The shape `backlog`: a great many messages waiting for one hanging endpoint beside a healthy
//! one, held for a while, then let go. The process must not grow with the backlog, and no row may
//! be driven and parked again and again before its first attempt.

use std::time::Duration;

use anyhow::Result;
use hooklane_store::audit::{self, Vain};

use super::phase::Begun;
use super::{Found, Run, total};
use crate::bench::{Bench, Events};
use crate::generate::{Generated, Load};
use crate::journal::Fate;
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
/// Outbox rows that the healthy load may have waiting at any time.
const UNDER_WAY: u64 = 100;
/// By how much hooklane may grow.
const MOST_GROWTH: u64 = 50_000_000;
/// Drives that a row may make in vain before its first attempt.
const MOST_IN_VAIN: usize = 2;

pub(super) async fn run(run: Run<'_>) -> Result<Report> {
    let numbers = run.options.numbers;
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
    let (bench, host) = run.start(consumer_of, Endpoints::default()).await?;
    bench.warm_up(warm).await?;

    // The healthy endpoint's load goes on beside everything else, until the end.
    let enough = run.cancelled.child_token();
    let beside = Events {
        from: waiting.to,
        to: all,
    };
    let load = Load {
        connections: 2,
        ..bench.load(beside, Some(HEALTHY_RATE), 1)
    };
    let rest = async {
        let held = hold_and_release(run, &bench, waiting).await;
        enough.cancel();
        held
    };
    let (healthy_load, held) = tokio::join!(bench.generator.run(load, &enough), rest);
    healthy_load?;
    let held = held?;
    bench
        .until("recording", |open| open.received == 0 && open.outbox == 0)
        .await?;

    let mut phase = held
        .begun
        .end(&bench, "backlog", waiting, &held.generated, |_| true)?;
    phase.healthy = bench
        .latencies(committed(&bench, beside), |_| false)
        .0
        .summary();
    let memory = held.begun.memory();
    drop(held);
    let verdict = bench.verdict().await?;
    let vain = audit::vain_drives(&bench.store, bench.endpoints[HANGING as usize]).await?;
    let mut faults = verdict.faults();
    // What was attempted in vain while the endpoint hung waits for its next attempt.
    let totals = verdict.totals;
    if totals.sent + totals.stalled != verdict.expected {
        faults.extend(verdict.all_sent());
    }
    let found = Found {
        goals: goals(&memory, &vain),
        phases: vec![phase],
        memory: Some(memory),
        drives_in_vain: Some(Drives {
            deliveries: vain.deliveries,
            attempted: vain.attempted,
            by_drives: vain.by_drives.to_vec(),
            most: vain.most,
        }),
        verdict,
        faults,
    };
    run.finish(bench, host, found).await
}

struct Held {
    begun: Begun,
    generated: Generated,
}

async fn hold_and_release(run: Run<'_>, bench: &Bench, waiting: Events) -> Result<Held> {
    bench.pause(SETTLE).await?;
    let begun = Begun::now(bench)?;
    bench.progress.step(&format!(
        "writing {} events for an endpoint that hangs",
        waiting.to - waiting.from
    ));
    bench
        .receiver
        .behave(HANGING, Behaviour::Hang(run.options.hang));
    let load = bench.load(waiting, run.options.numbers.rate, run.options.numbers.rows);
    let generated = bench.generator.run(load, run.cancelled).await?;
    bench
        .until("accepting", |open| open.outbox < UNDER_WAY)
        .await?;
    bench
        .progress
        .step(&format!("holding the backlog for {:?}", run.options.hold));
    bench.pause(run.options.hold).await?;
    bench.progress.step("letting the endpoint recover");
    bench.receiver.behave(HANGING, Behaviour::Answer(200));
    // Attempts that failed wait for the next one by the schedule, minutes from now; all else must
    // go out at once.
    bench
        .until("draining", |open| {
            open.outbox < UNDER_WAY
                && open.received < UNDER_WAY
                && open.stalled <= attempted_in_vain(bench)
        })
        .await?;
    Ok(Held { begun, generated })
}

/// Deliveries whose attempts so far have all been cut off.
fn attempted_in_vain(bench: &Bench) -> u64 {
    let mut cut = std::collections::HashSet::new();
    let log = bench.receiver.log();
    for seen in &log {
        if seen.status == 0 && bench.plan.pair(seen.slot).1 == HANGING {
            cut.insert(seen.slot);
        }
    }
    for seen in &log {
        if seen.status != 0 {
            cut.remove(&seen.slot);
        }
    }
    cut.len() as u64
}

/// As many of the events as were written before the load ended.
fn committed(bench: &Bench, events: Events) -> Events {
    let written = (events.from..events.to)
        .take_while(|ordinal| bench.journal.fate(*ordinal) == Fate::Committed)
        .count();
    Events {
        from: events.from,
        to: events.from + u32::try_from(written).unwrap_or(0),
    }
}

fn goals(memory: &MemoryReport, vain: &Vain) -> Vec<Goal> {
    let over = vain.over(MOST_IN_VAIN);
    vec![
        Goal {
            what: format!("hooklane grows by less than {} MB", MOST_GROWTH / 1_000_000),
            measured: format!("{:.1} MB", memory.hooklane_growth_bytes as f64 / 1e6),
            met: memory.hooklane_growth_bytes < MOST_GROWTH,
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
