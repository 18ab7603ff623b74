//! Measuring a phase: time, CPU, memory and latencies from its beginning to its end.

use anyhow::Result;

use crate::bench::{Bench, Events};
use crate::generate::Generated;
use crate::measure::{Cpu, Memory, Watch};
use crate::report::{MemoryReport, Phase};

/// A phase that has begun.
pub(super) struct Begun {
    at: u64,
    cpu: Cpu,
    before: Memory,
    watch: Watch,
}

impl Begun {
    pub(super) fn now(bench: &Bench) -> Result<Self> {
        let pids = bench.system.pids();
        Ok(Self {
            before: Memory::now(pids),
            watch: Watch::start(pids)?,
            cpu: Cpu::now(pids),
            at: bench.epoch.micros(),
        })
    }

    /// What happened since. `hanging` says which endpoints are.
    ///
    /// # Errors
    /// Where the arrivals are to be kept and can't be.
    pub(super) fn end(
        &self,
        bench: &Bench,
        name: impl Into<String>,
        events: Events,
        generated: &Generated,
        hanging: impl Fn(u32) -> bool,
    ) -> Result<Phase> {
        let seconds = (bench.epoch.micros() - self.at) as f64 / 1e6;
        let cpu = Cpu::now(bench.system.pids()).since(self.cpu);
        let count = u64::from(events.to - events.from);
        let deliveries = count * u64::from(bench.plan.endpoints_each());
        let (healthy, hung) = bench.latencies(events, hanging);
        let cpu_per_thousand = cpu.per_thousand(deliveries);
        let name = name.into();
        bench.keep_arrivals(&name, events)?;
        Ok(Phase {
            name,
            events: count,
            deliveries,
            seconds,
            deliveries_per_second: deliveries as f64 / seconds,
            generated_in_seconds: generated.took.as_secs_f64(),
            healthy: healthy.summary(),
            hanging: hung.summary(),
            generator_late: generated.late.summary(),
            cpu_per_thousand,
            server_cpu_per_thousand: cpu_per_thousand.server_side(),
        })
    }

    pub(super) fn memory(&self) -> MemoryReport {
        let peak = self.watch.peak();
        MemoryReport {
            before: self.before,
            peak,
            hooklane_growth_bytes: peak.hooklane.saturating_sub(self.before.hooklane),
        }
    }
}
