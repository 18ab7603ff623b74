//! The shape `hanging`: the same load twice, first with all endpoints healthy, then with one tenth
//! of them hanging. The healthy ones must hardly notice.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use super::phase::Begun;
use super::{Found, Run, in_turn, total};
use crate::bench::{Bench, Events, STUCK};
use crate::receiver::Behaviour;
use crate::report::{Goal, MemoryReport, Phase, Report};
use crate::setup::Endpoints;

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
    let all = total(&[numbers.warm_up, numbers.events, numbers.events])?;
    let consumer_of = in_turn(all, numbers.consumers);
    let (bench, host) = run.start(consumer_of, ENDPOINTS).await?;
    let first = Events {
        from: numbers.warm_up,
        to: numbers.warm_up + numbers.events,
    };
    let second = Events {
        from: first.to,
        to: all,
    };
    bench
        .warm_up(Events {
            from: 0,
            to: numbers.warm_up,
        })
        .await?;

    bench.progress.step("measuring with all endpoints healthy");
    let (healthy, _) = measured(run, &bench, "all healthy", first).await?;
    bench.all_sent("recording").await?;

    bench
        .progress
        .step("measuring with one tenth of the endpoints hanging");
    for endpoint in (0..bench.plan.endpoints()).filter(|endpoint| hangs(*endpoint)) {
        bench
            .receiver
            .behave(endpoint, Behaviour::Hang(run.options.hang));
    }
    let (hanging, memory) = measured(run, &bench, "a tenth hanging", second).await?;

    bench.progress.step("letting the hanging endpoints recover");
    for endpoint in 0..bench.plan.endpoints() {
        bench.receiver.behave(endpoint, Behaviour::Answer(200));
    }
    bench.all_sent("recovering").await?;
    let verdict = bench.verdict().await?;
    let mut faults = verdict.faults();
    faults.extend(verdict.all_sent());
    let found = Found {
        goals: goals(&healthy, &hanging),
        phases: vec![healthy, hanging],
        memory: Some(memory),
        drives_in_vain: None,
        verdict,
        faults,
    };
    run.finish(bench, host, found).await
}

async fn measured(
    run: Run<'_>,
    bench: &Bench,
    name: &'static str,
    events: Events,
) -> Result<(Phase, MemoryReport)> {
    let begun = Begun::now(bench)?;
    let load = bench.load(events, run.options.numbers.rate, run.options.numbers.rows);
    bench.progress.show(name.to_owned());
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

fn goals(healthy: &Phase, hanging: &Phase) -> Vec<Goal> {
    let (Some(without), Some(with)) = (healthy.healthy, hanging.healthy) else {
        return Vec::new();
    };
    let ratio = with.p99 / without.p99;
    vec![Goal {
        what: format!(
            "the healthy endpoints' p99 with hanging ones within {MOST_RATIO} times of that without"
        ),
        measured: format!(
            "{ratio:.2} times ({:.2} ms and {:.2} ms)",
            with.p99, without.p99
        ),
        met: ratio <= MOST_RATIO,
    }]
}
