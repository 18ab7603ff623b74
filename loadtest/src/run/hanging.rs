//! The shape `hanging`: the same load with all endpoints healthy and then with one tenth of them
//! hanging, several times in turn. The healthy ones must hardly notice.
//!
//! What a machine does besides, such as a disk that holds up syncs for a while, meets one part or
//! the other by chance; the median of the rounds leaves such a round out.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use super::phase::Begun;
use super::{Found, Run, in_turn, total};
use crate::bench::{Bench, Events, STUCK};
use crate::receiver::Behaviour;
use crate::report::{Goal, MemoryReport, Phase, Report};
use crate::setup::Endpoints;

/// How often both parts are measured.
const ROUNDS: u32 = 5;
/// Every n-th endpoint hangs.
const EVERY: u32 = 10;
/// How much slower the healthy endpoints may get at the 99th percentile.
const MOST_RATIO: f64 = 2.0;
/// How often to look whether the last deliveries to healthy endpoints have arrived.
const LOOK: Duration = Duration::from_millis(250);
/// An endpoint as a customer would have it, but for the rate, which is not what is tested here.
const ENDPOINTS: Endpoints = Endpoints {
    rate: None,
    concurrency: 16,
    timeout: Duration::from_secs(15),
};

/// Spread over consumers, some of which have healthy endpoints beside them.
fn hangs(endpoint: u32) -> bool {
    endpoint % EVERY == EVERY - 1
}

pub(super) async fn run(run: Run<'_>) -> Result<Report> {
    let numbers = run.options.numbers;
    let all = total(&[numbers.events; 2 * ROUNDS as usize])
        .and_then(|measured| total(&[numbers.warm_up, measured]))?;
    let consumer_of = in_turn(all, numbers.consumers);
    let (bench, host) = run.start(consumer_of, ENDPOINTS).await?;
    let mut events = Events {
        from: 0,
        to: numbers.warm_up,
    };
    bench.warm_up(events).await?;

    let mut rounds = Vec::new();
    let mut memory = None;
    for round in 1..=ROUNDS {
        events = after(events, numbers.events);
        bench
            .progress
            .step(&format!("round {round} of {ROUNDS}: all endpoints healthy"));
        let name = format!("all healthy {round}");
        let (healthy, _) = measured(run, &bench, name, events).await?;
        bench.all_sent("recording").await?;

        events = after(events, numbers.events);
        bench.progress.step(&format!(
            "round {round} of {ROUNDS}: one tenth of the endpoints hanging"
        ));
        for endpoint in (0..bench.plan.endpoints()).filter(|endpoint| hangs(*endpoint)) {
            bench
                .receiver
                .behave(endpoint, Behaviour::Hang(run.options.hang));
        }
        let name = format!("a tenth hanging {round}");
        let (hanging, used) = measured(run, &bench, name, events).await?;
        memory = Some(used);

        bench.progress.step("letting the hanging endpoints recover");
        for endpoint in 0..bench.plan.endpoints() {
            bench.receiver.behave(endpoint, Behaviour::Answer(200));
        }
        bench.all_sent("recovering").await?;
        rounds.push(Round { healthy, hanging });
    }

    let verdict = bench.verdict().await?;
    let mut faults = verdict.faults();
    faults.extend(verdict.all_sent());
    let found = Found {
        goals: goals(&rounds),
        phases: rounds
            .into_iter()
            .flat_map(|round| [round.healthy, round.hanging])
            .collect(),
        memory,
        drives_in_vain: None,
        verdict,
        faults,
    };
    run.finish(bench, host, found).await
}

/// As many events as that, after these.
fn after(events: Events, count: u32) -> Events {
    Events {
        from: events.to,
        to: events.to + count,
    }
}

/// Both parts, measured one right after the other.
struct Round {
    healthy: Phase,
    hanging: Phase,
}

impl Round {
    /// By how much the healthy endpoints' p99 grew.
    fn ratio(&self) -> Option<f64> {
        Some(self.hanging.healthy?.p99 / self.healthy.healthy?.p99)
    }
}

async fn measured(
    run: Run<'_>,
    bench: &Bench,
    name: String,
    events: Events,
) -> Result<(Phase, MemoryReport)> {
    let begun = Begun::now(bench)?;
    let load = bench.load(events, run.options.numbers.rate, run.options.numbers.rows);
    bench.progress.show(name.clone());
    let generated = bench.generator.run(load, run.cancelled).await?;
    healthy_arrived(bench, events).await?;
    let phase = begun.end(bench, name, events, &generated, hangs)?;
    Ok((phase, begun.memory()))
}

/// Waits for the last deliveries to healthy endpoints: one that never arrives must not go missing
/// from the latencies.
async fn healthy_arrived(bench: &Bench, events: Events) -> Result<()> {
    let expected: u64 = (events.from..events.to)
        .map(|ordinal| {
            let endpoints = bench.plan.endpoints_of(bench.plan.consumer_of(ordinal));
            endpoints.filter(|endpoint| !hangs(*endpoint)).count() as u64
        })
        .sum();
    let begun = Instant::now();
    loop {
        let (healthy, _) = bench.latencies(events, hangs);
        let arrived = healthy.summary().map_or(0, |summary| summary.count);
        if arrived >= expected {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < STUCK,
            "{arrived} of {expected} deliveries to healthy endpoints arrived"
        );
        bench.system.check()?;
        bench.pause(LOOK).await?;
    }
}

fn goals(rounds: &[Round]) -> Vec<Goal> {
    let mut ratios: Vec<f64> = rounds.iter().filter_map(Round::ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let Some(median) = ratios.get(ratios.len() / 2) else {
        return Vec::new();
    };
    let each: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    vec![Goal {
        what: format!(
            "the healthy endpoints' p99 with hanging ones within {MOST_RATIO} times of that \
             without, in the median of {ROUNDS} rounds"
        ),
        measured: format!("{median:.2} times (rounds: {})", each.join(", ")),
        met: *median <= MOST_RATIO,
    }]
}
