//! The shape `wipe`: under load, everything that JetStream keeps is deleted once. What was accepted
//! must be delivered all the same, and soon.
//!
//! A wipe may repeat what was under way, so repeated requests and missing records are no fault
//! here; the report counts them.

use std::time::Duration;

use anyhow::Result;

use super::phase::Begun;
use super::{Found, Run};
use crate::bench::{Bench, Events};
use crate::report::{Goal, Phase, Report};
use crate::verify::Verdict;

/// The store is deleted once this part of the events is written.
const AFTER: u32 = 3;
/// How long a delivery may take that the broker had lost.
const SOON: Duration = Duration::from_secs(60);
/// How often to look how far the load is.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn run(run: Run<'_>) -> Result<Report> {
    let numbers = run.options.numbers;
    let (bench, host, events) = run.start_warm().await?;

    bench.progress.step("writing events");
    let begun = Begun::now(&bench)?;
    let load = bench.load(events, numbers.rate, numbers.rows);
    let (generated, wiped) = tokio::join!(
        bench.generator.run(load, run.cancelled),
        wipe(&bench, events)
    );
    let generated = generated?;
    wiped?;
    bench
        .progress
        .step("waiting until everything accepted is delivered");
    bench.all_sent("recovering").await?;
    let phase = begun.end(&bench, "wipe", events, &generated, |_| false)?;
    let memory = begun.memory();
    drop(begun);

    let verdict = bench.verdict().await?;
    let mut faults = verdict.unexcusable();
    faults.extend(verdict.all_sent());
    let found = Found {
        goals: goals(&phase, &verdict),
        phases: vec![phase],
        memory: Some(memory),
        drives_in_vain: None,
        verdict,
        faults,
    };
    run.finish(bench, host, found).await
}

async fn wipe(bench: &Bench, events: Events) -> Result<()> {
    let from = u64::from(events.from + (events.to - events.from) / AFTER);
    while bench.receiver.counters().requests < from * u64::from(bench.plan.endpoints_each()) {
        bench.system.check()?;
        bench.pause(LOOK).await?;
    }
    bench
        .progress
        .step("deleting everything that JetStream keeps");
    bench.system.wipe_jetstream().await?;
    bench.progress.step("nats-server is up again, empty");
    Ok(())
}

fn goals(phase: &Phase, verdict: &Verdict) -> Vec<Goal> {
    let slowest = phase.healthy.map_or(0.0, |latency| latency.max) / 1e3;
    vec![
        Goal {
            what: "everything accepted is delivered".to_owned(),
            measured: format!("{} of {}", verdict.delivered, verdict.expected),
            met: verdict.delivered == verdict.expected,
        },
        Goal {
            what: format!("within {} s of its commit", SOON.as_secs()),
            measured: format!("{slowest:.1} s at the most"),
            met: slowest <= SOON.as_secs_f64(),
        },
    ]
}
