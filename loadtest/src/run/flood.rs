//! The shapes with one measured phase in which everything is healthy: `flood`, `fanout10`,
//! `steady`.

use anyhow::Result;

use super::phase::Begun;
use super::{Found, Run};
use crate::report::{Goal, Phase, Report};
use crate::shape::Shape;

/// Deliveries a second, recorded, that a flood of one endpoint must reach.
const FLOOD_RATE: f64 = 6_000.0;

pub(super) async fn run(run: Run<'_>) -> Result<Report> {
    let (shape, numbers) = (run.options.shape, run.options.numbers);
    let (bench, host, events) = run.start_warm().await?;
    bench.progress.step("measuring");
    let begun = Begun::now(&bench)?;
    let load = bench.load(events, numbers.rate, numbers.rows);
    let requests = u64::from(events.to) * u64::from(numbers.endpoints_each);
    let (generated, arrived) = tokio::join!(
        bench.generator.run(load, run.cancelled),
        bench.arrived("measuring", requests)
    );
    let generated = generated?;
    arrived?;
    bench.all_sent("recording").await?;
    let phase = begun.end(&bench, shape.name(), events, &generated, |_| false)?;
    let memory = begun.memory();
    drop(begun);

    let verdict = bench.verdict().await?;
    let mut faults = verdict.faults();
    faults.extend(verdict.all_sent());
    let found = Found {
        goals: goals(shape, &phase),
        phases: vec![phase],
        memory: Some(memory),
        drives_in_vain: None,
        verdict,
        faults,
    };
    run.finish(bench, host, found).await
}

fn goals(shape: Shape, phase: &Phase) -> Vec<Goal> {
    match shape {
        Shape::Flood => vec![Goal {
            what: format!("{FLOOD_RATE:.0} deliveries a second, recorded"),
            measured: format!("{:.0}", phase.deliveries_per_second),
            met: phase.deliveries_per_second >= FLOOD_RATE,
        }],
        Shape::Fanout10 | Shape::Steady | Shape::Hanging | Shape::Backlog | Shape::Wipe => {
            Vec::new()
        }
    }
}
