//! What a run found, as one JSON object or as tables for people.

use std::fmt::Write;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::latency::Summary;
use crate::measure::{Cpu, Memory};
use crate::system::Profile;
use crate::verify::Verdict;

/// Everything that a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The shape's name.
    pub shape: &'static str,
    /// Whether commits waited for the disk.
    pub profile: Profile,
    /// Bytes of one payload.
    pub payload_bytes: usize,
    /// Endpoints of the run.
    pub endpoints: u32,
    /// What it ran on.
    pub host: Host,
    /// The measured parts, in order; the warm-up is none of them.
    pub phases: Vec<Phase>,
    /// Memory, where the shape watches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryReport>,
    /// Drives before first attempts, where the shape looks at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives_in_vain: Option<Drives>,
    /// What verification found.
    pub verdict: Verdict,
    /// What the shape wants to see, and whether it did.
    pub goals: Vec<Goal>,
    /// What is wrong, in words; empty where nothing is.
    pub faults: Vec<String>,
}

/// What a run ran on.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Median time of writing and syncing 4 KiB where PostgreSQL keeps its data, in milliseconds.
    pub sync_ms: f64,
}

/// One measured part.
#[derive(Debug, Clone, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// Events committed.
    pub events: u64,
    /// Deliveries that follow from them.
    pub deliveries: u64,
    /// From the first transaction's beginning to the last delivery recorded as `sent` (or, where
    /// the phase ends before that, to its end).
    pub seconds: f64,
    /// Deliveries a second over that time.
    pub deliveries_per_second: f64,
    /// How long the generator took to commit the events.
    pub generated_in_seconds: f64,
    /// From the beginning of the commit to the request's arrival, healthy endpoints.
    pub healthy: Option<Summary>,
    /// The same for hanging endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hanging: Option<Summary>,
    /// By how much the generator itself was late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_late: Option<Summary>,
    /// CPU seconds used per 1,000 deliveries.
    pub cpu_per_thousand: Cpu,
    /// The same of hooklane, PostgreSQL and nats-server together.
    pub server_cpu_per_thousand: f64,
}

/// Memory over a phase.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryReport {
    /// Resident bytes before.
    pub before: Memory,
    /// The most during it.
    pub peak: Memory,
    /// By how much hooklane grew.
    pub hooklane_growth_bytes: u64,
}

/// How often deliveries were driven and parked before their first attempt.
#[derive(Debug, Clone, Serialize)]
pub struct Drives {
    /// Deliveries looked at.
    pub deliveries: u64,
    /// Of these, how many have been attempted.
    pub attempted: u64,
    /// How many were driven 0, 1, 2, … times in vain; the last entry is that many or more.
    pub by_drives: Vec<u64>,
    /// The most of any.
    pub most: u32,
}

/// Something a shape wants to see.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// What.
    pub what: String,
    /// What was measured.
    pub measured: String,
    /// Whether it is met.
    pub met: bool,
}

impl Report {
    /// Whether nothing is wrong and every goal is met.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.faults.is_empty() && self.goals.iter().all(|goal| goal.met)
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "{}: {} endpoints, {} bytes a payload, {:?} profile, {} CPUs, sync {:.2} ms",
            self.shape,
            self.endpoints,
            self.payload_bytes,
            self.profile,
            self.host.cpus,
            self.host.sync_ms
        );
        let _ = writeln!(text, "{}", phases(&self.phases));
        let _ = writeln!(text, "{}", latencies(&self.phases));
        let _ = writeln!(text, "{}", cpu(&self.phases));
        if let Some(memory) = &self.memory {
            let _ = writeln!(text, "{}", memory_table(memory));
        }
        if let Some(drives) = &self.drives_in_vain {
            let _ = writeln!(
                text,
                "drives in vain before the first attempt, of {} deliveries ({} attempted): {:?}, at most {}",
                drives.deliveries, drives.attempted, drives.by_drives, drives.most
            );
        }
        let Verdict {
            expected,
            delivered,
            missing,
            duplicates,
            late,
            unrecorded,
            phantoms,
            counters,
            totals,
            ..
        } = &self.verdict;
        let _ = writeln!(
            text,
            "verified: {delivered} of {expected} delivered, {missing} missing, {duplicates} repeated \
             and {late} after an answer too late, {unrecorded} unrecorded, {phantoms} never made; \
             {} of {} requests checked byte by byte; \
             ledger: {} sent, {} stalled, {} received, {} failed, {} attempts",
            counters.verified,
            counters.requests,
            totals.sent,
            totals.stalled,
            totals.received,
            totals.failed,
            totals.attempts
        );
        for goal in &self.goals {
            let word = if goal.met { "met   " } else { "MISSED" };
            let _ = writeln!(text, "{word}  {}: {}", goal.what, goal.measured);
        }
        for fault in &self.faults {
            let _ = writeln!(text, "WRONG   {fault}");
        }
        text
    }
}

fn table(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn phases(phases: &[Phase]) -> Table {
    let rows = phases
        .iter()
        .map(|phase| {
            vec![
                phase.name.clone(),
                phase.events.to_string(),
                phase.deliveries.to_string(),
                format!("{:.2}", phase.generated_in_seconds),
                format!("{:.2}", phase.seconds),
                format!("{:.0}", phase.deliveries_per_second),
            ]
        })
        .collect();
    let header = [
        "phase",
        "events",
        "deliveries",
        "written in s",
        "recorded in s",
        "deliveries/s",
    ];
    table(&header, rows)
}

fn latencies(phases: &[Phase]) -> Table {
    let mut rows = Vec::new();
    for phase in phases {
        let kinds = [
            ("commit to arrival", phase.healthy),
            ("the same, hanging endpoints", phase.hanging),
            ("generator late", phase.generator_late),
        ];
        for (kind, summary) in kinds {
            let Some(summary) = summary else { continue };
            rows.push(vec![
                format!("{}: {kind}", phase.name),
                summary.count.to_string(),
                format!("{:.2}", summary.p50),
                format!("{:.2}", summary.p90),
                format!("{:.2}", summary.p99),
                format!("{:.2}", summary.p999),
                format!("{:.2}", summary.max),
            ]);
        }
    }
    let header = [
        "latency in ms",
        "count",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
    ];
    table(&header, rows)
}

fn cpu(phases: &[Phase]) -> Table {
    let rows = phases
        .iter()
        .map(|phase| {
            let cpu = phase.cpu_per_thousand;
            vec![
                phase.name.clone(),
                format!("{:.3}", cpu.hooklane),
                format!("{:.3}", cpu.postgres),
                format!("{:.3}", cpu.nats),
                format!("{:.3}", phase.server_cpu_per_thousand),
                format!("{:.3}", cpu.loadtest),
            ]
        })
        .collect();
    let header = [
        "CPU s per 1,000 deliveries",
        "hooklane",
        "postgres",
        "nats-server",
        "server side",
        "loadtest",
    ];
    table(&header, rows)
}

fn memory_table(memory: &MemoryReport) -> Table {
    let row = |name: &str, of: Memory| {
        let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        vec![
            name.to_owned(),
            mb(of.hooklane),
            mb(of.postgres),
            mb(of.nats),
            mb(of.loadtest),
        ]
    };
    let header = [
        "memory in MB",
        "hooklane",
        "postgres",
        "nats-server",
        "loadtest",
    ];
    table(
        &header,
        vec![row("before", memory.before), row("peak", memory.peak)],
    )
}
