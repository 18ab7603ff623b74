//! The shapes with one measured phase in which everything is healthy: `flood`, `fanout10`,
//! `steady`.

use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::{Events, Found, Options, Run, in_turn, total};
use crate::measure::Memory;
use crate::measure::Watch;
use crate::progress::Progress;
use crate::report::{Goal, MemoryReport, Phase, Report};
use crate::setup::Endpoints;
use crate::shape::Shape;

/// Deliveries a second, recorded, that a flood of one endpoint must reach.
const FLOOD_RATE: f64 = 6_000.0;

pub(super) async fn run(
    options: &Options,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Report> {
    let numbers = options.numbers;
    let all = total(&[numbers.warm_up, numbers.events])?;
    let consumer_of = in_turn(all, numbers.consumers);
    let run = Run::start(
        options,
        progress,
        cancelled,
        consumer_of,
        Endpoints::default(),
    )
    .await?;
    let (warm, measured) = (
        Events {
            from: 0,
            to: numbers.warm_up,
        },
        Events {
            from: numbers.warm_up,
            to: all,
        },
    );
    run.warm_up(warm).await?;
    progress.step("measuring");
    let before = Memory::now(run.system.pids());
    let watch = Watch::start(run.system.pids())?;
    let begun = run.begin();
    let load = run.load(measured, numbers.rate, numbers.rows);
    let writing = run.generator.run(load, cancelled);
    let waiting = run.until(
        "measuring",
        |requests, _| requests >= u64::from(all) * u64::from(numbers.endpoints_each),
        false,
    );
    let (generated, waited) = tokio::join!(writing, waiting);
    let generated = generated?;
    waited?;
    run.all_sent("recording").await?;
    let phase = run.end(options.shape.name(), &begun, measured, &generated, |_| {
        false
    });
    let peak = watch.peak();
    drop(watch);
    let verdict = run.verdict().await?;
    let mut faults = verdict.faults();
    faults.extend(verdict.all_sent());
    let goals = goals(options.shape, &phase);
    let found = Found {
        phases: vec![phase],
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

fn goals(shape: Shape, phase: &Phase) -> Vec<Goal> {
    match shape {
        Shape::Flood => vec![Goal {
            what: format!("{FLOOD_RATE:.0} deliveries a second, recorded"),
            measured: format!("{:.0}", phase.deliveries_per_second),
            met: phase.deliveries_per_second >= FLOOD_RATE,
        }],
        _ => Vec::new(),
    }
}
