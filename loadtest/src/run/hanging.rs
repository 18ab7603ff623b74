//! The shape `hanging`: the same load twice, first with all endpoints healthy, then with one tenth
//! of them hanging. The healthy ones must hardly notice.

use std::time::Duration;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::{Events, Found, Options, Run, in_turn, pause, total};
use crate::measure::{Memory, Watch};
use crate::progress::Progress;
use crate::receiver::Behaviour;
use crate::report::{Goal, MemoryReport, Phase, Report};
use crate::setup::Endpoints;

/// Every n-th endpoint hangs.
const EVERY: u32 = 10;
/// How much slower the healthy endpoints may get at the 99th percentile.
const MOST_RATIO: f64 = 2.0;
/// After the load, how long a delivery to a healthy endpoint may still be under way.
const SETTLE: Duration = Duration::from_millis(500);
/// An endpoint as a customer would have it, but for the rate, which is not what is tested here.
const ENDPOINTS: Endpoints = Endpoints {
    rate: None,
    concurrency: 16,
    timeout: Duration::from_secs(15),
};

/// Spread over consumers with and without healthy endpoints beside them.
fn hangs(endpoint: u32) -> bool {
    endpoint % EVERY == EVERY - 1
}

pub(super) async fn run(
    options: &Options,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Report> {
    let numbers = options.numbers;
    let all = total(&[numbers.warm_up, numbers.events, numbers.events])?;
    let consumer_of = in_turn(all, numbers.consumers);
    let run = Run::start(options, progress, cancelled, consumer_of, ENDPOINTS).await?;
    let first = Events {
        from: numbers.warm_up,
        to: numbers.warm_up + numbers.events,
    };
    let second = Events {
        from: first.to,
        to: all,
    };
    run.warm_up(Events {
        from: 0,
        to: numbers.warm_up,
    })
    .await?;

    progress.step("measuring with all endpoints healthy");
    let healthy = measured(&run, "all healthy", first).await?;
    run.all_sent("recording").await?;

    progress.step("measuring with one tenth of the endpoints hanging");
    let before = Memory::now(run.system.pids());
    let watch = Watch::start(run.system.pids())?;
    for endpoint in (0..run.plan.endpoints()).filter(|endpoint| hangs(*endpoint)) {
        run.receiver.behave(endpoint, Behaviour::Hang(options.hang));
    }
    let hanging = measured(&run, "a tenth hanging", second).await?;
    let peak = watch.peak();
    drop(watch);

    progress.step("letting the hanging endpoints recover");
    for endpoint in 0..run.plan.endpoints() {
        run.receiver.behave(endpoint, Behaviour::Answer(200));
    }
    run.all_sent("recovering").await?;
    let verdict = run.verdict().await?;
    let mut faults = verdict.unexcusable();
    faults.extend(verdict.all_sent());
    let goals = goals(&healthy, &hanging);
    let found = Found {
        phases: vec![healthy, hanging],
        memory: Some(MemoryReport {
            before,
            peak,
            hooklane_growth_bytes: peak.hooklane.saturating_sub(before.hooklane),
        }),
        drives_in_vain: None,
        verdict,
        goals,
        faults,
    };
    run.finish(found).await
}

async fn measured(run: &Run<'_>, name: &'static str, events: Events) -> Result<Phase> {
    let begun = run.begin();
    let load = run.load(events, run.options.numbers.rate, run.options.numbers.rows);
    let writing = run.generator.run(load, run.cancelled);
    let showing = async {
        loop {
            run.progress.show(format!(
                "{name}: {} events committed, {} requests",
                run.journal.committed(),
                run.receiver.counters().requests
            ));
            tokio::time::sleep(SETTLE).await;
        }
    };
    let generated = tokio::select! {
        generated = writing => generated?,
        () = showing => unreachable!("it shows for ever"),
    };
    pause(SETTLE, run.cancelled).await?;
    healthy_arrived(run, events).await?;
    Ok(run.end(name, &begun, events, &generated, hangs))
}

/// Waits for the last healthy deliveries: one that never arrives must not go missing from the
/// latencies.
async fn healthy_arrived(run: &Run<'_>, events: Events) -> Result<()> {
    let expected: usize = (events.from..events.to)
        .map(|ordinal| {
            run.plan
                .endpoints_of(run.plan.consumer_of(ordinal))
                .filter(|endpoint| !hangs(*endpoint))
                .count()
        })
        .sum();
    let arrived = || {
        let (healthy, _) = run.latencies(events, hangs);
        healthy.summary().map_or(0, |summary| summary.count) as usize
    };
    let begun = tokio::time::Instant::now();
    while arrived() < expected {
        anyhow::ensure!(
            begun.elapsed() < super::STUCK,
            "{} of {expected} deliveries to healthy endpoints arrived",
            arrived()
        );
        run.system.check()?;
        pause(SETTLE, run.cancelled).await?;
    }
    Ok(())
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
